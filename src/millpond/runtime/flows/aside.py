"""Rows of a batch that a statement refused, put aside as the records that they came from."""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa

from millpond.plan.stream_order import ORDER
from millpond.rendering import json_lines
from millpond.runtime.flows.batch_run import BatchRun
from millpond.runtime.spark.access import arrow_frame

# Names that stand beside a row's own columns on its way: order, hidden columns, marks of casts and conditions.
PASSING = ("_mp_", "__bad_", "__on", "__mp_")

Place = tuple[int, int]


@dataclass(frozen=True)
class Records:
    """Some records of a batch with their bytes, found by their place in the stream."""

    rows: pa.Table
    raw: dict[Place, tuple[int, bytes]]


def put_aside(
    run: BatchRun, rows: pa.Table, codes: list[str], reasons: list[str], applied: pa.Table, *, are_records: bool = False
) -> None:
    """Dead letters for `rows`; each becomes the record it came from, with its bytes as they came. A row whose record
    also gave rows that were `applied` cannot be sent again, because that would double those: it is shown as a row, or
    with the record's bytes where rows are records."""
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
    """Rows as JSON, where there is no record to show."""
    names = [name for name in rows.column_names if not name.startswith(PASSING)]
    return [line.encode() for line in json_lines(rows.select(names), exact_numbers=True)]


def _records(run: BatchRun, rows: pa.Table) -> Records:
    """The batch's records that rows came from."""
    wanted = set(_places(rows))
    if run.originals is None or not wanted:
        return Records(rows.slice(0, 0), {})
    records = _found(run, wanted)
    raw = zip(_places(records), run.originals(records), strict=True)
    return Records(records, {place: (i, text) for i, (place, text) in enumerate(raw) if text is not None})


def _found(run: BatchRun, wanted: set[Place]) -> pa.Table:
    frame = run.batch.relation
    if isinstance(frame, pa.Table):
        return frame.filter(pa.array([place in wanted for place in _places(frame)], pa.bool_()))
    columns = [pa.array(column, pa.int64()) for column in zip(*wanted, strict=True)]
    pairs = arrow_frame(frame.sparkSession, pa.table(columns, names=list(ORDER)))
    return frame.join(pairs, list(ORDER), "left_semi").toArrow()


def _places(rows: pa.Table) -> list[Place]:
    """Where rows stand in the stream; nothing for those that no longer know it."""
    if not set(ORDER) <= set(rows.column_names):
        return []
    return list(zip(*(rows[name].to_pylist() for name in ORDER), strict=True))
