"""ORDER BY, LIMIT and OFFSET."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
import pyarrow.compute as pc
from sqlglot import exp

from millpond.expressions.failures import NotCompilable
from millpond.relational.codes import Values
from millpond.relational.joins import Evaluate
from millpond.relational.rows import Rows


def in_order(
    table: pa.Table, select: exp.Select, order: Sequence[exp.Expr] | None, rows: Rows, value: Evaluate
) -> pa.Table:
    """The outputs in their order: NULLs where the binder said, equal rows as they were."""
    clause = select.args.get("order")
    if clause is None:
        return table
    columns: dict[str, Values] = {}
    keys: list[tuple[str, str, str]] = []
    for number, key in enumerate(clause.expressions if order is None else order):
        if not isinstance(key, exp.Ordered) or isinstance(key.this, exp.Literal):
            raise NotCompilable("an order by position")
        columns[f"k{number}"] = _sortable(_key_values(key.this, table, rows, value))
        direction = "descending" if key.args.get("desc") else "ascending"
        keys.append((f"k{number}", direction, "at_start" if key.args.get("nulls_first") else "at_end"))
    columns["n"] = pa.array(range(table.num_rows), pa.int64())
    return table.take(pc.sort_indices(pa.table(columns), sort_keys=[*keys, ("n", "ascending", "at_end")]))


def _key_values(key: exp.Expr, table: pa.Table, rows: Rows, value: Evaluate) -> Values:
    """A bare name means the output of that name; anything else is over the rows."""
    if isinstance(key, exp.Column) and not key.table:
        places = [i for i, name in enumerate(table.column_names) if name.lower() == key.name.lower()]
        if len(places) != 1:
            raise NotCompilable("an order by a name that is not one output's")
        return table.column(places[0])
    return value(key, rows)


def _sortable(values: Values) -> Values:
    """Floats are left to Spark, for NaN; so is what Arrow does not sort."""
    type_ = values.type
    if pa.types.is_nested(type_) or pa.types.is_floating(type_) or pa.types.is_null(type_):
        raise NotCompilable(f"{type_} is ordered by Spark")
    return values.cast(pa.int8()) if pa.types.is_boolean(type_) else values


def cut(table: pa.Table, select: exp.Select) -> pa.Table:
    """The rows that LIMIT and OFFSET leave."""
    limit, offset = select.args.get("limit"), select.args.get("offset")
    parts = [part.expression for part in (limit, offset) if part is not None]
    if not all(isinstance(part, exp.Literal) and not part.is_string for part in parts):
        raise NotCompilable("a LIMIT that is computed")
    start = int(offset.expression.name) if offset is not None else 0
    return table.slice(start, int(limit.expression.name)) if limit is not None else table.slice(start)
