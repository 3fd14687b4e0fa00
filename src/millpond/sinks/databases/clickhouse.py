"""clickhouse:// as a sink: rows are appended, by HTTP or by the server's own protocol.

Guarantee: at least once. After a crash the last output may be sent again. Each part of it has a deduplication token, by
which a table that remembers inserts ignores what it has already: a replicated one, or one with a
`non_replicated_deduplication_window`.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import pyarrow as pa

from millpond.contracts.sink import Sink, SinkPlugin, SinkSpec
from millpond.databases.address import SINK_PARAMETERS, located_sink, set_by_sink, wrong_sink
from millpond.databases.clickhouse.clickhouse_errors import rejection, translated
from millpond.databases.clickhouse.connection import (
    SCHEME,
    TOKEN_VERSION,
    address,
    connect,
    literal_text,
    quoted,
)
from millpond.databases.clickhouse.stored_values import stored
from millpond.databases.clickhouse.types import ChType, type_of
from millpond.databases.options import WRITING
from millpond.databases.sql_text import Statement
from millpond.errors import SinkError, SourceError
from millpond.options import BOOLEAN, Option, choice
from millpond.schema import Column, Schema
from millpond.sinks.databases.sink import DatabaseSink, Rejected, Target, written_by_halves
from millpond.sinks.outbox import Parcel

PROTOCOL = "protocol"
PARAMETERS = (*SINK_PARAMETERS, PROTOCOL)
OPTIONS = (
    *(option for option in WRITING if option.name != "key"),
    Option(PROTOCOL, choice("http", "native"), "http", "The protocol: HTTP, or the server's own."),
    Option("compression", BOOLEAN, "true", "Whether requests by HTTP are compressed."),
)
COLUMNS = "SELECT name, type FROM system.columns WHERE database = ? AND table = ? AND default_kind IN ('', 'DEFAULT')"
_TYPES: tuple[tuple[Any, str], ...] = (
    (pa.types.is_boolean, "UInt8"),
    (pa.types.is_int8, "Int8"),
    (pa.types.is_int16, "Int16"),
    (pa.types.is_int32, "Int32"),
    (pa.types.is_int64, "Int64"),
    (pa.types.is_float32, "Float32"),
    (pa.types.is_float64, "Float64"),
    (pa.types.is_date, "Date32"),
    (pa.types.is_timestamp, "DateTime64(6, 'UTC')"),
)


class ClickhouseTarget(Target):
    """One table of ClickHouse, over one connection."""

    def __init__(self, spec: SinkSpec) -> None:
        self._spec = spec
        self._address = address(spec.values)
        self._database = spec.values["schema"] or self._address.database or "default"
        with self._translated():
            self._connection = connect(spec.values, spec.base)
            self._takes_tokens = self._connection.version() >= TOKEN_VERSION
            self._describe()

    @contextmanager
    def _translated(self) -> Iterator[None]:
        """Errors of the driver as those of a sink."""
        try:
            with translated(self._address, f"'{self._spec.shown}'"):
                yield
        except SourceError as error:
            problem = error.problems[0]
            if problem.code == "MP309":
                raise
            code = "MP602" if problem.code == "MP506" else "MP601"
            message = problem.message.replace("cannot be read", "cannot be written")
            raise SinkError(code, message, hint=problem.hint) from error

    @property
    def _name(self) -> tuple[str, str]:
        return self._database, self._spec.values["table"]

    def _describe(self) -> None:
        found = self._connection.rows(literal_text(Statement(COLUMNS, self._name)))
        self._types: dict[str, ChType] = {name: type_of(text) for name, text in found}
        self.columns = Schema.of(Column(name, t.arrow) for name, t in self._types.items()) if found else None

    def create(self, columns: Schema) -> None:
        parts = [f"{quoted(c.name)} {_type_text(c.type)}" for c in columns if c.type is not None]
        name = ".".join(map(quoted, self._name))
        engine = "ENGINE = MergeTree ORDER BY tuple()"
        with self._translated():
            self._connection.rows(f"CREATE TABLE IF NOT EXISTS {name} ({', '.join(parts)}) {engine}")
            self._describe()

    def has_unique(self, key: Sequence[str]) -> bool:
        return False

    def accepts(self, type_: pa.DataType, column: Column) -> bool:
        stored = column.type
        if pa.types.is_boolean(type_) or pa.types.is_integer(type_):
            return bool(_is_number(stored) or pa.types.is_boolean(stored))
        if pa.types.is_floating(type_) or pa.types.is_decimal(type_):
            return _is_number(stored) and (pa.types.is_floating(type_) or not pa.types.is_integer(stored))
        if pa.types.is_timestamp(type_) or pa.types.is_date(type_):
            return bool(pa.types.is_timestamp(stored)) or (bool(pa.types.is_date(stored) and pa.types.is_date(type_)))
        if pa.types.is_list(type_):
            return bool(pa.types.is_list(stored) or pa.types.is_string(stored))
        return bool(pa.types.is_string(stored))

    def apply(self, parcel: Parcel, key: tuple[str, ...], owner: str, reject: Callable[[Rejected], None]) -> int:
        assert self.columns is not None
        rejected: Rejected = []
        written = 0
        with self._translated():
            for number, batch in enumerate(parcel.rows()):
                rows = pa.Table.from_batches([batch])
                written += written_by_halves(rows, self._writer(f"{owner} {parcel.mark} {number}"), rejection, rejected)
        reject(rejected)
        return written

    def _writer(self, token: str) -> Callable[[pa.Table], None]:
        parts = itertools.count()

        def write(rows: pa.Table) -> None:
            assert self.columns is not None
            columns = [stored(rows[name], self._types[self.columns[name].name], name) for name in rows.column_names]
            table = pa.table(columns, names=[self.columns[name].name for name in rows.column_names])
            # Halves of rejected rows are other inserts than the whole; after a crash they are the same again.
            part = f"{token} {next(parts)}"
            self._connection.insert(self._name, table, part if self._takes_tokens else None)

        return write

    def close(self) -> None:
        self._connection.close()


def _is_number(type_: pa.DataType | None) -> bool:
    kinds = (pa.types.is_integer, pa.types.is_floating, pa.types.is_decimal)
    return type_ is not None and any(kind(type_) for kind in kinds)


def _type_text(type_: pa.DataType) -> str:
    """The type of a column that is made for values of a type; an array cannot be NULL."""
    if pa.types.is_list(type_) and not pa.types.is_nested(type_.value_type):
        return f"Array({_type_text(type_.value_type)})"
    if pa.types.is_decimal(type_):
        return f"Nullable(Decimal({type_.precision}, {type_.scale}))"
    return f"Nullable({next((text for fits, text in _TYPES if fits(type_)), 'String')})"


def open_sink(spec: SinkSpec) -> Sink:
    return DatabaseSink(spec, ClickhouseTarget)


def validate(spec: SinkSpec) -> str | None:
    return wrong_sink(spec.uri, spec.values, PARAMETERS)


PLUGIN = SinkPlugin(
    name=SCHEME,
    options=OPTIONS,
    guarantee="at least once",
    open=open_sink,
    validate=validate,
    set_by=set_by_sink,
    located=lambda uri, given, named: located_sink(SCHEME, uri, given, named, PARAMETERS),
)
