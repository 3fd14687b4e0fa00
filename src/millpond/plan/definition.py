"""The meaning of a statement and the shape of an aggregate table, to compare an edited file with the stored state."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache
from typing import Any

from sqlglot import exp

from millpond import registry
from millpond.plan.aggregate_model import AggregatePlan
from millpond.plan.bound import BoundQuery
from millpond.plan.context import Context
from millpond.plan.model import Surroundings
from millpond.plan.option_owners import TABLE_OPTIONS
from millpond.plan.source_catalog import short_hash
from millpond.sql.statements import CreateStream, CreateView, Statement

_ARGUMENT = re.compile(r"`(x\d+)`")


@dataclass(frozen=True)
class AggregateShape:
    """`base` is everything that must stay the same for stored groups to remain valid: rows, groups, window, HAVING, and
    state other than running values. `outputs` has the user's columns, `accumulators` those of the companion, by
    name."""

    base: str
    types: dict[str, str]
    outputs: dict[str, str]
    accumulators: dict[str, str]
    distincts: list[str]

    def as_json(self) -> dict[str, Any]:
        return dict(vars(self))

    def added(self, other: AggregateShape) -> tuple[str, ...]:
        """The columns of another shape that this one does not have, or has with another definition."""
        return tuple(name for name, text in other.outputs.items() if self.outputs.get(name) != text)

    def may_become(self, other: AggregateShape) -> bool:
        """Whether stored groups of this shape can be used for another one."""
        same_types = all(other.types.get(name, type_) == type_ for name, type_ in self.types.items())
        return self.base == other.base and same_types and other.distincts[: len(self.distincts)] == self.distincts


def shape_of(plan: AggregatePlan, around: Surroundings) -> AggregateShape:
    """The shape of an aggregate over streams."""
    texts = {item.alias_or_name: item.unalias().sql("spark") for item in plan.rows.expressions}
    base = plan.rows.copy()
    base.set("expressions", [item for item in base.expressions if not item.alias_or_name.startswith("x")])
    accumulators = {a.name: f"{_spelled(a.partial, texts)} {a.merge}" for a in plan.accumulators}
    distincts = {
        d.accumulator: f"distinct {[texts[x] for x in d.arguments]} where {texts.get(d.where or '')}"
        for d in plan.distincts
    }
    accumulators |= distincts
    names = texts | {f.name: f"{f.how} {[accumulators[a] for a in f.accumulators]}" for f in plan.finals}
    kept = [] if plan.kept is None else [(_spelled(text, texts)) for _, text, _ in plan.kept.finals]
    names |= {} if plan.kept is None else {n: t for (n, _, _), t in zip(plan.kept.finals, kept, strict=True)}
    arguments = [] if plan.kept is None else [texts[x] for x in plan.kept.arguments]
    having = plan.having and _named(plan.having, names)
    parts = (around.streams, base.sql("spark"), plan.groups, plan.window, plan.first_only, having, kept, arguments)
    outputs = {name: _named(expression, names) for name, expression in plan.outputs}
    return AggregateShape(repr(parts), dict(around.types), outputs, accumulators, list(distincts.values()))


def _spelled(partial: str, texts: dict[str, str]) -> str:
    return _ARGUMENT.sub(lambda found: f"({texts[found.group(1)]})", partial)


def _named(expression: exp.Expr, names: dict[str, str]) -> str:
    """An output with the definitions of its columns substituted."""

    def placed(node: exp.Expr) -> exp.Expr:
        return exp.column(names.get(node.name, node.name), quoted=True) if isinstance(node, exp.Column) else node

    return expression.copy().transform(placed).sql("spark")


ALIASES = {"extension": "backend"}
DEFAULTS = {o.name: o.default for o in TABLE_OPTIONS}
HINT = re.compile(r"/\*\+.*?\*/ ?", re.DOTALL)


def meaning(statement: Statement, query: exp.Query, bound: BoundQuery, context: Context) -> str:
    """A hash that changes with the statement's text (see `plain_text`), a derived stream that it reads, its source, or
    the type of a declared column. Discovered columns do not count, because they may be unknown at the start."""
    around = surroundings(query, bound, context)
    return short_hash(repr((plain_text(statement), around.streams, sorted(around.types.items()))))


def surroundings(query: exp.Query, bound: BoundQuery, context: Context) -> Surroundings:
    """What a statement's meaning depends on besides its own text."""
    streams = sorted(_derived(query, context, {}).values())
    types = {
        f"{driver}.{name}": type_
        for driver in context.behind(bound.drivers)
        for name, type_ in _declared_types(driver, bound.query, context)
    }
    return Surroundings(short_hash(repr((streams, bound.drivers))), types)


def plain_text(statement: Statement) -> str:
    """A statement's text without what does not affect its result: hints, and options that are not part of a definition.
    The options of a source are part of the source's id."""
    given = {ALIASES.get(name, name): value for name, value in statement.given if name in _defining()}
    other = sorted((name, value) for name, value in given.items() if DEFAULTS.get(name) != value.lower())
    return HINT.sub("", statement.core) + (repr(other) if other else "")


@cache
def _defining() -> frozenset[str]:
    """The options that are part of a table's definition: another value makes it another table."""
    backends = [registry.find("backend", name).options for name in registry.names("backend")]
    return frozenset(o.name for options in (TABLE_OPTIONS, *backends) for o in options if o.defines)


def _derived(query: exp.Query, context: Context, found: dict[str, str]) -> dict[str, str]:
    """The texts of the derived streams that a query reads, directly or indirectly; an invalid file may have a cycle."""
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
