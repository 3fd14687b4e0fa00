"""Rows on their way into a table: cast to the types of its columns; rows that it rejects become dead letters."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import pyarrow as pa
import pyarrow.compute as pc
from sqlglot import exp

from millpond.engine.batch_run import BatchRun
from millpond.engine.spark.evaluate import evaluate
from millpond.engine.spark.transfer import Dataset, arrow_frame, from_spark_schema
from millpond.engine.work import Work
from millpond.plan.statement_groups import ORDER
from millpond.rendering import json_lines
from millpond.schema import Column, Schema, type_name
from millpond.tables.constraints import breaking, breaks

# The name of the input relation of the casting query.
VALUES = "__values__"
# One query for each statement and each schema of its rows, of which there is nearly always one.
QUERIES_MAX = 1024


def misfit_mark(name: str) -> str:
    """The name of the column that marks values of a column that could not be cast."""
    return f"__bad_{name}"


def fitted(work: Work, rows: Dataset, columns: Sequence[Column], others: Sequence[str]) -> pa.Table:
    """Rows with, by position, the columns of a table and `others`. A value that cannot be cast becomes NULL, and is
    marked in a separate column."""
    names = [*(c.name for c in columns), *others]
    named = rows.rename_columns(names) if isinstance(rows, pa.Table) else rows.toDF(*names)
    schema = named.schema if isinstance(named, pa.Table) else from_spark_schema(named.schema).arrow()
    query = _casting(schema, tuple((column.name, column.type) for column in columns))
    if query is None:
        return named if isinstance(named, pa.Table) else named.toArrow()
    return work.rows(query, given={VALUES: named})


# Cached, because compiled queries are found again by the identity of the tree in the next batch.
@lru_cache(maxsize=QUERIES_MAX)
def _casting(schema: pa.Schema, columns: tuple[tuple[str, pa.DataType], ...]) -> exp.Select | None:
    """The casting query; None if every column already has its type."""
    wanted = dict(columns)
    chosen: list[exp.Expr] = []
    for field in schema:
        value = exp.column(field.name, table=VALUES, quoted=True)
        if wanted.get(field.name, field.type) == field.type:
            chosen.append(exp.alias_(value, field.name, quoted=True))
            continue
        # TRY_CAST: one invalid value must not fail the whole batch. NULL from a value that is not NULL marks it.
        to = exp.DataType.build(type_name(wanted[field.name]), dialect="spark")
        cast = exp.TryCast(this=value, to=to, safe=True)
        lost = exp.and_(value.copy().is_(exp.null()).not_(), cast.copy().is_(exp.null()))
        chosen.append(exp.alias_(cast, field.name, quoted=True))
        chosen.append(exp.alias_(lost, misfit_mark(field.name), quoted=True))
    if len(chosen) == len(schema):
        return None
    table = exp.Table(this=exp.to_identifier(VALUES, quoted=True))
    return exp.Select(expressions=chosen).from_(table, copy=False)


# Prefixes of internal columns: order, hidden columns, marks of casts and conditions.
PASSING = ("_mp_", "__bad_", "__on", "__mp_")

Place = tuple[int, int]


@dataclass(frozen=True)
class Records:
    """Some records of a batch with their bytes, by their position in the stream."""

    rows: pa.Table
    raw: dict[Place, tuple[int, bytes]]


def add_dead_letters(
    run: BatchRun, rows: pa.Table, codes: list[str], reasons: list[str], applied: pa.Table, *, are_records: bool = False
) -> None:
    """Add dead letters for `rows`, each with the original bytes of its record. A row whose record also resulted in
    `applied` rows cannot be replayed, because that would duplicate those: its letter has the row as JSON, or the
    record's bytes if rows are records."""
    records = _records(run, rows)
    done = set(_places(applied))
    places = _places(rows)
    whole = [i for i, place in enumerate(places) if place in records.raw and place not in done]
    found = [records.raw[places[i]] for i in whole]
    run.letters.add(
        run.work.tx,
        records.rows.take(pa.array([number for number, _ in found], pa.int64())),
        [codes[i] for i in whole],
        [reasons[i] for i in whole],
        [raw for _, raw in found],
    )
    others = sorted(set(range(rows.num_rows)) - set(whole))
    left = rows.take(pa.array(others, pa.int64()))
    letters = run.letters.without_record()
    texts = as_text(left)
    if are_records:
        texts = [records.raw[places[i]][1] if places[i] in records.raw else texts[n] for n, i in enumerate(others)]
    letters.add(run.work.tx, left, [codes[i] for i in others], [reasons[i] for i in others], texts)


