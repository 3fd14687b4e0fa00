"""Parsers of the other statements: SELECT, SHOW, DESCRIBE, EXPLAIN, SET, BEGIN, COMMIT and ROLLBACK."""

from __future__ import annotations

from typing import Any

from sqlglot.tokenizer_core import TokenType

from millpond.errors import did_you_mean
from millpond.sql.grammar import Grammar
from millpond.sql.statements import Begin, Commit, Describe, Name, Rollback, Select, SetOption, Show, Statement
from millpond.sql.tokens import URI
from millpond.sql.with_options import take_options

SHOWN = ("TABLES", "STREAMS", "FLOWS", "STATEMENTS", "VIEWS", "SOURCES", "CONNECTORS", "OPTIONS", "CHANGES")


def parse_select(grammar: Grammar, common: dict[str, Any]) -> Statement:
    """A bare query."""
    return Select(**common, query=grammar.query(), options=take_options(grammar))


def parse_begin(grammar: Grammar, common: dict[str, Any]) -> Statement:
    """BEGIN [TRANSACTION | WORK]"""
    grammar.expect("BEGIN")
    _transaction_word(grammar)
    return Begin(**common)


def parse_start(grammar: Grammar, common: dict[str, Any]) -> Statement:
    """START TRANSACTION"""
    grammar.expect("START", "TRANSACTION")
    return Begin(**common)


def parse_commit(grammar: Grammar, common: dict[str, Any]) -> Statement:
    """COMMIT [TRANSACTION | WORK]"""
    grammar.expect("COMMIT")
    _transaction_word(grammar)
    return Commit(**common)


def parse_rollback(grammar: Grammar, common: dict[str, Any]) -> Statement:
    """ROLLBACK [TRANSACTION | WORK]"""
    grammar.expect("ROLLBACK")
    _transaction_word(grammar)
    return Rollback(**common)


def _transaction_word(grammar: Grammar) -> None:
    if not grammar.take("TRANSACTION"):
        grammar.take("WORK")


def parse_show(grammar: Grammar, common: dict[str, Any]) -> Statement:
    """SHOW [ALL] TABLES | STREAMS | FLOWS | STATEMENTS | VIEWS | SOURCES | CONNECTORS | OPTIONS FOR subject |
    CHANGES table [LIMIT n]"""
    grammar.expect("SHOW")
    if grammar.take("ALL"):
        grammar.expect("TABLES")
        return Show(**common, kind="TABLES", with_hidden=True)
    token = grammar.here
    kind = token.text.upper()
    if grammar.at_end or kind not in SHOWN:
        hint = did_you_mean(token.text, SHOWN) or f"Use one of {', '.join(SHOWN)}."
        if grammar.at_end:
            grammar.refuse_unexpected("something to show", hint)
        grammar.refuse(f"SHOW {token.text} does not exist.", hint=hint)
    grammar.take_token()
    subject = None
    if kind == "OPTIONS":
        grammar.expect("FOR")
        subject = grammar.name("a source, sink, backend or statement")
    if kind == "CHANGES":
        return Show(**common, kind=kind, subject=grammar.name("a table's name"), limit=_limit(grammar))
    return Show(**common, kind=kind, subject=subject)


def _limit(grammar: Grammar) -> int | None:
    if not grammar.take("LIMIT"):
        return None
    if grammar.at_end or not grammar.here.text.isdigit():
        grammar.refuse_unexpected("a number of changes", "Write SHOW CHANGES t LIMIT 20.")
    return int(grammar.take_token().text)


def parse_describe(grammar: Grammar, common: dict[str, Any]) -> Statement:
    """DESCRIBE | DESC [TABLE | STREAM] [EXTENDED] name"""
    grammar.take_token()
    extended = grammar.sees("EXTENDED") and grammar.sees_name(ahead=1) and grammar.take("EXTENDED")
    return Describe(**common, name=grammar.name("a table's or stream's name"), extended=extended)


def parse_set(grammar: Grammar, common: dict[str, Any]) -> Statement:
    """SET name = value, the value quoted or bare"""
    grammar.expect("SET")
    start = grammar.position
    text = grammar.take_token().text if grammar.sees_kind(TokenType.STRING) else _setting_name(grammar)
    name = Name(text, grammar.place_since(start))
    if not grammar.take("="):
        grammar.refuse_unexpected("=", f"Write SET {name} = value.")
    return SetOption(**common, name=name, value=_setting_value(grammar))


def _setting_name(grammar: Grammar) -> str:
    """Words separated by dots; any keyword such as `on` is allowed, because nothing else can be here."""
    words = [_setting_word(grammar)]
    while grammar.take("."):
        words.append(_setting_word(grammar))
    return ".".join(words)


def _setting_word(grammar: Grammar) -> str:
    if grammar.at_end or not grammar.here.text[:1].isalpha():
        return grammar.name("a setting's name").text
    return grammar.take_token().text


def _setting_value(grammar: Grammar) -> str:
    if grammar.at_end:
        grammar.refuse_unexpected("a value")
    start = grammar.position
    first = grammar.take_token()
    if first.token_type in (TokenType.STRING, TokenType.IDENTIFIER, URI):
        return first.text
    while not grammar.at_end:
        if grammar.here.token_type in (TokenType.STRING, TokenType.IDENTIFIER, URI):
            grammar.refuse(f"Unexpected {grammar.shown_token(grammar.here)} after the value.", code="MP102")
        grammar.take_token()
    tokens = grammar.tokens_since(start)
    return grammar.source.code[tokens[0].start : tokens[-1].end + 1]
