"""Discovery of columns: names and types from the first records of a source's files."""

from __future__ import annotations

import csv
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from itertools import islice
from pathlib import Path
from typing import Any

import pyarrow as pa

from millpond.contracts.source import Found, SourceSpec
from millpond.errors import SourceError
from millpond.schema import TIMESTAMP, Column, Schema
from millpond.sources.files.file_positions import Seen
from millpond.sources.files.listing import UNDETERMINED, Where, form_of, unreadable
from millpond.sources.records.formats import FileFormat, check_header
from millpond.sources.records.text_reader import ReadSpec, Tail, fields, layout_of, pieces, read_header
from millpond.sources.records.type_inference import Guess, csv_guess, json_guess, parse_json

# The number of files whose column names are checked before the app runs.
CHECKED_FILES = 100
# The number of remote files that are fetched to discover columns.
FETCHED_FILES = 10


def discover_columns(spec: SourceSpec, where: Where | None = None) -> Found:
    """The columns of a source's files, from their first `sample.rows` records in the order of arrival; declared ones
    are checked in files that have column names. Raises only for existing files that cannot be understood, or lack a
    declared column: MP502, MP503, MP505, MP508."""
    where = where or Where.of(spec)
    if not where.exists():
        return Found(missing=True, detail=f"{where.path} does not exist")
    seen = [seen for seen in where.look() if seen.size]
    files = [Path(one.path) for one in (_fetched(where, seen) if where.is_remote else seen)]
    form = form_of(spec, where)
    if not files or form.name == UNDETERMINED:
        return Found(detail=f"{where.path} is empty")
    if spec.columns is not None:
        check_all_names(files[:CHECKED_FILES], form, spec.columns)
        return Found(columns=spec.columns)
    columns = _first_parquet(files) if form.name == "parquet" else sampled_columns(files, form, spec)
    return Found(columns=columns, detail="" if columns else f"{where.path} contains no records")


def _fetched(where: Where, seen: list[Seen]) -> list[Seen]:
    """The first files that could be fetched; they are kept until they are read."""
    found = []
    for one in seen[:FETCHED_FILES]:
        with suppress(FileNotFoundError):
            where.fetch(one)
            found.append(one)
    return found


def check_all_names(files: list[Path], form: FileFormat, declared: Schema) -> None:
    """MP503 as in `_check_names`, MP502 if none of the files can be read: a single unreadable file is reported when it
    is read."""
    refused: list[SourceError] = []
    for path in files:
        with _passing_over(path, refused):
            _check_names(path, form, declared)
    if refused and len(refused) == len(files):
        raise refused[0]


def _check_names(path: Path, form: FileFormat, declared: Schema) -> None:
    """MP503 if a file has column names and lacks a declared one."""
    if form.name == "parquet":
        check_header(_parquet(path).names, declared, path)
    elif form.name == "csv" and form.header:
        header = read_header(path, form, Tail.LEAVE)
        if header is not None:
            check_header(header.names, declared, path)


def sampled_columns(files: list[Path], form: FileFormat, spec: SourceSpec) -> Schema | None:
    """The columns of the first `sample.rows` records of text files; None if there are none."""
    wanted = max(spec.values["sample.rows"], 1)
    refused: list[SourceError] = []
    rows = list(islice(_rows(files, form, refused), wanted))
    guess = csv_guess if form.name == "csv" else json_guess
    guesses: dict[str, tuple[str, Guess]] = {}
    for row in rows:
        for name, value in row.items():
            spelled, so_far = guesses.get(name.lower(), (name, Guess()))
            guesses[name.lower()] = (spelled, so_far.merged(guess(value)))
    if guesses:
        return Schema.of(Column(name, found.type()) for name, found in guesses.values())
    if refused:
        raise refused[0]
    if rows or _has_records(files, form):
        message = f"The columns of '{spec.shown}' cannot be discovered: none of its first records is valid."
        raise SourceError("MP505", message, hint="Correct the format, or declare the columns.")
    return None


def _has_records(files: list[Path], form: FileFormat) -> bool:
    return form.name != "csv" and any(True for path in files for _ in _records(path, form, 0))


def _rows(files: list[Path], form: FileFormat, refused: list[SourceError]) -> Iterator[dict[str, Any]]:
    """The records of the files; those that cannot be read are added to `refused`."""
    for path in files:
        with _passing_over(path, refused):
            yield from _csv_rows(path, form) if form.name == "csv" else _json_rows(path, form)


@contextmanager
def _passing_over(path: Path, refused: list[SourceError]) -> Iterator[None]:
    """A file that cannot be read is added to `refused`, and the others follow."""
    try:
        yield
    except (OSError, UnicodeError) as error:
        refused.append(unreadable(str(path), error))
    except SourceError as error:
        if error.code != "MP502":
            raise
        refused.append(error)


