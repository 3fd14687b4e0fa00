"""Queries over one table, answered without Spark where Arrow gives exactly what Spark would."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc
from sqlglot import exp

from millpond.contracts.table import ReadTable
from millpond.expressions.aggregates import compile_aggregate
from millpond.expressions.compile import NotCompilable, compile_expression
from millpond.schema import Column, Schema

# What a query may consist of to be answered here; anything else is Spark's.
PARTS = {"expressions", "from_", "where", "order", "limit", "offset", "kind"}
PLAIN_PARTS = {"expressions", "from_", "where", "kind"}


def answer_directly(query: exp.Query, table: ReadTable) -> pa.Table | None:
    """The rows of a SELECT over this table alone, or None when it is Spark's work."""
    if not isinstance(query, exp.Select) or any(v for k, v in query.args.items() if v and k not in PARTS):
        return None
    if query.find(exp.Subquery, exp.Exists, exp.Placeholder, exp.Window):
        return None
    source = query.args["from_"].this
    if not isinstance(source, exp.Table) or any(v for k, v in source.args.items() if v and k not in ("this", "alias")):
        return None
    if source.args.get("alias") is not None and source.args["alias"].args.get("columns"):
        return None
    try:
        return _answer(query, table)
    except NotCompilable:
        return None


def answer_over(query: exp.Query, rows: pa.Table) -> pa.Table | None:
    """A SELECT of expressions over rows at hand, filtered by WHERE, in their order; None when it is Spark's work."""
    if not isinstance(query, exp.Select) or any(v for k, v in query.args.items() if v and k not in PLAIN_PARTS):
        return None
    if query.find(exp.Subquery, exp.Exists, exp.Placeholder, exp.Window, exp.AggFunc):
        return None
    schema = Schema.of(Column(field.name, field.type) for field in rows.schema)
    plain = query.transform(_unqualified)
    try:
        where = plain.args.get("where")
        if where is not None:
            rows = rows.filter(compile_expression(where.this, schema).evaluate(rows))
        columns = [_column(e.unalias(), rows, schema) for e in plain.expressions]
    except NotCompilable:
        return None
    return pa.table(columns, names=[e.alias_or_name for e in plain.expressions])


def _column(expression: exp.Expression, rows: pa.Table, schema: Schema) -> pa.Array | pa.ChunkedArray:
    """An expression's values; a column as it is, whatever its type."""
    if isinstance(expression, exp.Column) and (column := schema.get(expression.name)) is not None:
        return rows[column.name]
    return compile_expression(expression, schema).evaluate(rows)


def _answer(query: exp.Select, table: ReadTable) -> pa.Table | None:
    plain = query.transform(_unqualified)
    assert isinstance(plain, exp.Select)
    where = plain.args.get("where")
    # Compiled before the table is read: a condition that only Spark can judge must not start it in the table.
    if where is not None:
        compile_expression(where.this, table.schema)
    rows = table.find(where.this) if where is not None else table.to_arrow()
    if any(e.unalias().find(exp.AggFunc) for e in plain.expressions):
        return _aggregates(plain, rows, table.schema)
    names = [e.alias_or_name for e in plain.expressions]
    columns = [compile_expression(e.unalias(), table.schema).evaluate(rows) for e in plain.expressions]
    result = pa.table(columns, names=names)
    order = query.args.get("order")
    if order is not None:
        result = _ordered(result, rows, order, table.schema)
    return None if result is None else _cut(result, plain)


def _unqualified(node: exp.Expr) -> exp.Expr:
    return exp.column(node.this.copy()) if isinstance(node, exp.Column) and node.table else node


def _aggregates(query: exp.Select, rows: pa.Table, schema: Schema) -> pa.Table | None:
    """Aggregates over the whole table: one row."""
    if query.args.get("order") or query.args.get("limit") or query.args.get("offset"):
        return None
    values = [compile_aggregate(e.unalias(), schema).evaluate(rows) for e in query.expressions]
    arrays = [pa.array([v.as_py()], v.type) for v in values]
    return pa.table(arrays, names=[e.alias_or_name for e in query.expressions])


def _ordered(result: pa.Table, rows: pa.Table, order: exp.Order, schema: Schema) -> pa.Table | None:
    """The rows in order: NULLs where the binder said, equal rows as they were; floats are left to Spark's NaN."""
    columns: dict[str, pa.ChunkedArray] = {}
    keys: list[tuple[str, str, str]] = []
    for number, key in enumerate(order.expressions):
        if not isinstance(key, exp.Ordered) or isinstance(key.this, exp.Literal):
            return None
        # A bare name means the output of that name first; one with a qualifier always means the table's column.
        named = isinstance(key.this, exp.Column) and not key.this.table and key.this.name in result.column_names
        plain = key.this.transform(_unqualified)
        values = result[plain.name] if named else compile_expression(plain, schema).evaluate(rows)
        if pa.types.is_nested(values.type) or pa.types.is_floating(values.type) or pa.types.is_boolean(values.type):
            return None
        columns[f"k{number}"] = values
        direction = "descending" if key.args.get("desc") else "ascending"
        keys.append((f"k{number}", direction, "at_start" if key.args.get("nulls_first") else "at_end"))
    columns["n"] = pa.array(range(result.num_rows), pa.int64())
    return result.take(pc.sort_indices(pa.table(columns), sort_keys=[*keys, ("n", "ascending", "at_end")]))


def _cut(result: pa.Table, query: exp.Select) -> pa.Table | None:
    limit, offset = query.args.get("limit"), query.args.get("offset")
    parts = [part.expression for part in (limit, offset) if part is not None]
    if not all(isinstance(part, exp.Literal) and not part.is_string for part in parts):
        return None
    start = int(offset.expression.name) if offset is not None else 0
    return result.slice(start, int(limit.expression.name)) if limit is not None else result.slice(start)
