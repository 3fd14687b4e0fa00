"""Folds the changes of several statements into the rows of a table, key by key and in stream order.

A row depends on its previous state and on the items of its key, never on other rows. Items are sorted by key, event and
statement. An item that does not depend on the previous row makes the earlier ones irrelevant; the others are applied in
rounds by Arrow, one item of each key per round. Keys with very many items, and expressions that Arrow does not support,
are folded by Spark. See docs/decisions/0019-events-fold-by-key.md.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from millpond.contracts.evaluator import Engine
from millpond.contracts.table import WriteTable
from millpond.engine.fold_arrow import fold_in_rounds
from millpond.engine.fold_spark import fold_on_spark
from millpond.engine.row_sets import key_codes
from millpond.engine.row_states import Keyed, Refusals, RowStates, Turns
from millpond.engine.work import Work
from millpond.errors import MillpondError
from millpond.expressions.failures import NotCompilable
from millpond.plan.actions import cannot_fail
from millpond.plan.change_model import Action
from millpond.plan.routing import engine_asked
from millpond.plan.statement_groups import ORDER
from millpond.relational.codes import Numbers, pairs
from millpond.schema import Schema

# A key with more items is folded by Spark: the cost of a round hardly depends on its size, so many small rounds are
# slow.
ROUNDS_MAX = 200

Mask: TypeAlias = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class Items:
    """The items of one statement: rows with its action's columns and extra values, and their positions in the
    stream."""

    action: Action
    rows: pa.Table


@dataclass(frozen=True)
class Folded:
    """The result of a fold: `rows` that exist now, in the order in which events changed them; `gone`, keys whose row
    was deleted; `before`, the previous rows of all these keys, and `new`, the keys that had none. `refused` has the
    rejected items, by statement and row, with the error. `passed` are all rows in between, in order, if the table's
    history needs them."""

    rows: pa.Table
    gone: pa.Table
    before: pa.Table
    new: pa.Table
    refused: dict[tuple[int, int], MillpondError]
    passed: tuple[pa.Table, ...] = ()

    def write(self, table: WriteTable) -> int:
        """Write the result to the table."""
        changed = table.upsert(self.rows) if self.rows.num_rows else 0
        return changed + (table.delete(keys=self.gone) if self.gone.num_rows else 0)

    def undo(self, table: WriteTable) -> None:
        """Restore the previous rows."""
        if self.before.num_rows:
            table.upsert(self.before)
        if self.new.num_rows:
            table.delete(keys=self.new)


def fold(work: Work, table: WriteTable, writers: Sequence[Items]) -> Folded:
    """Fold the items of statements into the current rows of a table; nothing is written."""
    schema = table.schema
    turns, firsts = _turns(writers, schema)
    safe = [work.cache.once("safe", w.action.items, partial(cannot_fail, w.action, schema)) for w in writers]
    keeps = work.keeps_times(table.name)
    if not keeps:
        turns = _since_reset(turns, np.array([w.action.resets for w in writers], bool), np.array(safe, bool))
    keyed = _keyed(table, writers, firsts)
    states = RowStates.of(schema, keyed)
    refused: Refusals = {}
    passed: list[pa.Table] = []
    for round_ in _rounds(turns) if keeps else (turns,):
        for part, on_spark in _parts(round_):
            _fold_part(work, [w.action for w in writers], [w.rows for w in writers], part, states, refused, on_spark)
        if keeps:
            here = round_.code[states.here[round_.code] & states.hit[round_.code]]
            passed.append(pa.table(states.take(here, schema.names), schema=schema.arrow()))
    return replace(_folded(states, keyed, turns, refused, schema), passed=tuple(passed))


def _rounds(turns: Turns) -> Iterator[Turns]:
    """The first item of each key, then the second of each, and so on."""
    number = np.arange(len(turns.code)) - np.repeat(turns.starts, turns.counts)
    return (turns.where(number == n) for n in range(int(number.max(initial=-1)) + 1))


def _fold_part(
    work: Work,
    actions: list[Action],
    rows: list[pa.Table],
    turns: Turns,
    states: RowStates,
    refused: Refusals,
    on_spark: bool,
) -> None:
    if not on_spark:
        try:
            states.become(*fold_in_rounds(work, actions, rows, turns, states), refused)
        except NotCompilable:
            on_spark = True
    if on_spark:
        states.become(*fold_on_spark(work, actions, rows, turns, states), refused)


def _turns(writers: Sequence[Items], schema: Schema) -> tuple[Turns, Numbers]:
    """The items in the order in which they are applied, key by key; and the first item of each key, among all rows of
    all statements."""
    keys = [
        pa.concat_tables([w.rows.select(list(schema.key)) for w in writers]).column(n) for n in range(len(schema.key))
    ]
    counts = [w.rows.num_rows for w in writers]
    codes, firsts = key_codes(keys, sum(counts))
    writer = np.repeat(np.arange(len(writers)), counts)
    row = np.concatenate([np.arange(count) for count in counts])
    places = [np.concatenate([w.rows[name].to_numpy() for w in writers]) for name in ORDER]
    # lexsort sorts by its last argument first: key, then position in the stream, then statement, then row.
    order = np.lexsort((row, writer, places[1], places[0], codes))
    rank = np.empty(len(order), np.int64)
    rank[np.lexsort((row, writer, places[1], places[0]))] = np.arange(len(order))
    return Turns(codes[order], writer[order], row[order], rank[order]), firsts


def _since_reset(turns: Turns, resets: Mask, safe: Mask) -> Turns:
    """The items without those that a later one of the same key makes irrelevant, because it does not depend on the row.
    Items that may fail, and those before them, are kept: their errors must be reported."""
    if not len(turns.code) or not resets.any():
        return turns
    places = np.arange(len(turns.code))
    last = np.repeat(np.maximum.reduceat(np.where(resets[turns.writer], places, -1), turns.starts), turns.counts)
    risky = np.maximum.reduceat(~safe[turns.writer] & (places < last), turns.starts)
    return turns.where((places >= last) | np.repeat(risky, turns.counts))


def _keyed(table: WriteTable, writers: Sequence[Items], firsts: Numbers) -> Keyed:
    """The keys, and the table's rows for them."""
    names = list(table.schema.key)
    keys = pa.concat_tables([w.rows.select(names) for w in writers]).take(pa.array(firsts)).combine_chunks()
    rows = table.lookup(keys).combine_chunks() if keys.num_rows else table.to_arrow().slice(0, 0)
    try:
        met, places = pairs([keys[name] for name in names], [rows[name] for name in names])
    except NotCompilable:
        codes, _ = key_codes(
            [pa.chunked_array([*keys[n].chunks, *rows[n].chunks], keys[n].type) for n in names],
            keys.num_rows + rows.num_rows,
        )
        known = {code: place for place, code in enumerate(codes[: keys.num_rows])}
        places = np.arange(rows.num_rows)
        met = np.array([known[code] for code in codes[keys.num_rows :]], np.int64)
    return Keyed(keys, rows, met, places)


