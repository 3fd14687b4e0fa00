"""UPSERT ... ON: a row is matched by a condition, not by its key; events apply one at a time, in their order.

Where ON only compares columns with what is written into them, a row stays matched by the events that matched it: then
they are applied all at once, unless the table refuses one.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from sqlglot import exp

from millpond.contracts.table import WriteTable
from millpond.errors import MillpondError
from millpond.expressions.parameters import in_order
from millpond.plan.typed import as_expression
from millpond.plan.upserts import compared_columns, is_own
from millpond.runtime.changing.matching_at_once import apply_at_once
from millpond.schema import type_name

# Which of the event's columns a `?` stands for.
EVENT = "mp_event"
# A parameter of these types is compared as the column it came from would be; any other is cast to be sure.
PLAIN = (pa.types.is_string, pa.types.is_integer, pa.types.is_boolean, pa.types.is_date, pa.types.is_timestamp)


@dataclass(frozen=True)
class Matching:
    """An UPSERT ... ON made ready: `query` yields, beside the values, what ON reads of an event, under `extra`;
    `condition` is ON over the table's row alone, with a `?` for each of these; `by` are the columns that it compares
    with what is written into them, where it asks nothing else."""

    query: exp.Query
    extra: tuple[str, ...]
    condition: exp.Expr
    by: tuple[str, ...]


def take_apart(query: exp.Query, condition: exp.Expr, columns: tuple[str, ...], table: WriteTable) -> Matching:
    """What ON reads of the table, and what of the event; `columns` are those that the query fills."""
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
    """`? = column` as `column = ?`, which a table can answer by an index."""
    if isinstance(node, exp.EQ) and isinstance(node.this, exp.Placeholder):
        return exp.EQ(this=node.expression, expression=node.this)
    return node


def apply_rows(table: WriteTable, matching: Matching, rows: pa.Table) -> Iterator[MillpondError | None]:
    """Apply rows in their order: each changes all rows that ON finds, but never their key, or is a new row. Yields for
    each row what the table refused it for, if it did."""
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
    """The condition with a cast around each `?` whose type its Python value does not tell."""

    def cast(node: exp.Expr) -> exp.Expr:
        if not isinstance(node, exp.Placeholder):
            return node
        type_ = rows.schema.field(matching.extra[node.meta[EVENT]]).type
        return node if any(is_plain(type_) for is_plain in PLAIN) else exp.cast(node, type_name(type_), dialect="spark")

    return as_expression(matching.condition.copy().transform(cast))
