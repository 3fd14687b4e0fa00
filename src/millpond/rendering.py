"""Rows as text: Arrow columns as JSON lines, CSV and aligned columns, with the same rules for every output.

Decimals and times are written from Arrow's digits, never through a float or the local time zone: a decimal keeps its
scale, a timestamp is `2026-03-01T10:00:00Z` with a fraction only when it has one, and without `Z` when it has no zone.
"""

from __future__ import annotations

import base64
import json
import re
import unicodedata
from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise

import pyarrow as pa
import pyarrow.compute as pc

# Rows rendered at a time, so that a large result is not in memory twice.
BATCH_ROWS = 8_192

# Characters that would move the cursor or change the terminal, shown as escapes instead.
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f]")
_CSV_SPECIAL = re.compile(r'[",\r\n]')
_NOT_FINITE = {"nan": '"NaN"', "inf": '"Infinity"', "-inf": '"-Infinity"'}


def json_lines(table: pa.Table | pa.RecordBatch, *, exact_numbers: bool = False) -> Iterator[str]:
    """One JSON object per row. Decimals are strings of their exact value, or numbers with `exact_numbers`."""
    names = [f"{_quoted(name)}: " for name in table.schema.names]
    for batch in _batches(table):
        columns = [json_texts(column, exact_numbers=exact_numbers) for column in batch.columns]
        for values in zip(*columns, strict=True):
            yield "{" + ", ".join([name + value for name, value in zip(names, values, strict=True)]) + "}"


def csv_lines(table: pa.Table | pa.RecordBatch) -> Iterator[str]:
    """A header and one line per row; NULL is an empty field, the empty string is a pair of quotes."""
    yield ",".join(map(_csv_field, table.schema.names))
    for batch in _batches(table):
        yield from map(",".join, zip(*map(csv_texts, batch.columns), strict=True))


def csv_texts(column: pa.Array) -> list[str]:
    """Each value of a column as a CSV field."""
    return [_csv_field(text) for text in plain_texts(column)]


def text_lines(table: pa.Table | pa.RecordBatch) -> Iterator[str]:
    """Aligned columns under a header, for people: numbers to the right, NULL as a word, control characters escaped."""
    batches = _batches(table)
    names = [_shown(name) for name in table.schema.names]
    columns = [[_shown(t) for batch in batches for t in plain_texts(batch.column(i))] for i in range(len(names))]
    widths = [max(map(cells, [name, *texts])) for name, texts in zip(names, columns, strict=True)]
    right = [is_number(field.type) for field in table.schema]
    yield _aligned(names, widths, right)
    yield "  ".join("-" * width for width in widths)
    for values in zip(*columns, strict=True):
        yield _aligned(values, widths, right)


def json_texts(column: pa.Array, *, exact_numbers: bool = False) -> list[str]:
    """The JSON text of each value of a column, nested ones included."""
    column = _simplified(column)
    texts = _writer(column.type)(column, exact_numbers)
    if column.null_count == 0:
        return texts
    return [text if valid else "null" for text, valid in zip(texts, column.is_valid().to_pylist(), strict=True)]


def plain_texts(column: pa.Array) -> list[str | None]:
    """Each value as bare text, None for NULL: a string is itself, a nested value is its JSON."""
    column = _simplified(column)
    if pa.types.is_string(column.type):
        return list(column.to_pylist())
    texts = json_texts(column)
    if not pa.types.is_nested(column.type):
        # These are quoted dates, decimals or base64, which contain no escapes, so removing the quotes is enough.
        texts = [text.strip('"') for text in texts]
    return [text if valid else None for text, valid in zip(texts, column.is_valid().to_pylist(), strict=True)]


def shown_texts(column: pa.ChunkedArray) -> list[str]:
    """Each value as people see it: NULL written out, control codes escaped."""
    return [_shown(text) for text in plain_texts(column)]


def cells(text: str) -> int:
    """The width of a text in terminal cells: two for a wide East Asian character, none for a combining one."""
    if text.isascii():
        return len(text)
    return sum(0 if unicodedata.combining(c) else 2 if unicodedata.east_asian_width(c) in "WF" else 1 for c in text)


def _batches(table: pa.Table | pa.RecordBatch) -> Sequence[pa.RecordBatch]:
    return [table] if isinstance(table, pa.RecordBatch) else list(table.to_batches(max_chunksize=BATCH_ROWS))


def _simplified(column: pa.Array) -> pa.Array:
    """The column without encodings that change nothing about its values."""
    if isinstance(column, pa.ChunkedArray):
        column = column.combine_chunks()
    if isinstance(column, pa.ExtensionArray):
        column = column.storage
    if pa.types.is_dictionary(column.type):
        column = column.dictionary_decode()
    if pa.types.is_run_end_encoded(column.type):
        column = pc.run_end_decode(column)
    if pa.types.is_large_string(column.type) or pa.types.is_string_view(column.type):
        column = column.cast(pa.string())
    return column


_Writer = Callable[[pa.Array, bool], list[str]]


def _writer(type_: pa.DataType) -> _Writer:
    for fits, write in _WRITERS:
        if fits(type_):
            return write
    return _other


def _null(column: pa.Array, _: bool) -> list[str]:
    return ["null"] * len(column)


def _as_written(column: pa.Array, _: bool) -> list[str]:
    return [text or "null" for text in column.cast(pa.string()).to_pylist()]