def as_text(rows: pa.Table) -> list[bytes | None]:
    """Rows as JSON, if there is no original record."""
    names = [name for name in rows.column_names if not name.startswith(PASSING)]
    return [line.encode() for line in json_lines(rows.select(names), exact_numbers=True)]


def _records(run: BatchRun, rows: pa.Table) -> Records:
    """The records of the batch from which rows were computed."""
    wanted = set(_places(rows))
    if run.originals is None or not wanted:
        return Records(rows.slice(0, 0), {})
    records = _found(run, wanted)
    raw = zip(_places(records), run.originals(records), strict=True)
    return Records(records, {place: (i, text) for i, (place, text) in enumerate(raw) if text is not None})


def _found(run: BatchRun, wanted: set[Place]) -> pa.Table:
    frame = (run.records or run.batch).relation
    if isinstance(frame, pa.Table):
        return frame.filter(pa.array([place in wanted for place in _places(frame)], pa.bool_()))
    columns = [pa.array(column, pa.int64()) for column in zip(*wanted, strict=True)]
    pairs = arrow_frame(frame.sparkSession, pa.table(columns, names=list(ORDER)))
    return frame.join(pairs, list(ORDER), "left_semi").toArrow()


def _places(rows: pa.Table) -> list[Place]:
    """The positions of rows in the stream; empty if the rows do not have the order columns."""
    if not set(ORDER) <= set(rows.column_names):
        return []
    return list(zip(*(rows[name].to_pylist() for name in ORDER), strict=True))


def reject(run: BatchRun, rows: pa.Table, columns: list[Column], schema: Schema) -> pa.Table:
    """The rows without those that violate a type, NOT NULL, the key or a CHECK, which become dead letters."""
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
    """The rows that violate a CHECK constraint; values that could not be cast are NULL there."""
    types = pa.schema([(c.name, c.type) for c in schema])
    whole = rows.select(types.names).cast(types)
    rejected: dict[int, tuple[str, str]] = {}
    for check in schema.checks:
        found = breaking(check, whole, lambda expression, over: evaluate(run.work.views.spark, expression, over))
        rejected |= {int(n): ("MP413", breaks(check)) for n in found}
    return rejected


def misfits(rows: pa.Table, columns: list[Column]) -> dict[int, tuple[str, str]]:
    """The rows with a value that could not be cast to its column."""
    rejected: dict[int, tuple[str, str]] = {}
    for column in columns:
        mark = misfit_mark(column.name)
        if mark in rows.column_names:
            reason = f"column '{column.name}': the value cannot be cast to {type_name(column.type)}"
            rejected |= dict.fromkeys(true_positions(rows[mark]), ("MP404", reason))
    return rejected


def without(run: BatchRun, rows: pa.Table, rejected: dict[int, tuple[str, str]]) -> pa.Table:
    """The rows without the rejected ones, which become dead letters."""
    if not rejected:
        return rows
    good = rows.filter(pa.array([i not in rejected for i in range(rows.num_rows)], pa.bool_()))
    to_letters(run, rows, rejected, good)
    return good


def to_letters(run: BatchRun, rows: pa.Table, rejected: dict[int, tuple[str, str]], good: pa.Table) -> None:
    """Add dead letters for rejected rows, with codes and reasons by row; `good` are the others."""
    if not rejected:
        return
    positions = sorted(rejected)
    codes, reasons = [rejected[i][0] for i in positions], [rejected[i][1] for i in positions]
    add_dead_letters(run, rows.take(positions), codes, reasons, applied=good)


def true_positions(mask: pa.ChunkedArray) -> list[int]:
    """The rows where a mask is true."""
    return [int(i) for i in pc.indices_nonzero(pc.fill_null(mask, False)).to_pylist()]
