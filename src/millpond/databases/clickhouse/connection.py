"""Connections to ClickHouse, by HTTP or by its own protocol, and what their errors mean."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa

from millpond.databases.address import Address, address_of
from millpond.databases.clickhouse.clickhouse_errors import translated
from millpond.databases.sql_text import Statement
from millpond.errors import SourceError

SCHEME = "clickhouse"
# The ports of HTTP and of the server's own protocol, without and with encryption.
PORTS = {("http", False): 8123, ("http", True): 8443, ("native", False): 9000, ("native", True): 9440}
# The year before which all types of dates and times have all moments, from 1970 on.
COMMON_UNTIL = 2105
# The first version that recognizes an insert by its token.
TOKEN_VERSION = (22, 2)


def address(values: Mapping[str, Any]) -> Address:
    return address_of(SCHEME, values, PORTS[values["protocol"], is_encrypted(values)])


def is_encrypted(values: Mapping[str, Any]) -> bool:
    """Neither protocol can agree on encryption: what is only preferred is not used, except at the ports for it."""
    return values["ssl.mode"] not in ("disable", "prefer") or values.get("port") in (8443, 9440)


class Connection:
    """One connection. Errors are those of the driver; see `translated`."""

    def rows(self, text: str) -> list[tuple[Any, ...]]:
        """The rows of a query."""
        raise NotImplementedError

    def stream(self, text: str, types: Sequence[pa.DataType], rows_max: int) -> Iterator[pa.RecordBatch]:
        """The rows of a query in these types, in parts."""
        raise NotImplementedError

    def insert(self, table: Sequence[str], rows: pa.Table, token: str | None) -> None:
        """Add rows; a server that has seen the token does nothing."""
        raise NotImplementedError

    def version(self) -> tuple[int, ...]:
        return tuple(int(part) for part in str(self.rows("SELECT version()")[0][0]).split(".")[:2])

    def close(self) -> None:
        raise NotImplementedError


class HttpConnection(Connection):
    def __init__(self, values: Mapping[str, Any], base: Path) -> None:
        import clickhouse_connect

        place = address(values)
        encrypted = is_encrypted(values)
        self._client = clickhouse_connect.get_client(
            host=place.host,
            port=place.port,
            username=place.username or "default",
            password=place.password or "",
            database=place.database or "default",
            interface="https" if encrypted else "http",
            verify=values["ssl.mode"].startswith("verify"),
            ca_cert=_file(values, base, "ssl.root.cert"),
            client_cert=_file(values, base, "ssl.cert"),
            client_cert_key=_file(values, base, "ssl.key"),
            connect_timeout=max(round(values["connect.timeout"] / 1e6), 1),
            send_receive_timeout=max(round((values.get("socket.timeout") or 300_000_000) / 1e6), 1),
            compress=values["compression"],
            query_limit=0,
            autogenerate_session_id=False,
            settings=_limits(values),
        )

    def rows(self, text: str) -> list[tuple[Any, ...]]:
        return [tuple(row) for row in self._client.query(text).result_rows]

    def stream(self, text: str, types: Sequence[pa.DataType], rows_max: int) -> Iterator[pa.RecordBatch]:
        with self._client.query_arrow_stream(text, use_strings=False) as parts:
            for part in _whole(parts):
                table = part if isinstance(part, pa.Table) else pa.Table.from_batches([part])
                yield from table.combine_chunks().to_batches(rows_max)

    def insert(self, table: Sequence[str], rows: pa.Table, token: str | None) -> None:
        settings = {} if token is None else {"insert_deduplication_token": token}
        self._client.insert_arrow(table[-1], rows, table[0] if len(table) > 1 else None, settings=settings)

    def close(self) -> None:
        with suppress(Exception):
            self._client.close()


class NativeConnection(Connection):
    def __init__(self, values: Mapping[str, Any], base: Path) -> None:
        from clickhouse_driver import Client

        place = address(values)
        self._client = Client(
            host=place.host,
            port=place.port,
            user=place.username or "default",
            password=place.password or "",
            database=place.database or "default",
            secure=is_encrypted(values),
            verify=values["ssl.mode"].startswith("verify"),
            ca_certs=_file(values, base, "ssl.root.cert"),
            certfile=_file(values, base, "ssl.cert"),
            keyfile=_file(values, base, "ssl.key"),
            connect_timeout=values["connect.timeout"] / 1e6,
            send_receive_timeout=(values.get("socket.timeout") or 300_000_000) / 1e6,
            compression=False,
            settings={"strings_as_bytes": True, **_limits(values)},
        )
        self.rows("SELECT 1")

    def rows(self, text: str) -> list[tuple[Any, ...]]:
        found = self._client.execute(text)
        return [tuple(v.decode() if isinstance(v, bytes) else v for v in row) for row in found]

    def stream(self, text: str, types: Sequence[pa.DataType], rows_max: int) -> Iterator[pa.RecordBatch]:
        rows: list[tuple[Any, ...]] = []
        for row in self._client.execute_iter(text, settings={"max_block_size": min(rows_max, 65_536)}):
            rows.append(row)
            if len(rows) >= rows_max:
                yield _batch(rows, types)
                rows = []
        if rows:
            yield _batch(rows, types)

    def insert(self, table: Sequence[str], rows: pa.Table, token: str | None) -> None:
        names = ", ".join(quoted(name) for name in rows.column_names)
        settings = {} if token is None else {"insert_deduplication_token": token}
        columns = [_plain(column).to_pylist() for column in rows.columns]
        text = f"INSERT INTO {'.'.join(map(quoted, table))} ({names}) VALUES"
        options = {**settings, "strings_as_bytes": False}
        self._client.execute(text, columns, columnar=True, settings=options, types_check=False)

    def close(self) -> None:
        with suppress(Exception):
            self._client.disconnect()


def connect(values: Mapping[str, Any], base: Path) -> Connection:
    """A connection by the protocol that is asked for."""
    try:
        with translated(address(values)):
            return (NativeConnection if values["protocol"] == "native" else HttpConnection)(values, base)
    except ModuleNotFoundError as error:
        message = f"ClickHouse requires the package '{error.name}', which is not installed."
        raise SourceError("MP309", message, hint="Run: pip install 'millpond[clickhouse]'") from error


def _whole(parts: Iterable[Any]) -> Iterator[Any]:
    """Parts of a response; one that ends in the middle is a connection that was lost."""
    try:
        yield from parts
    except pa.ArrowInvalid as error:
        raise ConnectionResetError(f"the response of the server was cut off ({error})") from error


def _batch(rows: list[tuple[Any, ...]], types: Sequence[pa.DataType]) -> pa.RecordBatch:
    columns = zip(*rows, strict=True)
    arrays = [pa.array(_bytes(values, type_), type_) for values, type_ in zip(columns, types, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, [str(n) for n in range(len(types))])


def _bytes(values: Sequence[Any], type_: pa.DataType) -> Sequence[Any]:
    """Texts of numbers are sent as bytes too."""
    if not pa.types.is_string(type_):
        return values
    return [v.decode() if isinstance(v, bytes) else v for v in values]


def _plain(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Moments without a zone, which the driver takes as UTC."""
    return column.cast(pa.timestamp("us", "UTC")) if pa.types.is_timestamp(column.type) else column


