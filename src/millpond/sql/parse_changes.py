"""Statements that change tables: INSERT, UPSERT, UPDATE, DELETE, MERGE and DROP."""

from __future__ import annotations

from typing import Any

from sqlglot import exp
from sqlglot.tokenizer_core import TokenType

from millpond.sql.grammar import Grammar
from millpond.sql.parse_target import sees_uri, take_source
from millpond.sql.statements import (
    Assignment,
    Conflict,
    Delete,
    Drop,
    Insert,
    Merge,
    Name,
    SourceRef,
    Statement,
    Update,
    Upsert,
    When,
    WhenClause,
)
from millpond.sql.with_options import take_options

DROPPABLE = ("TABLE", "STREAM", "VIEW", "INDEX")


def parse_insert(grammar: Grammar, common: dict[str, Any]) -> Statement:
    """INSERT INTO name | uri [(columns)] VALUES ... | query"""
    grammar.expect("INSERT")
    if grammar.sees("OVERWRITE"):
        hint = "Write INSERT INTO; DELETE FROM empties a table first."
        grammar.refuse("INSERT OVERWRITE is not supported.", hint=hint)
    grammar.expect("INTO")
    target = take_source(grammar, "a URI") if sees_uri(grammar) else _table(grammar)
    content = _content(grammar)
    conflict = _conflict(grammar, target)
    return Insert(**common, target=target, **content, conflict=conflict, options=take_options(grammar))


def _conflict(grammar: Grammar, target: Name | SourceRef) -> Conflict | None:
    """ON CONFLICT (columns) DO UPDATE SET ... [WHERE condition] | DO NOTHING"""
    start = grammar.position
    if not grammar.take("ON", "CONFLICT"):
        return None
    place = grammar.place_since(start)
    if isinstance(target, SourceRef):
        message = "ON CONFLICT is only for tables: a sink has no rows to compare with."
        grammar.refuse(message, token=grammar.before, code="MP215", hint="Leave it out, or insert into a table.")
    columns = grammar.names("a column's name") if grammar.sees("(") else ()
    grammar.expect("DO")
    if grammar.take("NOTHING"):
        return Conflict(columns, (), None, place)
    if not grammar.take("UPDATE", "SET"):
        grammar.refuse_unexpected("UPDATE SET or NOTHING", "DO UPDATE SET n = excluded.n, or DO NOTHING.")
    assignments = grammar.listed(lambda: assignment(grammar, target, None))
    return Conflict(columns, assignments, where_clause(grammar), place)


def parse_upsert(grammar: Grammar, common: dict[str, Any]) -> Statement:
    """UPSERT INTO table [(columns)] VALUES ... | query [ON condition]"""
    grammar.expect("UPSERT", "INTO")
    if sees_uri(grammar):
        grammar.refuse("UPSERT changes a table, not a sink.", hint="Write INSERT INTO for a sink.")
    target = _table(grammar)
    content = _content(grammar)
    if grammar.sees("ON", "CONFLICT"):
        grammar.refuse(
            "ON CONFLICT is not allowed in UPSERT, which always replaces the row.",
            hint="Write INSERT INTO ... ON CONFLICT ...",
        )
    on = grammar.condition() if grammar.take("ON") else None
    return Upsert(**common, target=target, **content, on=on, options=take_options(grammar))


def parse_update(grammar: Grammar, common: dict[str, Any]) -> Statement:
    """UPDATE table [alias] SET column = value, ... [FROM source] [WHERE condition]"""
    grammar.expect("UPDATE")
    table = grammar.name("a table's name")
    alias = take_alias(grammar, before=("SET",))
    grammar.expect("SET")
    assignments = grammar.listed(lambda: assignment(grammar, table, alias))
    source = _relations(grammar) if grammar.take("FROM") else None
    return Update(
        **common, table=table, alias=alias, assignments=assignments, source=source, where=where_clause(grammar),
        options=take_options(grammar),
    )  # fmt: skip


def parse_delete(grammar: Grammar, common: dict[str, Any]) -> Statement:
    """DELETE FROM table [alias] [USING | FROM source] [WHERE condition]"""
    grammar.expect("DELETE", "FROM")
    table = grammar.name("a table's name")
    alias = take_alias(grammar, before=("USING", "FROM", "WHERE", "WITH"))
    source = _relations(grammar) if grammar.take("USING") or grammar.take("FROM") else None
    return Delete(
        **common, table=table, alias=alias, source=source, where=where_clause(grammar), options=take_options(grammar)
    )


def parse_drop(grammar: Grammar, common: dict[str, Any]) -> Statement:
    """DROP TABLE | STREAM | VIEW | INDEX [IF EXISTS] name"""
    grammar.expect("DROP")
    if not any(grammar.sees(word) for word in DROPPABLE):
        grammar.refuse_unexpected("TABLE, STREAM, VIEW or INDEX")
    kind = grammar.take_token().text.upper()
    exists = grammar.take("IF", "EXISTS")
    return Drop(**common, kind=kind, name=grammar.name(f"the name of a {kind.lower()}"), if_exists=exists)


def _table(grammar: Grammar) -> Name:
    if grammar.sees("TABLE") and grammar.sees_name(ahead=1):
        grammar.expect("TABLE")
    return grammar.name("a table's name or a URI")