def _float(column: pa.Array, _: bool) -> list[str]:
    # Arrow writes the shortest digits that identify the value, of FLOAT too; a whole number gets `.0` so that it reads
    # as a float.
    texts = [text or "null" for text in column.cast(pa.string()).to_pylist()]
    return [_NOT_FINITE.get(text) or (f"{text}.0" if text.lstrip("-").isdigit() else text) for text in texts]


def _decimal(column: pa.Array, exact_numbers: bool) -> list[str]:
    # `format` because Arrow and str() both write small decimals with an exponent.
    form = "{:f}" if exact_numbers else '"{:f}"'
    return ["null" if value is None else form.format(value) for value in column.to_pylist()]


def _string(column: pa.Array, _: bool) -> list[str]:
    return ["null" if value is None else _quoted(value) for value in column.to_pylist()]


def _binary(column: pa.Array, _: bool) -> list[str]:
    values = column.to_pylist()
    return ["null" if value is None else f'"{base64.b64encode(value).decode("ascii")}"' for value in values]


def _day_or_time(column: pa.Array, _: bool) -> list[str]:
    return [f'"{text}"' for text in _short_fraction(column.cast(pa.string())).to_pylist()]


def _timestamp(column: pa.Array, _: bool) -> list[str]:
    if column.type.tz is not None:
        column = column.cast(pa.timestamp(column.type.unit, "UTC"))
    texts = pc.replace_substring(column.cast(pa.string()), " ", "T", max_replacements=1)
    return [f'"{text}"' for text in _short_fraction(texts).to_pylist()]


def _short_fraction(texts: pa.Array) -> pa.Array:
    """Times without the zeros that end their fraction."""
    shorter = pc.replace_substring_regex(texts, r"(\.[0-9]*[1-9])0+(Z?)$", r"\1\2")
    return pc.replace_substring_regex(shorter, r"\.0+(Z?)$", r"\1")


def _list(column: pa.Array, exact_numbers: bool) -> list[str]:
    return ["[" + ", ".join(items) + "]" for items in _sliced(column, column.values, exact_numbers)]


def _fixed_list(column: pa.Array, exact_numbers: bool) -> list[str]:
    return _list(column.cast(pa.list_(column.type.value_type)), exact_numbers)


def _map(column: pa.Array, exact_numbers: bool) -> list[str]:
    all_keys = _sliced(column, column.keys, exact_numbers)
    all_values = _sliced(column, column.items, exact_numbers)
    return [
        "{" + ", ".join(f"{_as_name(k)}: {v}" for k, v in zip(keys, values, strict=True)) + "}"
        for keys, values in zip(all_keys, all_values, strict=True)
    ]


def _as_name(text: str) -> str:
    return text if text.startswith('"') else _quoted(text)


def _sliced(column: pa.Array, values: pa.Array, exact_numbers: bool) -> Iterator[list[str]]:
    """The texts of each entry's values; a sliced column uses only those between its first and last offset."""
    offsets = column.offsets.to_pylist()
    first = offsets[0]
    texts = json_texts(values[first : offsets[-1]], exact_numbers=exact_numbers)
    return (texts[start - first : end - first] for start, end in pairwise(offsets))


def _struct(column: pa.Array, exact_numbers: bool) -> list[str]:
    fields = list(column.type)
    if not fields:
        return ["{}"] * len(column)
    names = [f"{_quoted(field.name)}: " for field in fields]
    columns = [json_texts(column.field(i), exact_numbers=exact_numbers) for i in range(len(fields))]
    return [
        "{" + ", ".join([name + value for name, value in zip(names, values, strict=True)]) + "}"
        for values in zip(*columns, strict=True)
    ]


def _other(column: pa.Array, _: bool) -> list[str]:
    return ["null" if value is None else _quoted(str(value)) for value in column.to_pylist()]


# The first entry whose test accepts the type writes the column.
_WRITERS: tuple[tuple[Callable[[pa.DataType], bool], _Writer], ...] = (
    (pa.types.is_string, _string),
    (pa.types.is_integer, _as_written),
    (pa.types.is_boolean, _as_written),
    (pa.types.is_decimal, _decimal),
    (pa.types.is_timestamp, _timestamp),
    (pa.types.is_floating, _float),
    (pa.types.is_date, _day_or_time),
    (pa.types.is_time, _day_or_time),
    (pa.types.is_struct, _struct),
    (pa.types.is_map, _map),
    (pa.types.is_list, _list),
    (pa.types.is_large_list, _list),
    (pa.types.is_fixed_size_list, _fixed_list),
    (pa.types.is_binary, _binary),
    (pa.types.is_large_binary, _binary),
    (pa.types.is_fixed_size_binary, _binary),
    (pa.types.is_binary_view, _binary),
    (pa.types.is_null, _null),
)


def _quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)


def _csv_field(text: str | None) -> str:
    if text is None:
        return ""
    if text == "" or text != text.strip() or _CSV_SPECIAL.search(text):
        return '"' + text.replace('"', '""') + '"'
    return text


def _shown(text: str | None) -> str:
    if text is None:
        return "NULL"
    return _CONTROL.sub(lambda found: found[0].encode("unicode_escape").decode("ascii"), text)


def is_number(type_: pa.DataType) -> bool:
    """Whether values of a type are aligned to the right."""
    return bool(pa.types.is_integer(type_) or pa.types.is_floating(type_) or pa.types.is_decimal(type_))


def _aligned(values: Sequence[str], widths: Sequence[int], right: Sequence[bool]) -> str:
    parts = []
    for value, width, to_right in zip(values, widths, right, strict=True):
        blank = " " * (width - cells(value))
        parts.append(blank + value if to_right else value + blank)
    return "  ".join(parts).rstrip()
