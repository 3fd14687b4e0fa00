"""UPSERT ... ON: rows are matched by a condition that is not the key, and events are applied one by one, in order."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from sqlglot import exp

from millpond.contracts.table import WriteTable
from millpond.engine.row_sets import swap_rows, with_columns
from millpond.errors import MillpondError
from millpond.expressions.failures import NotCompilable
from millpond.expressions.parameters import in_order
from millpond.plan.expression_types import as_expression
from millpond.plan.row_parts import compared_columns, is_own
from millpond.relational.codes import Numbers, group_codes, pairs
from millpond.schema import type_name


def apply_at_once(table: WriteTable, by: tuple[str, ...], events: pa.Table) -> bool:
    """Apply all events at once, with the same result as in their order, to the rows that equal them in the columns
    `by`. Returns False, with nothing done, if the table would reject one, because the result of the others depends on
    which."""
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
    # A new row has the key of its first event and everything else of its last: the later ones match the row that it
    # added.
    order = np.argsort(np.concatenate([fresh, alone]), kind="stable")
    added = events.take(np.concatenate([fresh, alone])[order])
    final = events.take(np.concatenate([lasts[groups[fresh]], alone])[order])
    added = with_columns(added, final.select(_changing(table, events)), added.schema)
    if _collides(table, added):
        return False
    _change_matched(table, rows, places, events.take(lasts[groups[heads[met]]]))
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
    """Whether a new row has the key of another row."""
    key = [table.schema[name].name for name in table.schema.key]
    if not key or not added.num_rows:
        return False
    keys = added.select(key)
    _, firsts = group_codes(keys.columns, keys.num_rows)
    return bool(len(firsts) < keys.num_rows or table.lookup(keys).num_rows)


def _change_matched(table: WriteTable, rows: pa.Table, places: Numbers, events: pa.Table) -> None:
    changing = _changing(table, events)
    if not len(places) or not changing:
        return
    new = with_columns(rows.take(places), events.select(changing), table.schema.arrow())
    if table.schema.key:
        table.upsert(new)
    else:
        swap_rows(table, rows, pa.chunked_array([pa.array(places)]), new)


# The meta key of a `?` for the number of its event column.
EVENT = "mp_event"
# A parameter of these types is compared like its column; any other is cast, because its Python value may have another
# type.
PLAIN = (pa.types.is_string, pa.types.is_integer, pa.types.is_boolean, pa.types.is_date, pa.types.is_timestamp)


@dataclass(frozen=True)
class Matching:
    """A prepared UPSERT ... ON: `query` returns the values and, under the names `extra`, what ON reads of an event;
    `condition` is ON over the table's row with a `?` for each of these; `by` are the columns that ON compares with the
    values that are written to them, if it has no other condition."""

    query: exp.Query
    extra: tuple[str, ...]
    condition: exp.Expr
    by: tuple[str, ...]


def take_apart(query: exp.Query, condition: exp.Expr, columns: tuple[str, ...], table: WriteTable) -> Matching:
    """Split ON into what it reads of the table and of the event; `columns` are those that the query fills."""
    target = table.name
    read: list[exp.Column] = []

    def placed(node: exp.Expr) -> exp.Expr:
        if not isinstance(node, exp.Column):
            return node
        if is_own(node, target):
            return exp.column(node.this.copy())
        if node not in read:
            read.append(node.copy())
        mark = exp.Placeholder()
        mark.meta[EVENT] = read.index(node)
        return mark

    over_row = condition.copy().transform(placed)
    extra = tuple(f"__on{number}" for number in range(len(read)))
    added = [exp.alias_(column, name) for column, name in zip(read, extra, strict=True)]
    wider = query.copy()
    wider.set("expressions", [*wider.expressions, *added])
    by = compared_columns(query, condition, columns, target, table.schema)
    return Matching(wider, extra, over_row.transform(_column_first), by)


def _column_first(node: exp.Expr) -> exp.Expr:
    """`? = column` as `column = ?`, for which a table can use an index."""
    if isinstance(node, exp.EQ) and isinstance(node.this, exp.Placeholder):
        return exp.EQ(this=node.expression, expression=node.this)
    return node


def apply_rows(table: WriteTable, matching: Matching, rows: pa.Table) -> Iterator[MillpondError | None]:
    """Apply rows in their order: each changes all rows that ON matches, but never their key, or is inserted. Yields for
    each row the error if the table rejected it, else None."""
    if matching.by and apply_at_once(table, matching.by, rows.drop_columns(list(matching.extra))):
        yield from [None] * rows.num_rows
        return
    condition = _typed(matching, rows)
    sources = [node.meta[EVENT] for node in in_order(condition)]
    key = {table.schema[name].name for name in table.schema.key}
    values = rows.drop_columns(list(matching.extra))
    changing = [name for name in values.column_names if name not in key]
    for row in rows.to_pylist():
        parameters = [row[matching.extra[place]] for place in sources]
        try:
            if not _change(table, condition, {name: row[name] for name in changing}, parameters):
                table.insert([{name: row[name] for name in values.column_names}])
        except MillpondError as error:
            yield error
        else:
            yield None


def _change(table: WriteTable, condition: exp.Expr, values: dict[str, Any], parameters: list[Any]) -> int:
    if not values:
        return table.count(condition, parameters)
    return table.update(condition, values, parameters)


def _typed(matching: Matching, rows: pa.Table) -> exp.Expression:
    """The condition with a cast around each `?` whose type is not determined by its Python value."""

    def cast(node: exp.Expr) -> exp.Expr:
        if not isinstance(node, exp.Placeholder):
            return node
        type_ = rows.schema.field(matching.extra[node.meta[EVENT]]).type
        return node if any(is_plain(type_) for is_plain in PLAIN) else exp.cast(node, type_name(type_), dialect="spark")

    return as_expression(matching.condition.copy().transform(cast))
