"""MERGE INTO: a table changed row by row as another relation says."""

from __future__ import annotations

from typing import Any

from sqlglot import exp

from millpond.sql.grammar import Grammar
from millpond.sql.parse_changes import assignment, take_alias
from millpond.sql.statements import Assignment, Merge, Name, Statement, When, WhenClause
from millpond.sql.with_options import take_options

NEEDS_WHEN = "WHEN MATCHED THEN UPDATE SET ..., WHEN NOT MATCHED THEN INSERT (...) VALUES (...)."


def parse_merge(grammar: Grammar, common: dict[str, Any]) -> Statement:
    """MERGE INTO table [alias] USING relation ON condition WHEN ..."""
    grammar.expect("MERGE", "INTO")
    table = grammar.name("a table's name")
    alias = take_alias(grammar, before=("USING",))
    grammar.expect("USING")
    source = exp.Select(expressions=[exp.Star()], from_=exp.From(this=grammar.relation()))
    if not grammar.take("ON"):
        grammar.refuse_unexpected("ON", "USING takes one relation; put a join into brackets: USING (SELECT ...) AS q.")
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
            hint = "A row of the source that the table lacks can only be inserted."
            grammar.refuse_unexpected("INSERT", hint)
        return WhenClause(**made, **_insert(grammar))
    if grammar.take("DELETE"):
        return WhenClause(**made, deletes=True)
    if not grammar.take("UPDATE", "SET"):
        grammar.refuse_unexpected("UPDATE SET or DELETE", "Only WHEN NOT MATCHED can insert.")
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
