"""Parses whole pieces of text with Arrow, where its result is certainly the same as Spark's.

Arrow is several times as fast as Spark's parsers and strict: it accepts a piece only if every record has every value in
exactly the declared type. It rejects anything else (a number to be cast or rounded, a name in another case, an invalid
record), and those records are parsed by Spark. The checks in this module keep back what Arrow would accept although
Spark reads it differently.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from io import BytesIO
from itertools import chain, islice
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
import pyarrow.json

from millpond.schema import TIMESTAMP, Schema
from millpond.sources.records.boundaries import are_single_objects, quotes_close_fields
from millpond.sources.records.formats import FileFormat, column_place
from millpond.sources.records.text_reader import Piece, is_utf8

# A rejected piece is halved this many times, so that one bad record does not slow down all others.
HALVINGS_MAX = 6
HALVED_ROWS_MIN = 64
# The number of pieces that are parsed concurrently; twice as many are in memory.
AT_ONCE = min(os.cpu_count() or 1, 4)

# Types that Arrow parses like Spark, or that are read as text and cast.
_PLAIN = (pa.bool_(), pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.float64(), pa.string())
_AS_TEXT = {TIMESTAMP, pa.date32()}
_DATE = r"^\d{4}-\d{2}-\d{2}$"
_TIME = r"^\d{4}-\d{2}-\d{2}[T ]\d{2}:\d{2}:\d{2}(\.\d{1,6})?"
_ZONED, _UNZONED = _TIME + r"(Z|[+-]\d{2}:\d{2})$", _TIME + "$"
# Arrow accepts these, JSON and ANSI casts do not.
_HEX = (b"0x", b"0X")
_NOT_NUMBERS = (b"NaN", b"Inf")

# Parses some records into columns; None if Arrow must not or cannot read them.
Parse = Callable[[pa.Array], pa.Table | None]
Part = tuple[Piece, pa.Table | None]


def quick_parser(form: FileFormat, layout: str, columns: Schema, names: Sequence[str]) -> Parse | None:
    """The function that parses pieces of this kind, or None if Arrow cannot; `names` is a CSV file's header."""
    if not all(_is_quick(column.type, layout) for column in columns):
        return None
    if layout != "csv":
        return partial(_parse_json, columns=columns)
    one_byte = all(len(form.encoded(text)) <= 1 for text in (form.delimiter, form.quote, form.escape))
    if form.null is not None or not one_byte or (not form.quote and form.escape):
        return None
    return partial(_parse_csv, columns=columns, names=names, form=form)


def parsed(pieces: Iterable[Piece], parse: Parse | None) -> Iterator[Part]:
    """The pieces in parts, each with its columns, or None if Spark must parse it; several are parsed concurrently,
    because Arrow releases the GIL."""
    waiting: deque[Future[list[Part]]] = deque()
    following = iter(pieces)
    first = list(islice(following, 2))
    if len(first) < 2:
        # A small file has one piece, for which threads would cost more than parsing it.
        for piece in first:
            yield from _parts(piece, None if piece.problem else parse, HALVINGS_MAX)
        return
    with ThreadPoolExecutor(AT_ONCE) as pool:
        for piece in chain(first, following):
            waiting.append(pool.submit(_parts, piece, None if piece.problem else parse, HALVINGS_MAX))
            if len(waiting) > AT_ONCE:
                yield from waiting.popleft().result()
        while waiting:
            yield from waiting.popleft().result()


def _parts(piece: Piece, parse: Parse | None, halvings: int) -> list[Part]:
    table = None if parse is None or not len(piece) else parse(piece.values)
    if table is not None or parse is None or halvings == 0 or len(piece) < HALVED_ROWS_MIN:
        return [(piece, table)]
    return [found for half in piece.halves() for found in _parts(half, parse, halvings - 1)]


def _is_quick(type_: pa.DataType | None, layout: str) -> bool:
    if type_ in _PLAIN or type_ in _AS_TEXT or pa.types.is_decimal(type_):
        return True
    return layout != "csv" and _is_quick_inside(type_)


def _is_quick_inside(type_: Any) -> bool:
    if pa.types.is_struct(type_):
        return all(_is_quick_inside(field.type) for field in type_)
    if pa.types.is_list(type_):
        return _is_quick_inside(type_.value_type)
    return type_ in _PLAIN or bool(pa.types.is_decimal(type_))


