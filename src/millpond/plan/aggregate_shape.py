"""What an aggregate table keeps, spelled out, so that an edited one can be compared with the one that is there."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from sqlglot import exp

from millpond.plan.aggregate_model import AggregatePlan
from millpond.plan.model import Surroundings

_ARGUMENT = re.compile(r"`(x\d+)`")


@dataclass(frozen=True)
class AggregateShape:
    """`base` is all that must be the same for groups to stay what they are: the rows, groups, window and HAVING, and
    what is kept beyond running values. `outputs` has the user's columns, `accumulators` the companion's, by name."""

    base: str
    types: dict[str, str]
    outputs: dict[str, str]
    accumulators: dict[str, str]
    distincts: list[str]

    def as_json(self) -> dict[str, Any]:
        return dict(vars(self))

    def added(self, other: AggregateShape) -> tuple[str, ...]:
        """The columns that another one has and this one has not, or has otherwise."""
        return tuple(name for name, text in other.outputs.items() if self.outputs.get(name) != text)

    def may_become(self, other: AggregateShape) -> bool:
        """Whether groups of this one can go on as those of another."""
        same_types = all(other.types.get(name, type_) == type_ for name, type_ in self.types.items())
        return self.base == other.base and same_types and other.distincts[: len(self.distincts)] == self.distincts


def shape_of(plan: AggregatePlan, around: Surroundings) -> AggregateShape:
    """What an aggregate over some streams keeps."""
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
    """An output with what its columns stand for."""

    def placed(node: exp.Expr) -> exp.Expr:
        return exp.column(names.get(node.name, node.name), quoted=True) if isinstance(node, exp.Column) else node

    return expression.copy().transform(placed).sql("spark")
