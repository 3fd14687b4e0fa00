"""UNION ALL of several streams: one statement for each stream, because each drives a flow of its own."""

from __future__ import annotations

from dataclasses import replace

from sqlglot import exp

from millpond.plan.context import Context, Planned
from millpond.plan.model import StepKind
from millpond.sql import nodes
from millpond.sql.statements import Insert, Name, Select, Statement, Upsert


def statements_of(statement: Statement, context: Context) -> tuple[Statement, ...]:
    """The statement itself, or for UNION ALL of different streams one statement for each side."""
    if not isinstance(statement, Insert | Upsert | Select) or statement.query is None:
        return (statement,)
    sides = _sides(statement.query)
    drivers = [_streams(side, context) for side in sides]
    if len(sides) < 2 or not all(drivers) or len(set(drivers)) < 2:
        return (statement,)
    parts: list[Statement] = []
    for streams in dict.fromkeys(drivers):
        own = [side.copy() for side, of in zip(sides, drivers, strict=True) if of == streams]
        query = own[0]
        for other in own[1:]:
            query = exp.Union(this=query, expression=other, distinct=False)
        with_ = statement.query.args.get("with_")
        if with_ is not None:
            query.set("with_", with_.copy())
        parts.append(replace(statement, query=query))
    context.positions = {**context.positions, **{id(part): context.index(statement) for part in parts}}
    return tuple(parts)


def _sides(query: exp.Expr) -> list[exp.Query]:
    """The sides of UNION ALL; none if it has clauses of its own, which are for all of its rows."""
    if isinstance(query, exp.Subquery) and not query.alias and len([v for v in query.args.values() if v]) == 1:
        query = query.this
    if isinstance(query, exp.Select):
        return [query]
    clauses = ("order", "limit", "offset")
    if not isinstance(query, exp.Union) or query.args.get("distinct") or any(query.args.get(c) for c in clauses):
        return []
    left, right = _sides(query.this), _sides(query.expression)
    return [*left, *right] if left and right else []


def _streams(side: exp.Expr, context: Context) -> tuple[str, ...]:
    """The streams that one side reads: by their sources, or the URIs in its FROM."""
    found: set[str] = set()
    for table in side.find_all(exp.Table):
        relation = context.catalog.find(table.name) if isinstance(table.this, exp.Identifier) else None
        if relation is not None and relation.is_stream:
            found.update(relation.drivers)
        elif isinstance(table.this, nodes.Uri) and isinstance(table.parent, exp.From):
            found.add(table.this.text_)
    return tuple(sorted(found))


def named_like(statement: Statement, first: Planned | None) -> Statement:
    """A later side of UNION ALL into a sink, with the names of the columns of the first one."""
    bound = first.bound if first is not None and first.kind is StepKind.SINK else None
    if bound is None or bound.outputs is None or not isinstance(statement, Insert) or statement.columns is not None:
        return statement
    return replace(statement, columns=tuple(Name(output.name, statement.place) for output in bound.outputs))