def _parse_json(values: pa.Array, columns: Schema) -> pa.Table | None:
    data, offsets = _bytes(values)
    if not is_utf8(values) or any(word in data for word in _NOT_NUMBERS if word[:1] in data):
        return None
    if not are_single_objects(data, offsets):
        return None
    schema = pa.schema([(c.name, pa.string() if c.type in _AS_TEXT else c.type) for c in columns])
    options = pyarrow.json.ParseOptions(explicit_schema=schema, unexpected_field_behavior="ignore")
    reading = pyarrow.json.ReadOptions(use_threads=False, block_size=len(data) + 1)
    try:
        table = pyarrow.json.read_json(BytesIO(data), reading, options)
    except pa.ArrowInvalid:
        return None
    if table.num_rows != len(values) or _has_other_letters(data, table):
        return None
    return _cast(table, columns)


def _parse_csv(values: pa.Array, columns: Schema, names: Sequence[str], form: FileFormat) -> pa.Table | None:
    data, _ = _bytes(values)
    if not is_utf8(values) or any(prefix in data for prefix in _HEX) or not quotes_close_fields(data, form):
        return None
    # A column that was discovered in other files may be absent in this one.
    wanted = {c.name: place for c in columns if (place := column_place(c.name, names)) is not None}
    read_as = {c.name: pa.string() if c.type in _AS_TEXT else c.type for c in columns}
    types = {f"f{place}": read_as[name] for name, place in wanted.items()}
    doubled = form.escape == form.quote
    parsing = pyarrow.csv.ParseOptions(
        delimiter=form.delimiter,
        quote_char=form.quote or False,
        double_quote=doubled,
        escape_char=False if doubled or not form.escape else form.escape,
        newlines_in_values=True,
    )
    converting = pyarrow.csv.ConvertOptions(
        check_utf8=False,
        column_types=types,
        include_columns=list(types),
        null_values=[""],
        strings_can_be_null=True,
        quoted_strings_can_be_null=False,
        true_values=["true"],
        false_values=["false"],
    )
    fields = [f"f{place}" for place in range(len(names))]
    reading = pyarrow.csv.ReadOptions(use_threads=False, block_size=len(data) + 1, column_names=fields)
    try:
        table = _not_cancelled(lambda: pyarrow.csv.read_csv(BytesIO(data), reading, parsing, converting))
    except pa.ArrowInvalid:
        return None
    table = table.select(list(types)).rename_columns(list(wanted))
    for name in (c.name for c in columns if c.name not in wanted):
        table = table.append_column(name, pa.nulls(table.num_rows, read_as[name]))
    return _cast(table, columns) if table.num_rows == len(values) else None


def _not_cancelled(read: Callable[[], pa.Table]) -> pa.Table:
    """What is read; again after a signal, which interrupts Arrow in the main thread, although the signal's handler,
    which Arrow calls, decides what it means."""
    while True:
        try:
            return read()
        except pa.ArrowCancelled:
            continue


def _bytes(values: pa.Array) -> tuple[bytes, npt.NDArray[np.int32]]:
    """The bytes of consecutive records, including line ends; and the offsets of their starts and of the last end."""
    offsets = np.frombuffer(values.buffers()[1], np.int32)[values.offset : values.offset + len(values) + 1]
    first, last = int(offsets[0]), int(offsets[-1])
    return values.buffers()[2][first:last].to_pybytes(), offsets - np.int32(first)


def _has_other_letters(data: bytes, table: pa.Table) -> bool:
    """Whether the name of a column with NULLs is in the text in another case, which Arrow does not match."""
    absent = [name for name in table.column_names if table.column(name).null_count]
    if not absent:
        return False
    text = data.decode()
    lowered = text.lower()
    return any(lowered.count(f'"{name.lower()}"') != text.count(f'"{name}"') for name in absent)


def _cast(table: pa.Table, columns: Schema) -> pa.Table | None:
    """The table with dates and times cast from text; None if one is not in the plain form."""
    arrays = []
    for column in columns:
        array = table.column(column.name)
        found = array if column.type not in _AS_TEXT else _time(array, column.type)
        if found is None:
            return None
        arrays.append(found)
    return pa.Table.from_arrays(arrays, names=list(columns.names))


def _time(texts: pa.ChunkedArray, type_: pa.DataType | None) -> pa.ChunkedArray | None:
    """Dates or times from texts of one plain form; a time without zone is in UTC."""
    forms = ((_DATE, pa.date32()),) if type_ == pa.date32() else ((_ZONED, type_), (_UNZONED, pa.timestamp("us")))
    for form, target in forms:
        if pc.all(pc.match_substring_regex(texts, form), min_count=0).as_py():
            try:
                return texts.cast(target).cast(type_)
            except pa.ArrowInvalid:
                return None
    return None
