"""Arrow's values as MySQL reads them: rows of literals, and the types of a table that is made."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from millpond.rendering import plain_texts

_TYPES: tuple[tuple[Any, str], ...] = (
    (pa.types.is_boolean, "tinyint(1)"),
    (pa.types.is_int8, "tinyint"),
    (pa.types.is_int16, "smallint"),
    (pa.types.is_int32, "int"),
    (pa.types.is_int64, "bigint"),
    (pa.types.is_float32, "float"),
    (pa.types.is_float64, "double"),
    (pa.types.is_date, "date"),
    (pa.types.is_timestamp, "datetime(6)"),
    (pa.types.is_binary, "longblob"),
    (pa.types.is_nested, "json"),
)
# The part of a text that a key can have.
KEY_CHARACTERS, KEY_BYTES = 191, 255
# Rows of one statement, and about how many bytes.
ROWS_MAX, BYTES_MAX = 5_000, 1 << 20


def quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"


def type_text(type_: pa.DataType, *, is_key: bool) -> str:
    """The type of a column that is made for values of a type. Keys are compared by their bytes, as here."""
    if pa.types.is_decimal(type_):
        return f"decimal({type_.precision},{type_.scale})"
    if is_key and pa.types.is_binary(type_):
        return f"varbinary({KEY_BYTES})"
    plain = f"varchar({KEY_CHARACTERS}) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin" if is_key else "longtext"
    return next((text for fits, text in _TYPES if fits(type_)), plain)


def row_literals(rows: pa.Table) -> pa.Array:
    """Each row as `(1, 'a', NULL)`."""
    columns = [pc.fill_null(_literals(column), "NULL") for column in rows.columns]
    joined = pc.binary_join_element_wise(*columns, ", ")
    return pc.binary_join_element_wise("(", joined, ")", "")


def portions(literals: pa.Array) -> Iterator[str]:
    """Literals of rows, joined for statements of a bounded size."""
    texts: list[str] = []
    size = 0
    for text in literals.to_pylist():
        texts.append(text)
        size += len(text)
        if len(texts) >= ROWS_MAX or size >= BYTES_MAX:
            yield ", ".join(texts)
            texts, size = [], 0
    if texts:
        yield ", ".join(texts)


def _literals(column: pa.ChunkedArray) -> pa.Array:
    values = column.combine_chunks()
    if isinstance(values, pa.ChunkedArray):
        values = pa.concat_arrays(values.chunks) if values.num_chunks else pa.array([], column.type)
    type_ = values.type
    if pa.types.is_boolean(type_):
        return values.cast(pa.int8()).cast(pa.string())
    if pa.types.is_floating(type_):
        # What is not a number has no literal: a text that the server rejects.
        return _quoted(values.cast(pa.string()))
    if pa.types.is_integer(type_) or pa.types.is_decimal(type_):
        return values.cast(pa.string())
    if pa.types.is_timestamp(type_):
        return _quoted(values.cast(pa.timestamp("us")).cast(pa.string()))
    if pa.types.is_date(type_):
        return _quoted(values.cast(pa.string()))
    if pa.types.is_binary(type_):
        return pa.array([None if v is None else f"x'{v.hex()}'" for v in values.to_pylist()], pa.string())
    texts = values if pa.types.is_string(type_) else pa.array(plain_texts(values), pa.string())
    return _quoted(pc.replace_substring(pc.replace_substring(texts, "\\", "\\\\"), "'", "''"))


def _quoted(texts: pa.Array) -> pa.Array:
    return pc.binary_join_element_wise("'", texts, "'", "")
