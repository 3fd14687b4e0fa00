"""One-shot statements: those without a stream, each named by its text so that it runs once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping

from millpond.plan.access import Ways, choose_access, without_hints
from millpond.plan.context import Planned
from millpond.plan.model import OneShot, StepKind
from millpond.plan.sources import short_hash
from millpond.sql.statements import CreateIndex, Describe, Drop, Explain, Select, Show, Statement

# Statements that neither read a stream nor change rows, but do something at their turn.
ASKING = (Show, Describe, Explain)
CHANGING_TABLES = (Drop, CreateIndex)
INTO_ROWS = (
    StepKind.INSERT,
    StepKind.UPSERT,
    StepKind.UPDATE,
    StepKind.DELETE,
    StepKind.MERGE,
    StepKind.SINK,
)


def make_one_shots(
    planned: Iterable[Planned], transactions: Mapping[int, int], created: Mapping[str, int]
) -> tuple[OneShot, ...]:
    """In the order of the file; `transactions` numbers the BEGIN ... COMMIT around a statement's index, `created` has
    the index of the CREATE of a name."""
    counts: Counter[str] = Counter()
    result = []
    for item in planned:
        if item.drivers or not (item.kind in INTO_ROWS or isinstance(item.statement, ASKING + CHANGING_TABLES)):
            continue
        counts[item.statement.text] += 1
        result.append(_one_shot(item, counts[item.statement.text], transactions.get(item.index), created))
    return tuple(result)


def one_shot_id(statement: Statement, occurrence: int) -> str:
    """The n-th statement of the same text, without showing the text."""
    return f"{short_hash(statement.text)}-{occurrence}"


def _one_shot(item: Planned, occurrence: int, transaction: int | None, created: Mapping[str, int]) -> OneShot:
    statement = item.statement
    asking = isinstance(statement, ASKING)
    into_sink = item.kind is StepKind.SINK or asking
    return OneShot(
        one_shot_id(statement, occurrence),
        statement,
        statement.place,
        transaction,
        into_sink,
        asking or isinstance(statement, Select),
        without_hints(item.bound.query) if item.bound else None,
        choose_access(item.bound, Ways()) if item.bound else (),
        item.target if into_sink else None,
        isinstance(statement, Drop) and created.get(statement.name.key, -1) > item.index,
        item.columns,
        item.rows,
        item.assignments,
        item.condition,
        item.branches,
        item.conflict,
        item.explained,
    )
