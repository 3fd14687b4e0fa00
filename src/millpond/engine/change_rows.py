"""Applies captured changes to a table: of each key the last change counts, in a transaction of ours."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from millpond.contracts.changes import Changes, Operation
from millpond.contracts.source import BAD, RAW
from millpond.contracts.table import WriteTable
from millpond.engine.dead_letters import Letters
from millpond.engine.feeds.records import Shape
from millpond.engine.row_sets import conform
from millpond.engine.work import Work
from millpond.plan.model import SourcePlan, TablePlan
from millpond.plan.plain_queries import plain_columns
from millpond.schema import fitted
from millpond.tables.hashing import equal_rows
from millpond.tables.lookup_keys import Keys, group_numbers, last_of_each

Mask = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class _Part:
    """Changes in the columns of the table: `rows` after the change, `before` the old keys where the key was changed,
    `deleted` which rows were deleted, `kept` which values were not sent, by column."""

    rows: pa.Table
    deleted: Mask
    moved: npt.NDArray[np.int64]
    before: pa.Table
    kept: dict[str, Mask]

    def slice(self, first: int, behind: int) -> _Part:
        inside = (self.moved >= first) & (self.moved < behind)
        return _Part(
            self.rows.slice(first, behind - first),
            self.deleted[first:behind],
            self.moved[inside] - first,
            self.before.filter(pa.array(inside)),
            {name: mask[first:behind] for name, mask in self.kept.items()},
        )


class ChangedTable:
    """One captured table, within a transaction."""

    def __init__(self, work: Work, plan: TablePlan, source: SourcePlan, letters: Letters) -> None:
        assert plan.query is not None
        self._work, self._source, self._letters = work, source, letters
        self._columns = plain_columns(plan.query)
        self._table: WriteTable = work.table(plan.name)
        self._key = [self._table.schema[name].name for name in self._table.schema.key]
        self._shape = Shape.of(source.spec, source.hidden)

    def truncate(self) -> int:
        """Remove all rows."""
        return self._table.delete("true")

    def apply(self, changes: Changes) -> int:
        """Apply changes; returns the number of rows that they affect."""
        changes = self._without_bad(changes)
        if not changes.rows.num_rows:
            return 0
        part = self._part(changes)
        return sum(self._apply(segment) for segment in _segments(part, self._key))

    def _without_bad(self, changes: Changes) -> Changes:
        if BAD not in changes.rows.schema.names:
            return changes
        is_bad = pc.is_valid(changes.rows.column(BAD))
        if not pc.any(is_bad).as_py():
            return changes
        bad = pa.Table.from_batches([changes.rows.filter(is_bad)])
        raw = bad[RAW].to_pylist() if RAW in bad.column_names else [None] * bad.num_rows
        self._letters.add(self._work.tx, bad, ["MP504"] * bad.num_rows, bad[BAD].to_pylist(), raw)
        good = pc.invert(is_bad)
        return replace(
            changes,
            rows=changes.rows.filter(good),
            operations=changes.operations.filter(good),
            before=None if changes.before is None else changes.before.filter(good),
            kept={name: mask.filter(good) for name, mask in changes.kept.items()},
        )

    def _part(self, changes: Changes) -> _Part:
        rows = self._projected(pa.Table.from_batches([changes.rows]))
        deleted = changes.operations.to_numpy(zero_copy_only=False) == Operation.DELETE
        moved, before = np.empty(0, np.int64), rows.slice(0, 0)
        if changes.before is not None:
            there = np.flatnonzero(pc.is_valid(changes.before).to_numpy(zero_copy_only=False))
            were = pa.Table.from_batches([pa.RecordBatch.from_struct_array(changes.before.take(pa.array(there)))])
            were = self._projected(were)
            same = equal_rows(self._keys(were), self._keys(rows.take(pa.array(there))))
            # A deleted row is identified by its values before the deletion.
            moved = there[~same]
            before = were.filter(pa.array(~same))
        kept = {}
        for out, name in self._columns.items():
            if name in changes.kept:
                kept[out] = changes.kept[name].to_numpy(zero_copy_only=False) & ~deleted
        return _Part(rows, deleted, moved, before, kept)

    def _projected(self, rows: pa.Table) -> pa.Table:
        """Rows of the server's table in the columns of ours; columns that the server no longer has are NULL."""
        assert self._source.columns is not None
        records = self._shape.arrow(fitted(rows, self._source.columns, self._source.spec.shown))
        return conform(records.select(list(self._columns.values())), self._table.schema)

    def _keys(self, rows: pa.Table) -> list[pa.Array]:
        return [rows[name].combine_chunks() for name in self._key]

    def _apply(self, part: _Part) -> int:
        """Split changes into parts in which no row depends on the result of another."""
        rows = self._filled(part)
        count = rows.num_rows
        # The old key is removed before the change that moved its row.
        places = np.concatenate([2 * np.arange(count) + 1, 2 * part.moved])
        sources = np.concatenate([np.where(part.deleted, -1, np.arange(count)), np.full(len(part.moved), -1)])
        order = np.argsort(places, kind="stable")
        columns = [
            pa.concat_arrays([a, b]).take(pa.array(order))
            for a, b in zip(self._keys(rows), self._keys(part.before), strict=True)
        ]
        keys, sources = Keys(tuple(columns)), sources[order]
        last = last_of_each(keys)
        last = np.arange(len(sources)) if last is None else last
        gone = last[sources[last] < 0]
        if len(gone):
            names = pa.table(dict(zip(self._key, keys.at(gone), strict=True)))
            self._table.delete(keys=names)
        stays = np.sort(sources[last][sources[last] >= 0])
        self._upsert(rows, stays, part)
        return int(count)

    def _upsert(self, rows: pa.Table, positions: npt.NDArray[np.int64], part: _Part) -> None:
        """Group rows by which of their values were sent; the other columns keep their values."""
        names = [name for name, mask in part.kept.items() if mask[positions].any()]
        if not names:
            self._table.upsert(rows.take(pa.array(positions)))
            return
        lacks = np.stack([part.kept[name][positions] for name in names], axis=1)
        patterns, numbers = np.unique(lacks, axis=0, return_inverse=True)
        for number, pattern in enumerate(patterns):
            absent = [name for name, is_absent in zip(names, pattern, strict=True) if is_absent]
            these = positions[numbers.reshape(-1) == number]
            self._table.upsert(rows.take(pa.array(these)).drop_columns(absent))

    def _filled(self, part: _Part) -> pa.Table:
        """The rows; where a key was changed, values that were not sent are taken from the old row."""
        rows = part.rows
        for position, row in enumerate(part.moved):
            names = [name for name, mask in part.kept.items() if mask[row]]
            if not names:
                continue
            key = tuple(part.before[name][position].as_py() for name in self._key)
            old: dict[str, Any] = self._table.get(key if len(key) > 1 else key[0]) or {}
            for name in names:
                rows = _with_value(rows, name, int(row), old.get(name))
                part.kept[name][row] = False
        return rows


