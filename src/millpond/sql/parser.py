"""Parses a SQL script into statements, one by one, so that an error in one does not hide those in the next."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

import pyarrow as pa
from sqlglot import exp
from sqlglot.tokenizer_core import Token, TokenType

from millpond.errors import Problem, SqlError, nearest
from millpond.sql.cursor import Refusal
from millpond.sql.dialect import MILLPOND
from millpond.sql.foreign import refused_phrase
from millpond.sql.grammar import Grammar
from millpond.sql.nodes import place_of
from millpond.sql.parse_changes import parse_delete, parse_drop, parse_insert, parse_merge, parse_update, parse_upsert
from millpond.sql.parse_create import parse_create
from millpond.sql.parse_other import (
    parse_begin,
    parse_commit,
    parse_describe,
    parse_rollback,
    parse_select,
    parse_set,
    parse_show,
    parse_start,
)
from millpond.sql.parse_types import take_type
from millpond.sql.statements import Explain, Statement
from millpond.sql.strictness import unbalanced
from millpond.sql.text import SourceText
from millpond.sql.tokens import URI, Lexed, lex, normal_text, without_options
from millpond.sql.words import CLAUSES

__all__ = ["Script", "parse_expression", "parse_script", "parse_type", "place_of"]

T = TypeVar("T")
Parse = Callable[[Grammar, dict[str, Any]], Statement]

# CREATE OR REPLACE TEMPORARY TABLE IF NOT EXISTS name
DECLARING_WORDS_MAX = 9
_DECLARES = re.compile(
    r"CREATE (?:OR REPLACE )?(?:\w+ )??(?P<kind>STREAM|TABLE|VIEW|SOURCE) (?:IF NOT EXISTS )?(?P<name>\w+)",
    re.IGNORECASE,
)


@dataclass(frozen=True)
class Script:
    """The statements of a text in order, and the problems of the others; `unread` are the names that those would have
    declared, each with the word after CREATE."""

    source: SourceText
    statements: tuple[Statement, ...]
    problems: tuple[Problem, ...]
    unread: tuple[tuple[str, str], ...] = ()


def parse_script(text: str, *, file: str = "<text>", variables: Mapping[str, str] | None = None) -> Script:
    """Parse every statement of the text; one that is invalid is reported, and the rest is parsed nevertheless."""
    lexed = lex(text, file, variables or {}, MILLPOND.tokenizer())
    statements: list[Statement] = []
    problems: list[tuple[int, Problem]] = [(m.start, lexed.problem(m)) for m in lexed.mistakes]
    unread: list[tuple[str, str]] = []
    for tokens in _split(lexed.tokens):
        if _is_spoilt(tokens, lexed):
            unread += _declared(tokens)
            continue
        try:
            statements.append(_parse_whole(lexed.source, tokens, parse_statement))
        except Refusal as refusal:
            problems.append((refusal.token.start, _problem(refusal, lexed.source)))
            unread += _declared(tokens)
    problems.sort(key=lambda found: found[0])
    return Script(lexed.source, tuple(statements), tuple(problem for _, problem in problems), tuple(unread))


def _declared(tokens: list[Token]) -> list[tuple[str, str]]:
    """The kind and the name that an invalid statement would have declared."""
    found = _DECLARES.match(" ".join(token.text for token in tokens[:DECLARING_WORDS_MAX]))
    return [(found["kind"].upper(), found["name"])] if found else []


def parse_expression(text: str, *, file: str = "<condition>") -> exp.Expression:
    """Parse one expression, in which `?` is a parameter; SqlError if the text is not an expression."""
    return _parse_alone(text, file, lambda grammar: grammar.condition())


def parse_type(text: str, *, file: str = "<type>") -> pa.DataType:
    """Parse a type such as `DECIMAL(12,2)` or `ARRAY<STRING>`; SqlError if the text is not a type."""
    return _parse_alone(text, file, take_type)


def _parse_alone(text: str, file: str, parse: Callable[[Grammar], T]) -> T:
    lexed = lex(text, file, {}, MILLPOND.tokenizer())
    if lexed.mistakes:
        raise SqlError.of(lexed.problem(m) for m in lexed.mistakes)
    if not lexed.tokens:
        raise SqlError("MP101", "The text is empty.", place=lexed.source.place_in_text(0, 1))
    try:
        return _parse_whole(lexed.source, list(lexed.tokens), parse)
    except Refusal as refusal:
        raise SqlError.of([_problem(refusal, lexed.source)]) from None


def _split(tokens: tuple[Token, ...]) -> list[list[Token]]:
    statements: list[list[Token]] = [[]]
    for token in tokens:
        if token.token_type == TokenType.SEMICOLON:
            statements.append([])
        else:
            statements[-1].append(token)
    return [found for found in statements if found]


def _is_spoilt(tokens: list[Token], lexed: Lexed) -> bool:
    """Whether the statement contains a mistake of the text, so that parsing it would only report consequences."""
    end = lexed.source.code.find(";", tokens[-1].end + 1)
    end = len(lexed.source.code) if end < 0 else end
    return any(tokens[0].start <= mistake.start <= end for mistake in lexed.mistakes)


def _grammar(source: SourceText, tokens: list[Token]) -> Grammar:
    wrong = unbalanced(tokens)
    if wrong:
        raise wrong
    grammar = MILLPOND.parser()
    assert isinstance(grammar, Grammar)
    grammar.start(source, [_as_clause(tokens, n) for n in range(len(tokens))])
    return grammar


# What may follow a column: then QUALIFY is the name of one.
_AFTER_A_NAME = re.compile(
    "(AND|AS|ASC|BETWEEN|CROSS|DESC|ELSE|END|FROM|FULL|GROUP|HAVING|IN|INNER|IS|JOIN|LEFT|LIKE|LIMIT|NULLS|ON|OR|ORDER|"
    "RIGHT|RLIKE|THEN|UNION|WHEN|WHERE|WITH|WINDOW)$",
    re.IGNORECASE,
)
_ENDS_A_CLAUSE = (TokenType.VAR, TokenType.IDENTIFIER, TokenType.R_PAREN, TokenType.STRING, TokenType.NUMBER)


def _as_clause(tokens: list[Token], n: int) -> Token:
    """The n-th token; QUALIFY is a word of the grammar where the clause begins, and a name elsewhere."""
    token = tokens[n]
    if token.token_type != TokenType.VAR or token.text.upper() != "QUALIFY" or not 0 < n < len(tokens) - 1:
        return token
    before, after = tokens[n - 1], tokens[n + 1]
    is_value = after.text[:1].isalnum() or after.text[:1] in "_(" or after.token_type == TokenType.IDENTIFIER
    ends = before.token_type in (*_ENDS_A_CLAUSE, URI) or before.text[:1].isalpha()
    if not ends or before.text.upper() in ("SELECT", "BY", "AND", "OR", "AS", "DISTINCT") or not is_value:
        return token
    if _AFTER_A_NAME.match(after.text):
        return token
    return Token(TokenType.QUALIFY, token.text, token.line, token.col, token.start, token.end)


def _parse_whole(source: SourceText, tokens: list[Token], parse: Callable[[Grammar], T]) -> T:
    """Parse all of the tokens; words of other systems get a hint of their own."""
    _refuse_foreign(tokens)
    try:
        grammar = _grammar(source, tokens)
        found = parse(grammar)
        _refuse_leftovers(grammar)
    except RecursionError:
        raise Refusal("MP101", "This statement is nested too deeply.", tokens[0]) from None
    except Refusal as refusal:
        _refuse_foreign(tokens, refusal.token)
        raise
    return found


def _refuse_foreign(tokens: list[Token], at: Token | None = None) -> None:
    """Raise for words of another system, at the token where parsing failed or anywhere if they are always wrong."""
    found = refused_phrase(tokens, at)
    if found is not None:
        token, name, hint = found
        code = "MP109" if token is tokens[0] else "MP101"
        raise Refusal(code, f"{name[:1].upper()}{name[1:]} is not supported.", token, hint)


def parse_statement(grammar: Grammar) -> Statement:
    """Parse a statement, up to the end of the tokens."""
    first = grammar.here
    parse = STATEMENTS.get(first.text.upper()) if first.token_type != TokenType.STRING else None
    if parse is None:
        known = nearest(first.text, STATEMENTS)
        hint = f"Did you mean {known}?" if known else f"Statements begin with {', '.join(SHOWN_STATEMENTS)}."
        grammar.refuse(f"No statement begins with {grammar.shown_token(first)}.", code="MP109", hint=hint)
    tokens = grammar.remaining()
    place = grammar.source.place(first.start, first.end + 1)
    code = grammar.source.code[first.start : tokens[-1].end + 1]
    core, given = without_options(tokens)
    common = {"place": place, "text": normal_text(tokens), "code": code, "core": normal_text(core), "given": given}
    return parse(grammar, common)


def parse_explain(grammar: Grammar, common: dict[str, Any]) -> Statement:
    """EXPLAIN statement"""
    grammar.expect("EXPLAIN")
    if grammar.at_end:
        grammar.refuse_unexpected("a statement")
    return Explain(**common, statement=parse_statement(grammar))


STATEMENTS: dict[str, Parse] = {
    "CREATE": parse_create,
    "DROP": parse_drop,
    "INSERT": parse_insert,
    "UPSERT": parse_upsert,
    "UPDATE": parse_update,
    "DELETE": parse_delete,
    "MERGE": parse_merge,
    "BEGIN": parse_begin,
    "START": parse_start,
    "COMMIT": parse_commit,
    "ROLLBACK": parse_rollback,
    "SELECT": parse_select,
    "WITH": parse_select,
    "FROM": parse_select,
    "VALUES": parse_select,
    "TABLE": parse_select,
    "(": parse_select,
    "SHOW": parse_show,
    "DESCRIBE": parse_describe,
    "DESC": parse_describe,
    "EXPLAIN": parse_explain,
    "SET": parse_set,
}
SHOWN_STATEMENTS = (
    "CREATE",
    "INSERT",
    "UPSERT",
    "UPDATE",
    "DELETE",
    "MERGE",
    "SELECT",
    "DROP",
    "BEGIN",
    "SHOW",
    "EXPLAIN",
    "SET",
)


def _refuse_leftovers(grammar: Grammar) -> None:
    if grammar.at_end:
        return
    token = grammar.here
    # A clause that is spelled correctly is in the wrong position, so a similar word is no help.
    right = token.text.upper() in CLAUSES
    words = [] if right else [token.text, f"{grammar.before.text} {token.text}", grammar.before.text]
    meant = next((found for word in words if (found := nearest(word, CLAUSES)) and found != word.upper()), None)
    hint = f"Did you mean {meant}?" if meant else "Remove it, or put a semicolon before it."
    if not meant and not right and _among_columns(grammar):
        hint = "Put a comma before it, if it is one more column."
    grammar.refuse(f"Unexpected {grammar.shown_token(token)} after the end of the statement.", code="MP102", hint=hint)


def _among_columns(grammar: Grammar) -> bool:
    """Whether the parser is in a SELECT list: the statement begins with SELECT, and its FROM is still to come."""
    before, after = grammar.tokens_since(0), grammar.remaining()
    is_list = bool(before) and before[0].text.upper() == "SELECT" and all(t.text.upper() != "FROM" for t in before)
    return is_list and any(token.text.upper() == "FROM" for token in after)


def _problem(refusal: Refusal, source: SourceText) -> Problem:
    place = source.place(refusal.token.start, refusal.token.end + 1)
    return Problem(refusal.code, refusal.message, place, refusal.hint)