def _parts(turns: Turns) -> list[tuple[Turns, bool]]:
    """Split keys with few items from those with many, with whether Spark folds them."""
    if engine_asked() is Engine.SPARK:
        return [(turns, True)]
    many = np.repeat(turns.counts > ROUNDS_MAX, turns.counts)
    if not many.any():
        return [(turns, False)]
    return [(turns.where(~many), False), (turns.where(many), True)]


def _folded(states: RowStates, keyed: Keyed, turns: Turns, refused: Refusals, schema: Schema) -> Folded:
    last = np.zeros(len(states.here), np.int64)
    np.maximum.at(last, turns.code, turns.rank)
    existed = np.zeros(len(states.here), bool)
    existed[keyed.met] = True
    written = np.flatnonzero(states.hit & states.here)
    written = written[np.argsort(last[written], kind="stable")]
    gone = np.flatnonzero(states.hit & ~states.here & existed)
    new = np.flatnonzero(states.hit & ~existed)
    before = keyed.rows.take(pa.array(keyed.places[states.hit[keyed.met]]))
    rows = pa.table([pc.take(states.columns[n], pa.array(written)) for n in schema.names], schema=schema.arrow())
    keys = keyed.keys
    return Folded(rows, keys.take(pa.array(gone)), before, keys.take(pa.array(new)), refused)
