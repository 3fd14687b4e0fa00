"""Rows that a table would refuse, found before they reach it and put aside."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from millpond.runtime.flows.aside import put_aside
from millpond.runtime.flows.batch_run import BatchRun
from millpond.runtime.flows.fitting import misfit_mark
from millpond.runtime.spark.evaluate import evaluate
from millpond.schema import Column, Schema, type_name
from millpond.tables.constraints import breaking, breaks


def reject(run: BatchRun, rows: pa.Table, columns: list[Column], schema: Schema) -> pa.Table:
    """Take out the rows that break a type, NOT NULL or the key, and write them to the dead letters."""
    rejected = misfits(rows, columns)
    for column in columns:
        is_key = column.name in schema.key
        if is_key or not column.nullable:
            code, rule = ("MP403", "a key column is NULL") if is_key else ("MP401", "a NOT NULL column is NULL")
            found = true_positions(pc.is_null(rows[column.name]))
            rejected = dict.fromkeys(found, (code, f"column '{column.name}': {rule}")) | rejected
    if schema.checks and len(columns) == len(schema):
        rejected = _breaking(run, rows, schema) | rejected
    return without(run, rows, rejected)


def _breaking(run: BatchRun, rows: pa.Table, schema: Schema) -> dict[int, tuple[str, str]]:
    """The rows that break a CHECK constraint; values that do not fit their column are NULL there."""
    types = pa.schema([(c.name, c.type) for c in schema])
    whole = rows.select(types.names).cast(types)
    rejected: dict[int, tuple[str, str]] = {}
    for check in schema.checks:
        found = breaking(check, whole, lambda expression, over: evaluate(run.work.views.spark, expression, over))
        rejected |= {int(n): ("MP413", breaks(check)) for n in found}
    return rejected


def misfits(rows: pa.Table, columns: list[Column]) -> dict[int, tuple[str, str]]:
    """The rows with a value that does not fit its column."""
    rejected: dict[int, tuple[str, str]] = {}
    for column in columns:
        mark = misfit_mark(column.name)
        if mark in rows.column_names:
            reason = f"column '{column.name}': the value does not fit {type_name(column.type)}"
            rejected |= dict.fromkeys(true_positions(rows[mark]), ("MP404", reason))
    return rejected


def without(run: BatchRun, rows: pa.Table, rejected: dict[int, tuple[str, str]]) -> pa.Table:
    """The other rows; those that are rejected go to the dead letters."""
    if not rejected:
        return rows
    good = rows.filter(pa.array([i not in rejected for i in range(rows.num_rows)], pa.bool_()))
    to_letters(run, rows, rejected, good)
    return good


def to_letters(run: BatchRun, rows: pa.Table, rejected: dict[int, tuple[str, str]], good: pa.Table) -> None:
    """Dead letters for the rows that are rejected, with codes and reasons by row; `good` are the others."""
    if not rejected:
        return
    positions = sorted(rejected)
    codes, reasons = [rejected[i][0] for i in positions], [rejected[i][1] for i in positions]
    put_aside(run, rows.take(positions), codes, reasons, applied=good)


def true_positions(mask: pa.ChunkedArray) -> list[int]:
    """The rows where a mask is true."""
    return [int(i) for i in pc.indices_nonzero(pc.fill_null(mask, False)).to_pylist()]
