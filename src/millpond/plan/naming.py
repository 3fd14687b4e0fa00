"""Equal output names: a mistake into tables and sinks, told apart in a bare SELECT."""

from __future__ import annotations

from dataclasses import replace

from sqlglot import exp

from millpond.plan.bound import BoundQuery, Output
from millpond.plan.findings import Findings
from millpond.plan.outputs import told_apart


def name_outputs(bound: BoundQuery, target: str, findings: Findings) -> BoundQuery:
    """The query with different output names; MP209 for each name that comes twice into a table or sink."""
    seen: set[str] = set()
    for output in bound.outputs or ():
        if output.name.lower() in seen and output.written:
            message = f"Two columns for {target} are named '{output.name}'."
            hint = f"Give one of them another name: {_shown(output)} AS other_name."
            findings.error("MP209", message, output.expr, hint)
        seen.add(output.name.lower())
    return rename_outputs(bound)


def counted(number: int, noun: str, verb: str = "") -> str:
    """`1 column`, `2 columns`; with the verb `is`, `1 value is`, `2 values are`."""
    words = f"{number} {noun}" if number == 1 else f"{number} {noun}s"
    return f"{words} {'is' if number == 1 else 'are'}" if verb else words


def _shown(output: Output) -> str:
    return f"{output.qualifier}.{output.name}" if output.qualifier and output.qualifier[0] != "_" else output.name


def rename_outputs(bound: BoundQuery) -> BoundQuery:
    """The query with equal output names told apart, as a bare SELECT wants it."""
    if bound.outputs is None:
        return bound
    outputs = told_apart(list(bound.outputs))
    first = _first_select(bound.query)
    if first is not None:
        for projection, output in zip(first.expressions, outputs, strict=True):
            projection.set("alias", exp.Identifier(this=output.name, quoted=True))
    return replace(bound, outputs=tuple(outputs))


def _first_select(query: exp.Expr) -> exp.Select | None:
    """The SELECT whose names a query yields: the leftmost of a UNION."""
    while not isinstance(query, exp.Select):
        if not isinstance(query, exp.Query) or not isinstance(query.this, exp.Expr):
            return None
        query = query.this
    return query