def _content(grammar: Grammar) -> dict[str, Any]:
    """The columns, and either rows or a query."""
    columns = None
    if grammar.sees("(") and not _starts_query(grammar, ahead=1):
        columns = grammar.names("a column's name")
    if grammar.take("VALUES"):
        return {"columns": columns, "rows": grammar.listed(lambda: _row(grammar))}
    if not _starts_query(grammar):
        grammar.refuse_unexpected("VALUES or SELECT")
    return {"columns": columns, "query": grammar.query()}


def _starts_query(grammar: Grammar, ahead: int = 0) -> bool:
    kinds = (TokenType.SELECT, TokenType.WITH, TokenType.L_PAREN, TokenType.FROM, TokenType.VALUES, TokenType.TABLE)
    return any(grammar.sees_kind(kind, ahead) for kind in kinds)


def _row(grammar: Grammar) -> tuple[exp.Expression, ...]:
    if not grammar.sees("("):
        return (grammar.value(),)
    return grammar.in_brackets(grammar.value)


def take_alias(grammar: Grammar, before: tuple[str, ...]) -> Name | None:
    """[AS] alias, unless one of the words of `before` comes next."""
    if grammar.take("AS"):
        return grammar.name("an alias")
    if grammar.at_end or any(grammar.sees(word) for word in before) or not grammar.sees_name():
        return None
    return grammar.name("an alias")


def assignment(grammar: Grammar, table: Name, alias: Name | None) -> Assignment:
    """column = value"""
    token = grammar.here
    column = grammar.name("a column's name")
    if grammar.take("."):
        owners = {name.key for name in (table, alias) if name}
        if column.key not in owners:
            grammar.refuse(f"Only columns of '{table}' can be set here.", token=token, code="MP202")
        column = grammar.name("a column's name")
    grammar.expect("=")
    return Assignment(column, grammar.value())


def _relations(grammar: Grammar) -> exp.Select:
    """What follows FROM, as SELECT * FROM it."""
    found = grammar.relations()
    return exp.Select(expressions=[exp.Star()], **found)


def where_clause(grammar: Grammar) -> exp.Expression | None:
    """[WHERE condition]"""
    return grammar.condition() if grammar.take("WHERE") else None


NEEDS_WHEN = "WHEN MATCHED THEN UPDATE SET ..., WHEN NOT MATCHED THEN INSERT (...) VALUES (...)."


def parse_merge(grammar: Grammar, common: dict[str, Any]) -> Statement:
    """MERGE INTO table [alias] USING relation ON condition WHEN ..."""
    grammar.expect("MERGE", "INTO")
    table = grammar.name("a table's name")
    alias = take_alias(grammar, before=("USING",))
    grammar.expect("USING")
    source = exp.Select(expressions=[exp.Star()], from_=exp.From(this=grammar.relation()))
    if not grammar.take("ON"):
        grammar.refuse_unexpected(
            "ON", "USING accepts one relation; write a join as a query in brackets: USING (SELECT ...) AS q."
        )
    on = grammar.condition()
    clauses: list[WhenClause] = []
    while grammar.sees("WHEN"):
        clauses.append(_clause(grammar, table, alias))
    if not clauses:
        grammar.refuse_unexpected("WHEN", NEEDS_WHEN)
    return Merge(
        **common, table=table, alias=alias, source=source, on=on, clauses=tuple(clauses), options=take_options(grammar)
    )


def _clause(grammar: Grammar, table: Name, alias: Name | None) -> WhenClause:
    start = grammar.position
    when = _when(grammar)
    made: dict[str, Any] = {"when": when, "place": grammar.place_since(start)}
    made["condition"] = grammar.condition() if grammar.take("AND") else None
    grammar.expect("THEN")
    if when is When.NOT_MATCHED:
        if not grammar.take("INSERT"):
            hint = "A source row without a matching row in the table can only be inserted."
            grammar.refuse_unexpected("INSERT", hint)
        return WhenClause(**made, **_insert(grammar))
    if grammar.take("DELETE"):
        return WhenClause(**made, deletes=True)
    if not grammar.take("UPDATE", "SET"):
        grammar.refuse_unexpected("UPDATE SET or DELETE", "Only WHEN NOT MATCHED can have INSERT.")
    return WhenClause(**made, **_update(grammar, table, alias))


def _when(grammar: Grammar) -> When:
    grammar.expect("WHEN")
    if grammar.take("MATCHED"):
        return When.MATCHED
    if not grammar.take("NOT", "MATCHED"):
        grammar.refuse_unexpected("MATCHED or NOT MATCHED")
    if grammar.take("BY", "SOURCE"):
        return When.BY_SOURCE
    grammar.take("BY", "TARGET")
    return When.NOT_MATCHED


def _update(grammar: Grammar, table: Name, alias: Name | None) -> dict[str, Any]:
    if grammar.sees("*"):
        return {"star": _star(grammar)}
    found: tuple[Assignment, ...] = grammar.listed(lambda: assignment(grammar, table, alias))
    return {"assignments": found}


def _insert(grammar: Grammar) -> dict[str, Any]:
    if grammar.sees("*"):
        return {"star": _star(grammar)}
    columns = grammar.names("a column's name") if grammar.sees("(") else None
    grammar.expect("VALUES")
    return {"columns": columns, "values": grammar.in_brackets(grammar.value)}


def _star(grammar: Grammar) -> exp.Star:
    return exp.Star().update_positions(grammar.take_token())
