"""What a statement over a stream means: whether rows that it has gathered still fit it after an edit of the file."""

from __future__ import annotations

import re

from sqlglot import exp

from millpond.plan.bound import BoundQuery
from millpond.plan.context import Context
from millpond.plan.sources import short_hash
from millpond.sql.statements import CreateStream, Statement

HINT = re.compile(r"/\*\+.*?\*/ ?", re.DOTALL)


def meaning(statement: Statement, query: exp.Query, bound: BoundQuery, context: Context) -> str:
    """Differs when the statement's text does, a stream that it is derived from, the source it reads, or the type of a
    declared column. Columns that were found do not count: they may be unknown at the start."""
    streams = sorted(_derived(query, context, {}).values())
    types = [f"{d}.{t}" for d in context.behind(bound.drivers) for t in _declared_types(d, bound.query, context)]
    return short_hash(repr((plain_text(statement), streams, bound.drivers, types)))


def plain_text(statement: Statement) -> str:
    """A statement's text without its hints, which say how it runs and not what comes out."""
    return HINT.sub("", statement.text)


def _derived(query: exp.Query, context: Context, found: dict[str, str]) -> dict[str, str]:
    """The texts of the derived streams that a query reads, directly or through others; they may wrongly form a ring."""
    for table in query.find_all(exp.Table):
        declared = context.catalog.declaration(table.name)
        if isinstance(declared, CreateStream) and declared.query is not None and declared.name.key not in found:
            found[declared.name.key] = declared.text
            _derived(declared.query, context, found)
    return found


def _declared_types(driver: str, query: exp.Query, context: Context) -> list[str]:
    source = context.sources[driver].plan if driver in context.sources else None
    if source is None or not source.declared or source.columns is None:
        return []
    named = {column.name.lower() for column in query.find_all(exp.Column)}
    return [f"{c.name.lower()} {c.type}" for c in source.columns if c.name.lower() in named]
