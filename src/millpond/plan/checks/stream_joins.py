"""Check: joins of two streams have a time bound; warns about joins that emit a table's rows in every batch."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
from sqlglot import exp

from millpond.errors import Problem
from millpond.plan.bound import BoundSelect, Item
from millpond.plan.checks.subject import Subject
from millpond.plan.checks.table_changes import CHANGES
from millpond.plan.columns import sentence
from millpond.plan.expression_types import type_of
from millpond.plan.from_clause import ONE_SIDED

BOUNDS = (exp.Between, exp.GT, exp.GTE, exp.LT, exp.LTE)


def check(subject: Subject) -> Iterator[Problem]:
    for _, select in subject.selects():
        if not select.streams:
            continue
        for join in select.node.args.get("joins") or ():
            right = next((i for i in select.scope.items if i.node is join.this), None)
            if right is None:
                continue
            left = select.scope.items[: _position(select, right)]
            streams = [i for i in left if i.drivers]
            if (
                right.drivers
                and streams
                and not any(d.startswith(CHANGES) for i in (*streams, right) for d in i.drivers)
            ):
                yield from _two_streams(subject, select, join, streams, right)
            elif bool(right.drivers) != bool(streams):
                yield from _keeps_table(subject, join, left, right)


def _position(select: BoundSelect, item: Item) -> int:
    return next(n for n, i in enumerate(select.scope.items) if i is item)


def _side(join: exp.Join) -> str:
    return str(join.args.get("side") or "").upper()


def _two_streams(
    subject: Subject, select: BoundSelect, join: exp.Join, before: list[Item], right: Item
) -> Iterator[Problem]:
    side, left = _side(join), before[0]
    if side in ("RIGHT", "FULL"):
        message = f"{side} JOIN of two streams is not supported, because a missing match may still arrive."
        yield subject.problem("MP218", message, right.at, "Use JOIN, or LEFT JOIN with a time bound.")
        return
    if not _is_tied(select, join, right):
        message = f"{sentence(left.label)} joins {right.label} without an equality, which Spark does not support."
        yield subject.problem("MP218", message, right.at, f"Add a condition such as {left.alias}.k = {right.alias}.k.")
        return
    if _is_bounded(select, join, before, right):
        return
    message = f"{sentence(left.label)} joins {right.label} without a time bound."
    a, b = _time(left), _time(right)
    hint = f"Add AND {b} BETWEEN {a} - INTERVAL 10 SECONDS AND {a}"
    kind = str(join.args.get("kind") or "").upper()
    if side == "LEFT" or kind in ONE_SIDED:
        message += _waiting(kind)
        yield subject.problem("MP203", message, right.at, hint)
    else:
        message += " All events of both streams would have to be stored."
        yield subject.warning("MP203", message, right.at, hint)


def _waiting(kind: str) -> str:
    if kind == "SEMI":
        return " The events of EXISTS or a SEMI JOIN would have to be stored forever."
    return f" {'NOT EXISTS or an ANTI' if kind == 'ANTI' else 'A LEFT'} JOIN would wait forever."


def _is_tied(select: BoundSelect, join: exp.Join, right: Item) -> bool:
    """Whether ON or WHERE has an equality between the right stream and those before it."""
    for clause in (join.args.get("on"), select.node.args.get("where")):
        for node in clause.find_all(exp.EQ) if clause is not None else ():
            sides = [{c.table for c in side.find_all(exp.Column)} for side in (node.this, node.expression)]
            if any(one == {right.alias} and two and right.alias not in two for one, two in (sides, sides[::-1])):
                return True
    return any(i.loose for i in select.scope.items) or bool(join.args.get("using"))


def _time(item: Item) -> str:
    """The column of an item's time, as the user would write it."""
    times = [c.name for c in item.columns or () if c.type is not None and pa.types.is_timestamp(c.type)]
    name = item.watermark.column.text if item.watermark is not None else (times[0] if times else "ts")
    return name if item.alias.startswith("_") else f"{item.alias}.{name}"


def _is_bounded(select: BoundSelect, join: exp.Join, before: list[Item], right: Item) -> bool:
    """Whether ON or WHERE compares a time of one side with a time of the other by <, <=, >, >= or BETWEEN."""
    where = select.node.args.get("where")
    for clause in (join.args.get("on"), where):
        for node in clause.find_all(*BOUNDS) if clause is not None else ():
            columns = list(node.find_all(exp.Column))
            sides = {c.table for c in columns if _is_time(c)}
            if right.alias in sides and any(i.alias in sides for i in before):
                return True
    return False


def _is_time(column: exp.Column) -> bool:
    found = type_of(column)
    return found is None or pa.types.is_temporal(found)


def _keeps_table(subject: Subject, join: exp.Join, left: list[Item], right: Item) -> Iterator[Problem]:
    """Warn about a join that keeps the unmatched rows of a table."""
    side = _side(join)
    kept: Item | None = None
    if side in ("RIGHT", "FULL") and not right.drivers:
        kept = right
    elif side in ("LEFT", "FULL") and right.drivers and left:
        kept = left[0]
    if kept is None or str(join.args.get("kind") or "").upper() in ("SEMI", "ANTI"):
        return
    message = f"This {side} JOIN emits the unmatched rows of {kept.label} in every batch."
    yield subject.warning("MP216", message, right.at, "Use JOIN or LEFT JOIN from the stream if this is not intended.")
