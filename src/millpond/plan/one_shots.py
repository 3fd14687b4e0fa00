"""One-shot statements: those without a stream, each named by its text so that it runs once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping

from millpond.plan.access import choose_access
from millpond.plan.context import Context, Planned
from millpond.plan.model import OneShot, StepKind
from millpond.plan.sources import short_hash
from millpond.sql.statements import CreateIndex, Drop, Select, Statement

SEEN = (Drop, CreateIndex)


def make_one_shots(
    planned: Iterable[Planned], transactions: Mapping[int, int], created: Mapping[str, int], context: Context
) -> tuple[OneShot, ...]:
    """In the order of the file; `transactions` numbers the BEGIN ... COMMIT of a statement's index."""
    counts: Counter[str] = Counter()
    result = []
    for item in sorted(planned, key=lambda p: p.index):
        if item.drivers or not (item.kind is not None or isinstance(item.statement, SEEN)):
            continue
        if item.kind in (StepKind.AGGREGATE, StepKind.APPEND):
            continue
        counts[item.statement.text] += 1
        result.append(_one_shot(item, counts[item.statement.text], transactions.get(item.index), created, context))
    return tuple(result)


def one_shot_id(statement: Statement, occurrence: int) -> str:
    """The n-th statement of the same text, without showing the text."""
    return f"{short_hash(statement.text)}-{occurrence}"


def _one_shot(
    item: Planned, occurrence: int, transaction: int | None, created: Mapping[str, int], context: Context
) -> OneShot:
    is_query = isinstance(item.statement, Select)
    into_sink = item.kind is StepKind.SINK and item.bound is not None
    drop = item.statement if isinstance(item.statement, Drop) else None
    return OneShot(
        one_shot_id(item.statement, occurrence),
        item.statement,
        item.statement.place,
        transaction,
        into_sink,
        is_query,
        item.bound.query if item.bound else None,
        choose_access(item.bound) if item.bound else (),
        item.target if item.kind is StepKind.SINK else None,
        drop is not None and created.get(drop.name.key, -1) > item.index,
        item.columns,
        item.rows,
        item.assignments,
        item.condition,
    )
