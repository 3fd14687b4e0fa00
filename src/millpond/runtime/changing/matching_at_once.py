"""Rows matched by columns that hold what is compared with them: the events of one value meet the same rows throughout.

The first event of a value that no row has adds a row; every other changes the rows of its value, so that the last one
tells what they hold. An event with a NULL finds nothing and adds a row of its own.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from millpond.contracts.table import WriteTable
from millpond.expressions.failures import NotCompilable
from millpond.relational.codes import Numbers, group_codes, pairs
from millpond.runtime.changing.rows import swap_rows, with_columns


def apply_at_once(table: WriteTable, by: tuple[str, ...], events: pa.Table) -> bool:
    """Apply events, in their order, to the rows that equal them in the columns `by`. False, and nothing done, where
    the table would refuse one: what comes of the others then hangs on which."""
    if not events.num_rows or table.schema.checks or _breaks_not_null(table, events):
        return not events.num_rows
    values = [events[name] for name in by]
    try:
        groups, firsts = group_codes(values, events.num_rows)
        whole = _all_valid(values)
        heads = firsts[whole[firsts]]
        rows = table.lookup(events.take(heads).select(by), by=by) if table.schema.key else table.to_arrow()
        met, places = pairs([events[name].take(heads) for name in by], [rows[name] for name in by])
    except NotCompilable:
        return False
    lasts = _lasts(groups, len(firsts))
    alone = np.flatnonzero(~whole)
    fresh = np.setdiff1d(heads, heads[met])
    # Of a new row the first event gives the key, the last one everything else.
    order = np.argsort(np.concatenate([fresh, alone]), kind="stable")
    added = events.take(np.concatenate([fresh, alone])[order])
    final = events.take(np.concatenate([lasts[groups[fresh]], alone])[order])
    added = with_columns(added, final.select(_changing(table, events)), added.schema)
    if _collides(table, added):
        return False
    _change(table, rows, places, events.take(lasts[groups[heads[met]]]))
    if added.num_rows:
        table.insert(added)
    return True


def _breaks_not_null(table: WriteTable, events: pa.Table) -> bool:
    key = {name.lower() for name in table.schema.key}
    needed = [c.name for c in table.schema if not c.nullable or c.name.lower() in key]
    if any(name not in events.column_names and table.schema[name].default is None for name in needed):
        return True
    return any(events[name].null_count for name in needed if name in events.column_names)


def _all_valid(values: list[pa.ChunkedArray]) -> np.ndarray:
    found = np.ones(len(values[0]), bool)
    for column in values:
        found &= pc.is_valid(column).to_numpy()
    return found


def _lasts(groups: Numbers, count: int) -> Numbers:
    """The last row of each group."""
    lasts = np.zeros(count, np.int64)
    lasts[groups] = np.arange(len(groups))
    return lasts


def _changing(table: WriteTable, events: pa.Table) -> list[str]:
    key = {table.schema[name].name for name in table.schema.key}
    return [name for name in events.column_names if name not in key]


def _collides(table: WriteTable, added: pa.Table) -> bool:
    """Whether a new row has the key of another one."""
    key = [table.schema[name].name for name in table.schema.key]
    if not key or not added.num_rows:
        return False
    keys = added.select(key)
    _, firsts = group_codes(keys.columns, keys.num_rows)
    return bool(len(firsts) < keys.num_rows or table.lookup(keys).num_rows)


def _change(table: WriteTable, rows: pa.Table, places: Numbers, events: pa.Table) -> None:
    changing = _changing(table, events)
    if not len(places) or not changing:
        return
    new = with_columns(rows.take(places), events.select(changing), table.schema.arrow())
    if table.schema.key:
        table.upsert(new)
    else:
        swap_rows(table, rows, pa.chunked_array([pa.array(places)]), new)
