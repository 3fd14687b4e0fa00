"""clickhouse://: tables, views and queries of ClickHouse as tables, by HTTP or by its own protocol.

Guarantee: a table equals the result of one query, compared again at each poll.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import pyarrow as pa

from millpond.contracts.source import Predicate, SourceSpec
from millpond.databases.address import Address, completed, set_by, unknown_table
from millpond.databases.clickhouse.clickhouse_errors import code_of, translated
from millpond.databases.clickhouse.connection import (
    COMMON_UNTIL,
    SCHEME,
    Connection,
    address,
    connect,
    literal_text,
    quoted,
)
from millpond.databases.clickhouse.types import LARGE, WHOLE, ChType, batch_of_sent, type_of
from millpond.databases.options import CONNECTION, PACE, PARAMETERS, READING
from millpond.databases.pool import Pool
from millpond.databases.sessions import Server, Session
from millpond.databases.sql_text import Dialect, Selection, Statement, key_of
from millpond.errors import SourceError
from millpond.options import BOOLEAN, Option, choice
from millpond.schema import Column, Schema
from millpond.sources.databases.plugin import database_source

# Types that the server compares as Spark does, texts by their bytes. Others are texts only here.
COMPARED = (*WHOLE, *LARGE, "Decimal", "String", "Bool", "Date", "Date32")


@dataclass(frozen=True)
class ClickhouseDialect(Dialect):
    """Names and conditions of ClickHouse."""

    quote: str = "`"
    strings: tuple[str, ...] = ("=", "in", "<>", "<", "<=", ">", ">=")

    def name(self, text: str) -> str:
        return quoted(text)

    def accepts(self, predicate: Predicate, type_: pa.DataType | None) -> bool:
        dates = (value.year for value in predicate.values if isinstance(value, dt.date))
        is_common = all(1970 <= year < COMMON_UNTIL for year in dates)
        return is_common and super().accepts(predicate, type_)


DIALECT = ClickhouseDialect()
SESSION = "session"
NO_TABLE = 60
NOT_READ = ("parallel.readers", "transaction.isolation", "time.zone", "load", "max.rows.per.batch")
OPTIONS = (
    *CONNECTION,
    *(option for option in READING if option.name not in NOT_READ),
    Option("protocol", choice("http", "native"), "http", "The protocol: HTTP, or the server's own."),
    Option("compression", BOOLEAN, "true", "Whether responses by HTTP are compressed."),
)


class ClickhouseServer(Server):
    """One database of ClickHouse; sessions have connections of their own."""

    def __init__(self, spec: SourceSpec, pool: Pool) -> None:
        self._spec, self._pool = spec, pool
        self._address: Address = address(spec.values)
        self._connection = pool.take(SESSION, lambda: connect(spec.values, spec.base), _validated)
        try:
            self._types = self._described()
        except BaseException:
            self._connection.close()
            raise

    def _described(self) -> dict[str, ChType]:
        source = Selection(self._spec, DIALECT, None).source()
        try:
            with translated(self._address, f"'{self._spec.shown}'"):
                text = f"DESCRIBE TABLE (SELECT * FROM {literal_text(source)})"
                found = self._connection.rows(text)
        except SourceError as error:
            missing = error.__cause__ is not None and code_of(error.__cause__) == NO_TABLE
            raise (self._no_table() if missing and self._spec.values.get("table") else error) from error
        return {row[0]: type_of(row[1]) for row in found}

    def _no_table(self) -> SourceError:
        database = self._spec.values.get("schema") or self._spec.values.get("database") or "default"
        query = Statement("SELECT name FROM system.tables WHERE database = ? ORDER BY name LIMIT 1000", (database,))
        with translated(self._address):
            known = [row[0] for row in self._connection.rows(literal_text(query))]
        message, hint = unknown_table(self._address.shown, self._spec.values["table"], known)
        return SourceError("MP508", message, hint=hint)

    @cached_property
    def _schema(self) -> Schema:
        columns = Schema.of(Column(name, type_.arrow) for name, type_ in self._types.items())
        # The primary key of ClickHouse does not identify a row.
        return key_of(self._spec, columns, ())

    def columns(self) -> Schema:
        return self._schema

    def selection(self) -> Selection:
        others = frozenset(name for name, type_ in self._types.items() if type_.name not in COMPARED)
        return Selection(self._spec, ClickhouseDialect(others=others), self._schema)

    def session(self) -> Session:
        return ClickhouseSession(self._spec, self._types, self._pool)

    def estimate(self) -> int | None:
        table = self._spec.values.get("table")
        if table is None or self._spec.values.get("where") or self._spec.wanted.predicates:
            return None
        database = self._spec.values.get("schema") or self._spec.values.get("database") or "default"
        text = "SELECT sum(rows) FROM system.parts WHERE active AND database = ? AND table = ?"
        with translated(self._address):
            found = self._connection.rows(literal_text(Statement(text, (database, table))))
        return int(found[0][0]) if found and found[0][0] else None

    def close(self) -> None:
        self._pool.give(SESSION, self._connection)


class ClickhouseSession(Session):
    """A connection; each query sees one state of its tables."""

    def __init__(self, spec: SourceSpec, types: dict[str, ChType], pool: Pool) -> None:
        self._spec, self._types, self._pool = spec, types, pool
        self._address = address(spec.values)
        self._connection: Connection = pool.take(SESSION, lambda: connect(spec.values, spec.base), _validated)
        # A connection whose rows were not all read cannot be used again.
        self._is_reading = False

    def value(self, statement: Statement) -> Any:
        with translated(self._address, self._spec.shown):
            found = self._connection.rows(literal_text(statement))
        return found[0][0] if found else None

    def read(self, selection: Selection, statement: Statement) -> Iterator[pa.RecordBatch]:
        names = selection.names or tuple(self._types)
        types = {name: self._types[name] for name in names}
        # Around the statement, because a name in its conditions would mean what is selected under that name. The same
        # holds in one list: no column has such a name.
        listed = [f"{t.selected(quoted(name))} AS __millpond_{n}" for n, (name, t) in enumerate(types.items())]
        rows_max = self._spec.values["fetch.size"]
        rows_max = min(rows_max, self._spec.values["batch.size"] or rows_max)
        text = f"SELECT {', '.join(listed)} FROM ({literal_text(statement)})"
        sent_types = [type_.sent for type_ in types.values()]
        self._is_reading = True
        with translated(self._address, self._spec.shown):
            for sent in self._connection.stream(text, sent_types, rows_max):
                yield batch_of_sent(sent, types)
        self._is_reading = False

    def close(self) -> None:
        if self._is_reading:
            self._connection.close()
        else:
            self._pool.give(SESSION, self._connection)


def _validated(connection: Connection, query: str) -> None:
    connection.rows(query)


PLUGIN = replace(
    database_source(SCHEME, OPTIONS, ClickhouseServer, DIALECT),
    parameters={**PARAMETERS, "protocol": "protocol"},
    pace=(*PACE, "compression"),
    set_by=set_by,
    located=lambda uri, given, named: completed(SCHEME, uri, given, named),
)