def _file(values: Mapping[str, Any], base: Path, name: str) -> str | None:
    given = values.get(name)
    return None if given is None else str(base / Path(given).expanduser())


def _limits(values: Mapping[str, Any]) -> dict[str, Any]:
    span_us = values.get("query.timeout")
    return {} if span_us is None else {"max_execution_time": max(round(span_us / 1e6), 1)}


def quoted(name: str) -> str:
    return "`" + name.replace("\\", "\\\\").replace("`", "\\`") + "`"


def literal(value: Any) -> str:
    """A value as ClickHouse reads it."""
    if value is None:
        return "NULL"
    if isinstance(value, bool):
        return str(int(value))
    if isinstance(value, Decimal):
        whole = value == value.to_integral_value()
        return str(int(value)) if whole else f"toDecimal128('{value}', {max(-int(value.as_tuple().exponent), 0)})"
    if isinstance(value, dt.datetime):
        plain = (value if value.tzinfo is None else value.astimezone(dt.UTC)).replace(tzinfo=None)
        if plain.microsecond or not 1970 <= plain.year < COMMON_UNTIL:
            return f"toDateTime64('{plain.isoformat(sep=' ')}', 6, 'UTC')"
        return f"toDateTime('{plain.isoformat(sep=' ')}', 'UTC')"
    if isinstance(value, dt.date):
        # Only a column of the larger type has other dates.
        return f"toDate{'' if 1970 <= value.year < COMMON_UNTIL else '32'}('{value.isoformat()}')"
    if isinstance(value, int | float):
        return repr(value)
    text = value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"


def literal_text(statement: Statement) -> str:
    """A statement with its values in place."""
    texts = [literal(value) for value in statement.values]
    return statement.numbered(lambda n: texts[n])