def _with_value(rows: pa.Table, name: str, row: int, value: Any) -> pa.Table:
    field = rows.schema.field(name)
    column = rows[name].combine_chunks()
    filled = pa.concat_arrays([column.slice(0, row), pa.array([value], field.type), column.slice(row + 1)])
    return rows.set_column(rows.schema.get_field_index(name), field, filled)


def _segments(part: _Part, key: Sequence[str]) -> Iterator[_Part]:
    """Split so that a row with values that were not sent precedes all others of its key."""
    count = part.rows.num_rows
    needs = np.zeros(count, dtype=np.bool_)
    for mask in part.kept.values():
        needs |= mask
    if not needs.any():
        yield part
        return
    known = [pa.concat_arrays([part.rows[name].combine_chunks(), part.before[name].combine_chunks()]) for name in key]
    groups = group_numbers(Keys(tuple(known)))
    groups = np.arange(len(known[0])) if groups is None else groups
    moved = dict(zip(part.moved.tolist(), groups[count:].tolist(), strict=True))
    start, seen = 0, set[int]()
    for row in range(count):
        own = {int(groups[row]), *([moved[row]] if row in moved else ())}
        if needs[row] and own & seen:
            yield part.slice(start, row)
            start, seen = row, set()
        seen |= own
    yield part.slice(start, count)
