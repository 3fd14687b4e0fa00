"""Versions of a table in SQLite: lossless storage of values, and which rows each version has."""

from __future__ import annotations

import json
import math
import struct
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any
from weakref import WeakSet

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from sqlglot import exp

from millpond.contracts.table import AggregateCall
from millpond.schema import Schema
from millpond.tables.index import Ids
from millpond.tables.lookup_keys import Keys, among
from millpond.tables.pushdown import pushed, quoted
from millpond.tables.sqlite.database import VALUES_MAX, Database

_DOUBLE = struct.Struct("<d")
# Arrow writes decimals of more digits after the point with an exponent.
_PLAIN_SCALE = 6
# Keys that one query looks up: more are not faster.
_KEYS_AT_ONCE = 500


def to_sqlite(column: pa.Array) -> list[Any]:
    """The values of a column for sqlite3."""
    type_ = column.type
    if pa.types.is_nested(type_):
        return _nested_to_sqlite(column)
    if pa.types.is_date32(type_):
        column = column.cast(pa.int32())
    elif pa.types.is_timestamp(type_):
        column = column.cast(pa.int64())
    elif pa.types.is_decimal(type_) and 0 <= type_.scale <= _PLAIN_SCALE:
        column = column.cast(pa.string())
    values: list[Any] = column.to_pylist()
    if pa.types.is_decimal(column.type):
        return [None if v is None else format(v, "f") for v in values]
    if pa.types.is_floating(type_) and _has_special(column):
        return [_DOUBLE.pack(v) if v is not None and _is_special(v) else v for v in values]
    return values


def from_sqlite(values: Sequence[Any], type_: pa.DataType) -> pa.Array:
    """The column from the values of `to_sqlite`."""
    if pa.types.is_nested(type_):
        return _nested_from_sqlite(values, type_)
    if pa.types.is_boolean(type_):
        return pa.array(values, pa.int8()).cast(type_)
    if pa.types.is_date32(type_):
        return pa.array(values, pa.int32()).cast(type_)
    if pa.types.is_timestamp(type_):
        return pa.array(values, pa.int64()).cast(type_)
    if pa.types.is_decimal(type_):
        return pc.cast(pa.array(values, pa.string()), type_)
    if pa.types.is_floating(type_) and bytes in set(map(type, values)):
        return pa.array([_DOUBLE.unpack(v)[0] if isinstance(v, bytes) else v for v in values], type_)
    return pa.array(values, type_)


def sqlite_type(type_: pa.DataType) -> str:
    """The declared type of a column, which is only for readers of the file: none of them converts stored values."""
    names: tuple[tuple[Callable[[pa.DataType], bool], str], ...] = (
        (pa.types.is_integer, "INTEGER"),
        (pa.types.is_boolean, "INTEGER"),
        (pa.types.is_date32, "INTEGER"),
        (pa.types.is_timestamp, "INTEGER"),
        (pa.types.is_string, "TEXT"),
        (pa.types.is_decimal, "TEXT"),
    )
    return next((name for is_, name in names if is_(type_)), "BLOB")


def _has_special(column: pa.Array) -> bool:
    values = column.to_numpy(zero_copy_only=False)
    return bool((np.isnan(values) | ((values == 0) & np.signbit(values))).any())


def _is_special(value: float) -> bool:
    return math.isnan(value) or (value == 0 and math.copysign(1, value) < 0)


def _nested_to_sqlite(column: pa.Array) -> list[Any]:
    schema = pa.schema([pa.field("v", column.type)])
    return [
        pa.RecordBatch.from_arrays([_alone(column, i)], schema=schema).serialize().to_pybytes()
        if column[i].is_valid
        else None
        for i in range(len(column))
    ]


def _alone(column: pa.Array, row: int) -> pa.Array:
    # `take`, because a slice would be stored with the buffers of the whole column.
    return column.take(pa.array([row]))


def _nested_from_sqlite(values: Sequence[Any], type_: pa.DataType) -> pa.Array:
    schema = pa.schema([pa.field("v", type_)])
    parts = [
        pa.nulls(1, type_) if v is None else pa.ipc.read_record_batch(pa.py_buffer(v), schema).column(0) for v in values
    ]
    return pa.concat_arrays(parts) if parts else pa.array([], type_)


