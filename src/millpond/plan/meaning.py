"""What a statement over a stream means: whether rows that it has gathered still fit it after an edit of the file."""

from __future__ import annotations

import re
from functools import cache

from sqlglot import exp

from millpond import registry
from millpond.plan.bound import BoundQuery
from millpond.plan.context import Context
from millpond.plan.model import Surroundings
from millpond.plan.ownership import TABLE_OPTIONS
from millpond.plan.sources import short_hash
from millpond.sql.statements import CreateStream, CreateView, Statement

ALIASES = {"extension": "backend"}
DEFAULTS = {o.name: o.default for o in TABLE_OPTIONS}
HINT = re.compile(r"/\*\+.*?\*/ ?", re.DOTALL)


def meaning(statement: Statement, query: exp.Query, bound: BoundQuery, context: Context) -> str:
    """Differs when the statement's text does (see `plain_text`), a stream that it is derived from, the source it reads,
    or the type of a declared column. Columns that were found do not count: they may be unknown at the start."""
    around = surroundings(query, bound, context)
    return short_hash(repr((plain_text(statement), around.streams, sorted(around.types.items()))))


def surroundings(query: exp.Query, bound: BoundQuery, context: Context) -> Surroundings:
    """What a statement's meaning hangs on beside its own text."""
    streams = sorted(_derived(query, context, {}).values())
    types = {
        f"{driver}.{name}": type_
        for driver in context.behind(bound.drivers)
        for name, type_ in _declared_types(driver, bound.query, context)
    }
    return Surroundings(short_hash(repr((streams, bound.drivers))), types)


def plain_text(statement: Statement) -> str:
    """A statement's text without what says how it runs and not what comes out: hints, and options that are not
    declared as part of a definition. What a source is read as is part of the source's id."""
    given = {ALIASES.get(name, name): value for name, value in statement.given if name in _defining()}
    other = sorted((name, value) for name, value in given.items() if DEFAULTS.get(name) != value.lower())
    return HINT.sub("", statement.core) + (repr(other) if other else "")


@cache
def _defining() -> frozenset[str]:
    """The options that are part of a table's definition: with another value it is another table."""
    backends = [registry.find("backend", name).options for name in registry.names("backend")]
    return frozenset(o.name for options in (TABLE_OPTIONS, *backends) for o in options if o.defines)


def _derived(query: exp.Query, context: Context, found: dict[str, str]) -> dict[str, str]:
    """The texts of the derived streams that a query reads, directly or through others; they may wrongly form a ring."""
    for table in query.find_all(exp.Table):
        declared = context.catalog.declaration(table.name)
        derived = isinstance(declared, CreateView) or (
            isinstance(declared, CreateStream) and declared.query is not None
        )
        if declared is not None and derived and declared.query is not None and declared.name.key not in found:
            found[declared.name.key] = plain_text(declared)
            _derived(declared.query, context, found)
    return found


def _declared_types(driver: str, query: exp.Query, context: Context) -> list[tuple[str, str]]:
    source = context.sources[driver].plan if driver in context.sources else None
    if source is None or not source.declared or source.columns is None:
        return []
    named = {column.name.lower() for column in query.find_all(exp.Column)}
    return [(c.name.lower(), str(c.type)) for c in source.columns if c.name.lower() in named]