def _records(path: Path, form: FileFormat, start: int) -> Iterator[bytes]:
    layout = layout_of(path, form)
    if layout is None:
        return
    try:
        for piece in pieces(path, ReadSpec(form, layout, start, Tail.TAKE)):
            for value in piece.values:
                yield value.as_py()
    except EOFError:
        # A compressed file that is still being written: its complete part is sufficient.
        return


def _json_rows(path: Path, form: FileFormat) -> Iterator[dict[str, Any]]:
    for record in _records(path, form, 0):
        try:
            row = parse_json(record)
        except ValueError:
            continue
        if isinstance(row, dict):
            yield row


def _csv_rows(path: Path, form: FileFormat) -> Iterator[dict[str, str]]:
    names: tuple[str, ...] = ()
    start = 0
    if form.header:
        header = read_header(path, form, Tail.TAKE)
        if header is None:
            return
        names, start = header.names, header.end
        _require_distinct(names, path)
    # The reader returns UTF-8 for every encoding.
    utf8 = FileFormat("csv", form.header, form.delimiter, form.quote, form.escape)
    for record in _records(path, form, start):
        try:
            values = fields(record, utf8)
        except (UnicodeDecodeError, csv.Error):
            continue
        names = names or tuple(f"c{number + 1}" for number in range(len(values)))
        if len(values) == len(names):
            nulls = ("", form.null)
            yield {name: "" if value in nulls else value for name, value in zip(names, values, strict=True)}


def _require_distinct(names: tuple[str, ...], path: Path) -> None:
    lowered = [name.lower() for name in names]
    twice = next((name for name in names if lowered.count(name.lower()) > 1), None)
    if twice is not None:
        message = f"The header of '{path}' contains '{twice}' twice."
        raise SourceError("MP505", message, hint="Use each column name once; upper and lower case do not differ.")


def _first_parquet(files: list[Path]) -> Schema:
    """The columns of the first Parquet file; MP502 if there is none."""
    refused = []
    for path in files:
        try:
            return _parquet(path)
        except OSError as error:
            refused.append(unreadable(str(path), error))
        except SourceError as error:
            refused.append(error)
    raise refused[0]


def _parquet(path: Path) -> Schema:
    # Slow to import, and most apps have no Parquet files to check.
    import pyarrow.parquet as pq

    try:
        schema = pq.read_schema(path)
    except pa.ArrowInvalid as error:
        message = f"'{path}' is not a Parquet file: {str(error).splitlines()[0]}"
        raise SourceError("MP502", message, hint="Write it again, or set the format WITH ('format' = ...).") from error
    return Schema.of(Column(field.name, sql_type(field.type)) for field in schema)


def sql_type(type_: pa.DataType) -> pa.DataType:
    """The nearest SQL type: times are in UTC and microseconds, unsigned numbers get the next wider type."""
    for fits, nearest in _NEAREST:
        if fits(type_):
            return nearest(type_)
    return type_


_UNSIGNED = {
    pa.uint8(): pa.int16(),
    pa.uint16(): pa.int32(),
    pa.uint32(): pa.int64(),
    pa.uint64(): pa.decimal128(20, 0),
}
_NEAREST: tuple[tuple[Any, Any], ...] = (
    (pa.types.is_timestamp, lambda _: TIMESTAMP),
    (pa.types.is_date, lambda _: pa.date32()),
    (pa.types.is_time, lambda _: pa.string()),
    (pa.types.is_unsigned_integer, lambda t: _UNSIGNED[t]),
    (pa.types.is_float16, lambda _: pa.float32()),
    (pa.types.is_dictionary, lambda t: sql_type(t.value_type)),
    (pa.types.is_large_string, lambda _: pa.string()),
    (pa.types.is_string_view, lambda _: pa.string()),
    (pa.types.is_null, lambda _: pa.string()),
    (pa.types.is_large_binary, lambda _: pa.binary()),
    (pa.types.is_binary_view, lambda _: pa.binary()),
    (pa.types.is_fixed_size_binary, lambda _: pa.binary()),
    (pa.types.is_decimal, lambda t: pa.decimal128(min(t.precision, 38), t.scale)),
    (pa.types.is_map, lambda t: pa.map_(sql_type(t.key_type), sql_type(t.item_type))),
    (pa.types.is_struct, lambda t: pa.struct([pa.field(f.name, sql_type(f.type)) for f in t])),
    (pa.types.is_list, lambda t: pa.list_(sql_type(t.value_type))),
    (pa.types.is_large_list, lambda t: pa.list_(sql_type(t.value_type))),
    (pa.types.is_fixed_size_list, lambda t: pa.list_(sql_type(t.value_type))),
)
