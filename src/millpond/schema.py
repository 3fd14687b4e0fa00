"""Column and Schema, the columns of every relation as Arrow types, and the SQL names of these types."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, TypeAlias

import pyarrow as pa

from millpond.errors import SourceError

TIMESTAMP = pa.timestamp("us", tz="UTC")
TIMESTAMP_NTZ = pa.timestamp("us")

# A value of a column in Python: its type is that of the column, which only the schema of a table determines.
Value: TypeAlias = Any

SIMPLE_TYPES: dict[str, pa.DataType] = {
    "BOOLEAN": pa.bool_(),
    "TINYINT": pa.int8(),
    "SMALLINT": pa.int16(),
    "INT": pa.int32(),
    "BIGINT": pa.int64(),
    "FLOAT": pa.float32(),
    "DOUBLE": pa.float64(),
    "STRING": pa.string(),
    "BINARY": pa.binary(),
    "DATE": pa.date32(),
    "TIMESTAMP": TIMESTAMP,
    "TIMESTAMP_NTZ": TIMESTAMP_NTZ,
    "VOID": pa.null(),
}
_NAMES = {type_: name for name, type_ in SIMPLE_TYPES.items()}


def type_name(type_: pa.DataType | None) -> str:
    """The SQL spelling of an Arrow type: `DECIMAL(12,2)`, `ARRAY<INT>`; an unknown type is `?`."""
    if type_ is None:
        return "?"
    if type_ in _NAMES:
        return _NAMES[type_]
    if pa.types.is_decimal(type_):
        return f"DECIMAL({type_.precision},{type_.scale})"
    if pa.types.is_map(type_):
        return f"MAP<{type_name(type_.key_type)}, {type_name(type_.item_type)}>"
    if pa.types.is_struct(type_):
        fields = ", ".join(f"{f.name}: {type_name(f.type)}" for f in type_)
        return f"STRUCT<{fields}>"
    if pa.types.is_list(type_) or pa.types.is_large_list(type_):
        return f"ARRAY<{type_name(type_.value_type)}>"
    if pa.types.is_large_string(type_) or pa.types.is_dictionary(type_):
        return "STRING"
    if pa.types.is_timestamp(type_):
        return "TIMESTAMP" if type_.tz else "TIMESTAMP_NTZ"
    if pa.types.is_duration(type_) or pa.types.is_interval(type_):
        return "INTERVAL"
    return str(type_).upper()


@dataclass(frozen=True)
class Column:
    """A column; `type` is None when it is known only at run time; `default` is SQL text."""

    name: str
    type: pa.DataType | None
    nullable: bool = True
    default: str | None = None

    def __str__(self) -> str:
        return f"{self.name} {type_name(self.type)}{'' if self.nullable else ' NOT NULL'}"


@dataclass(frozen=True)
class Check:
    """A CHECK constraint: `text` is a condition in SQL over the columns of one row; `written` is as the user wrote it,
    where paths have been expanded."""

    name: str
    text: str
    written: str = field(default="", compare=False)

    @property
    def shown(self) -> str:
        return self.written or self.text


@dataclass(frozen=True)
class Schema:
    """An ordered set of columns; names are unique and looked up without regard to case."""

    columns: tuple[Column, ...]
    key: tuple[str, ...] = ()
    checks: tuple[Check, ...] = ()

    @classmethod
    def of(cls, columns: Iterable[Column], key: Iterable[str] = ()) -> Schema:
        return cls(tuple(columns), tuple(key))

    @classmethod
    def from_arrow(cls, schema: pa.Schema, key: Iterable[str] = ()) -> Schema:
        return cls(tuple(Column(f.name, f.type, f.nullable) for f in schema), tuple(key))

    @cached_property
    def _positions(self) -> dict[str, int]:
        return {c.name.lower(): i for i, c in enumerate(self.columns)}

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(c.name for c in self.columns)

    def __len__(self) -> int:
        return len(self.columns)

    def __iter__(self) -> Iterator[Column]:
        return iter(self.columns)

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and name.lower() in self._positions

    def __getitem__(self, name: str) -> Column:
        return self.columns[self._positions[name.lower()]]

    def get(self, name: str) -> Column | None:
        position = self._positions.get(name.lower())
        return None if position is None else self.columns[position]

    def position(self, name: str) -> int:
        return self._positions[name.lower()]

    def with_key(self, key: Iterable[str]) -> Schema:
        return replace(self, key=tuple(key))

    @property
    def known(self) -> bool:
        """Whether every column's type is known."""
        return all(c.type is not None for c in self.columns)

    @property
    def settled(self) -> bool:
        """Whether there are columns and every type is one that a table can hold."""
        return len(self.columns) > 0 and all(c.type is not None and not pa.types.is_null(c.type) for c in self.columns)

    def arrow(self) -> pa.Schema:
        """The Arrow schema; every type must be known."""
        return self._arrow

    @cached_property
    def _arrow(self) -> pa.Schema:
        assert self.known, f"unknown types in {self}"
        return pa.schema([pa.field(c.name, c.type, c.nullable) for c in self.columns])


def fitted(rows: pa.Table, columns: Schema, shown: str) -> pa.Table:
    """Rows of a server's table in the columns and types of ours: absent columns are NULL, others are cast; MP503 for a
    value that cannot be cast."""
    found = {}
    for column in columns:
        if column.name not in rows.column_names:
            found[column.name] = pa.nulls(rows.num_rows, column.type)
            continue
        values = rows[column.name]
        try:
            found[column.name] = values if values.type == column.type else values.cast(column.type)
        except pa.ArrowInvalid as error:
            message = f"Column '{column.name}' of '{shown}' has another type now: {error}"
            hint = "Start the app again: it then takes the column as it is."
            raise SourceError("MP503", message, hint=hint) from error
    return pa.table(found)