# The removal version of a row that still exists.
ALIVE = 2**63 - 1
_THERE = "millpond_row < ? AND millpond_died > ?"


class Readers:
    """The versions that may still be read."""

    def __init__(self) -> None:
        self._versions: WeakSet[SqliteVersion] = WeakSet()
        self._lock = threading.Lock()

    def add(self, version: SqliteVersion) -> None:
        with self._lock:
            self._versions.add(version)

    def oldest(self) -> int:
        """The smallest number among them."""
        with self._lock:
            return min(version.number for version in self._versions)


@dataclass(frozen=True, eq=False)
class SqliteVersion:
    """A table after one commit."""

    database: Database = field(repr=False)
    name: str
    schema: Schema
    number: int
    rows: int
    live: int
    indexed_columns: tuple[tuple[int, ...], ...] = ()
    nbytes: int = 0
    readers: Readers = field(default_factory=Readers, repr=False)

    def __post_init__(self) -> None:
        self.readers.add(self)

    @property
    def extent(self) -> int:
        return self.rows

    @property
    def stored(self) -> str:
        return stored_name(self.name)

    def at(self, number: int, rows: int, live: int) -> SqliteVersion:
        return replace(self, number=number, rows=rows, live=live)

    def ids(self) -> Ids:
        return self._ids(f"SELECT millpond_row FROM {self.stored} WHERE {_THERE} ORDER BY 1", ())

    def existing(self, ids: Ids) -> npt.NDArray[np.bool_]:
        sql = f"SELECT millpond_row FROM {self.stored} WHERE {_THERE} AND {AMONG}"
        found = self._ids(sql, (as_json(ids),))
        return np.isin(ids, found)

    def all(self, positions: Sequence[int]) -> pa.Table:
        return self._table(f"SELECT {self._names(positions)} FROM {self.stored} WHERE {_THERE} ORDER BY 1", positions)

    def all_but(self, positions: Sequence[int], gone: npt.NDArray[np.bool_]) -> pa.Table:
        ids = self.ids()
        return self.table(ids[~gone[ids]], positions)

    def table(self, ids: Ids, positions: Sequence[int]) -> pa.Table:
        """Some columns of some rows, in the order of `ids`, including removed ones."""
        sql = f"SELECT {self._names(positions)} FROM {self.stored} WHERE {AMONG} ORDER BY 1"
        numbers, rows = self._arrow(sql, (as_json(ids),), positions)
        places = np.searchsorted(numbers, ids)
        assert len(numbers) or not len(ids)
        return rows.take(pa.array(places))

    def locate(self, keys: Keys) -> Ids:
        found = np.full(len(keys), -1, dtype=np.int64)
        columns = tuple(self.schema.position(n) for n in self.schema.key)
        if not self.live:
            return found
        if self._are_floating(columns):
            return self._scanned(columns, keys, found)
        places, ids = self._by_values(columns, keys)
        found[places] = ids
        keys.looked_up = (self, found)
        return found

    def located(self, keys: Keys) -> Ids:
        """The same for keys that were probably looked up before."""
        if keys.looked_up is not None and keys.looked_up[0] is self:
            return keys.looked_up[1]
        return self.locate(keys)

    def locate_by(self, columns: tuple[int, ...], keys: Keys) -> Ids | None:
        if columns not in self.indexed_columns or self._are_floating(columns):
            return None
        return np.unique(self._by_values(columns, keys)[1])

    def files(self) -> None:
        """None: Spark cannot read the rows itself."""

    def aggregated(self, calls: Sequence[AggregateCall], condition: exp.Expression | None) -> None:
        """None: the rows are aggregated here."""

    def narrowed(self, condition: exp.Expression, parameters: Sequence[Any]) -> Ids | None:
        part = pushed(condition, self.schema, parameters)
        if part is None:
            return None
        sql = f"SELECT millpond_row FROM {self.stored} WHERE {_THERE} AND {part.sql} ORDER BY 1"
        return self._ids(sql, part.values)

    def _by_values(self, columns: tuple[int, ...], keys: Keys) -> tuple[Ids, Ids]:
        """The rows that have one of some values, each with the place of its values."""
        asked = [to_sqlite(c) for c in keys.columns]
        # In the order of the index: neighbours are on the same page.
        order = _sorted(keys.columns[0])
        at_once = min(_KEYS_AT_ONCE, VALUES_MAX // len(columns))
        names = [f"r.{quoted(self.schema.columns[p].name)}" for p in columns]
        parts = []
        for start in range(0, len(order), at_once):
            places = order[start : start + at_once]
            values = [column[place] for place in places for column in asked]
            text = _lookup_text(self.stored, tuple(names), len(places))
            parts.append(_pairs(self.database.read(text, (*values, self.rows, self.number)), places))
        found = [_pairs([], order), *parts]
        return np.concatenate([places for places, _ in found]), np.concatenate([ids for _, ids in found])

    def _are_floating(self, columns: tuple[int, ...]) -> bool:
        """Whether the values may include 0.0 and -0.0, which are equal but stored differently."""
        return any(pa.types.is_floating(self.schema.columns[p].type) for p in columns)

    def _scanned(self, columns: tuple[int, ...], keys: Keys, found: Ids) -> Ids:
        own = Keys(tuple(c.combine_chunks() for c in self.all(columns).columns))
        ids = self.ids()
        for place in range(len(keys)):
            one = Keys(tuple(c.slice(place, 1) for c in keys.columns))
            same = ids[among(own, one)] if len(own) else ids
            if len(same):
                found[place] = same[0]
        return found

    def _ids(self, sql: str, values: Sequence[Any]) -> Ids:
        found = self.database.read(sql, (self.rows, self.number, *values))
        return np.array([row[0] for row in found], dtype=np.int64)

    def _names(self, positions: Sequence[int]) -> str:
        return ", ".join(["millpond_row", *(quoted(self.schema.columns[p].name) for p in positions)])

    def _table(self, sql: str, positions: Sequence[int]) -> pa.Table:
        return self._arrow(sql, (self.rows, self.number), positions)[1]

    def _arrow(self, sql: str, values: Sequence[Any], positions: Sequence[int]) -> tuple[Ids, pa.Table]:
        """The numbers of the rows of a query, and their columns."""
        schema = pa.schema([self.schema.arrow().field(p) for p in positions])
        numbers, parts = [np.empty(0, dtype=np.int64)], []
        for columns in self.database.read_columns(sql, values):
            numbers.append(np.array(columns[0], dtype=np.int64))
            arrays = [from_sqlite(c, f.type) for c, f in zip(columns[1:], schema, strict=True)]
            parts.append(pa.RecordBatch.from_arrays(arrays, schema=schema))
        return np.concatenate(numbers), pa.Table.from_batches(parts, schema=schema)


@lru_cache(maxsize=1000)
def _lookup_text(stored: str, names: tuple[str, ...], count: int) -> str:
    """A query for the rows that have one of some values."""
    marks = ", ".join("?" * len(names))
    listed = ", ".join(f"({place}, {marks})" for place in range(count))
    wanted = ", ".join(f"k{n}" for n in range(len(names)))
    # IS instead of =, because in a table of groups NULL is a key like any other.
    same = " AND ".join(f"{name} IS k.k{n}" for n, name in enumerate(names))
    keys = f"WITH k (place, {wanted}) AS (VALUES {listed})"
    return f"{keys} SELECT k.place, r.millpond_row FROM k CROSS JOIN {stored} AS r ON {same} WHERE {_THERE}"


def _sorted(column: pa.Array) -> Ids:
    """The places of values in their order, if they have one."""
    if pa.types.is_nested(column.type) or len(column) < 2:
        return np.arange(len(column))
    return np.asarray(pc.sort_indices(column), dtype=np.int64)


def _pairs(found: Sequence[tuple[int, int]], places: Ids) -> tuple[Ids, Ids]:
    pairs = np.array(found, dtype=np.int64).reshape(-1, 2)
    return places[pairs[:, 0]], pairs[:, 1]


AMONG = "millpond_row IN (SELECT value FROM json_each(?))"


def stored_name(name: str) -> str:
    """The name of the SQLite table with a table's rows; the table's own name is a view of the live ones."""
    return quoted(f"millpond_rows_{name}")


def as_json(ids: Ids) -> str:
    return json.dumps(ids.tolist())
