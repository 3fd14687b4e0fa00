"""ROLLUP, CUBE and GROUPING SETS over a stream: the groups of each set, and GROUPING as an expression over them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa
from sqlglot import exp

from millpond.expressions.failures import NotCompilable
from millpond.plan.aggregate_model import SET
from millpond.plan.expression_types import with_type
from millpond.relational.group_by import SETS, keys_of
from millpond.sql import nodes


@dataclass(frozen=True)
class GroupingSets:
    """The distinct groups, and for each set the positions of its groups among them."""

    keys: tuple[exp.Expr, ...]
    sets: tuple[tuple[int, ...], ...]


def has_sets(select: exp.Select) -> bool:
    """Whether GROUP BY has grouping sets."""
    group = select.args.get("group")
    return group is not None and group.find(*SETS) is not None


def grouping_sets(select: exp.Select) -> GroupingSets | None:
    """The grouping sets of GROUP BY beside its window; None for a form that is not supported."""
    group = select.args["group"]
    plain = group.copy()
    plain.set("expressions", [e.copy() for e in group.expressions if not isinstance(e, nodes.Window)])
    is_windowed = len(plain.expressions) < len(group.expressions)
    if plain.find(nodes.Window) is not None or (is_windowed and (group.args.get("rollup") or group.args.get("cube"))):
        return None
    try:
        keys, sets = keys_of(plain)
    except NotCompilable:
        return None
    return GroupingSets(tuple(keys), sets) if sets is not None else None


def membership(node: exp.Expr, by: Mapping[str, exp.Expr], sets: Sequence[tuple[str, ...]]) -> exp.Expr:
    """GROUPING or GROUPING_ID over the number of the row's grouping set: a bit is 1 for a group that is not in it."""
    names = [name for key in node.expressions for name, group in by.items() if group == key] or list(by)
    values = [sum(1 << n for n, name in enumerate(reversed(names)) if name not in set_) for set_ in sets]
    ifs = [
        exp.If(this=exp.Literal.number(n), true=exp.Literal.number(value)) for n, value in enumerate(values) if value
    ]
    number: exp.Expr = exp.Literal.number(0)
    if ifs:
        number = exp.Case(this=exp.column(SET, quoted=True), ifs=ifs, default=exp.Literal.number(0))
    type_ = pa.int8() if isinstance(node, exp.Grouping) else pa.int64()
    return with_type(exp.cast(number, "TINYINT" if type_ == pa.int8() else "BIGINT"), type_)
