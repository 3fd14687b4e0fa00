"""One-shot statements and their transactions; each is identified by its text, so that it runs once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from millpond.plan.context import Planned
from millpond.plan.model import OneShot, StepKind
from millpond.plan.source_catalog import short_hash
from millpond.plan.table_access import Ways, choose_access, without_hints
from millpond.sql.statements import (
    Begin,
    Commit,
    CreateIndex,
    Describe,
    Drop,
    Explain,
    Rollback,
    Select,
    Show,
    Statement,
)


@dataclass(frozen=True)
class Block:
    """One BEGIN with the statements up to its end; `end` is None if it is missing."""

    number: int
    begin: Begin
    statements: tuple[Statement, ...] = ()
    end: Commit | Rollback | None = None

    @property
    def undone(self) -> bool:
        return isinstance(self.end, Rollback)


def blocks_of(statements: tuple[Statement, ...]) -> tuple[Block, ...]:
    """The transactions of a file in order; a BEGIN inside another one belongs to the outer."""
    done: list[Block] = []
    current: Block | None = None
    for statement in statements:
        if isinstance(statement, Begin):
            current = current or Block(len(done) + 1, statement)
        elif isinstance(statement, Commit | Rollback):
            if current is not None:
                done.append(replace(current, end=statement))
            current = None
        elif current is not None:
            current = replace(current, statements=(*current.statements, statement))
    return (*done, current) if current is not None else tuple(done)


# Statements that neither read a stream nor change rows, but are run in order.
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
    """The one-shot statements in the order of the file; `transactions` has the number of the transaction of a
    statement's index, `created` the index of the CREATE of a name."""
    counts: Counter[str] = Counter()
    result = []
    for item in planned:
        if item.drivers or not (item.kind in INTO_ROWS or isinstance(item.statement, ASKING + CHANGING_TABLES)):
            continue
        counts[item.statement.text] += 1
        result.append(_one_shot(item, counts[item.statement.text], transactions.get(item.index), created))
    return tuple(result)


def one_shot_id(statement: Statement, occurrence: int) -> str:
    """The id of the n-th statement of the same text, which does not reveal the text."""
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
