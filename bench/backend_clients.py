"""The plain clients beside which tables on servers are measured: the fastest way that the driver of each server has."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

COLUMNS = "`key`, symbol, tier, quantity, volume, ratio, price, ts"
SQL_COLUMNS = COLUMNS.replace("`", "")
KEYS_AT_ONCE = 2_000


class Plain:
    """A client of one server; `upsert` replaces rows by key, `lookup` and `scan` return how many rows there are."""

    def upsert(self, rows: pa.Table) -> None:
        raise NotImplementedError

    def lookup(self, keys: Sequence[str]) -> int:
        raise NotImplementedError

    def scan(self) -> int:
        raise NotImplementedError

    def close(self) -> None:
        """Release the connection."""


def values(rows: pa.Table) -> list[tuple[Any, ...]]:
    """Rows as drivers take them: times and decimals as texts."""
    texts = {"price", "ts"}
    columns = [
        [str(v) for v in rows.column(name).to_pylist()] if name in texts else rows.column(name).to_pylist()
        for name in rows.column_names
    ]
    return list(zip(*columns, strict=True))


class PlainSqlite(Plain):
    def __init__(self, path: Path) -> None:
        self._connection = sqlite3.connect(path, isolation_level=None)
        self._connection.execute("PRAGMA journal_mode = WAL")
        self._connection.execute(
            "CREATE TABLE plain (key TEXT PRIMARY KEY, symbol, tier, quantity, volume, ratio, price, ts)"
        )

    def upsert(self, rows: pa.Table) -> None:
        self._connection.execute("BEGIN")
        self._connection.executemany("REPLACE INTO plain VALUES (?, ?, ?, ?, ?, ?, ?, ?)", values(rows))
        self._connection.execute("COMMIT")

    def lookup(self, keys: Sequence[str]) -> int:
        one = "SELECT * FROM plain WHERE key = ?"
        return sum(len(self._connection.execute(one, (key,)).fetchall()) for key in keys)

    def scan(self) -> int:
        return len(self._connection.execute("SELECT * FROM plain").fetchall())

    def close(self) -> None:
        self._connection.close()


class PlainPostgres(Plain):
    def __init__(self, database: Any) -> None:
        self._connection = database.connect()
        types = "key TEXT PRIMARY KEY, symbol TEXT, tier TEXT, quantity INT, volume BIGINT, ratio FLOAT8"
        self._connection.execute(f"CREATE TABLE plain ({types}, price NUMERIC(12,2), ts TIMESTAMPTZ)")

    def upsert(self, rows: pa.Table) -> None:
        sets = ", ".join(f"{name} = excluded.{name}" for name in rows.column_names[1:])
        with self._connection.transaction(), self._connection.cursor() as cursor:
            cursor.execute("CREATE TEMPORARY TABLE given (LIKE plain) ON COMMIT DROP")
            with cursor.copy("COPY given FROM STDIN") as copy:
                for row in values(rows):
                    copy.write_row(row)
            cursor.execute(f"INSERT INTO plain SELECT * FROM given ON CONFLICT (key) DO UPDATE SET {sets}")

    def lookup(self, keys: Sequence[str]) -> int:
        return len(self._connection.execute("SELECT * FROM plain WHERE key = ANY (%s)", [list(keys)]).fetchall())

    def scan(self) -> int:
        return len(self._connection.execute("SELECT * FROM plain").fetchall())

    def close(self) -> None:
        self._connection.close()


class PlainMysql(Plain):
    def __init__(self, database: Any) -> None:
        self._connection = database.connect()
        types = "`key` VARCHAR(100) PRIMARY KEY, symbol TEXT, tier TEXT, quantity INT, volume BIGINT, ratio DOUBLE"
        self._run(f"CREATE TABLE plain ({types}, price DECIMAL(12,2), ts DATETIME(6))")

    def _run(self, text: str, given: Sequence[Any] | None = None) -> list[Any]:
        with self._connection.cursor() as cursor:
            cursor.execute(text, given)
            return list(cursor.fetchall())

    def upsert(self, rows: pa.Table) -> None:
        names = [f"`{name}`" for name in rows.column_names]
        sets = ", ".join(f"{name} = VALUES({name})" for name in names[1:])
        text = f"INSERT INTO plain ({', '.join(names)}) VALUES (%s, %s, %s, %s, %s, %s, %s, %s)"
        given = [(*row[:-1], row[-1].removesuffix("+00:00")) for row in values(rows)]
        with self._connection.cursor() as cursor:
            cursor.execute("BEGIN")
            cursor.executemany(f"{text} ON DUPLICATE KEY UPDATE {sets}", given)
            cursor.execute("COMMIT")

    def lookup(self, keys: Sequence[str]) -> int:
        parts = [keys[n : n + KEYS_AT_ONCE] for n in range(0, len(keys), KEYS_AT_ONCE)]
        return sum(len(self._run("SELECT * FROM plain WHERE `key` IN %s", [list(part)])) for part in parts)

    def scan(self) -> int:
        return len(self._run("SELECT * FROM plain"))

    def close(self) -> None:
        self._connection.close()


class PlainRedis(Plain):
    def __init__(self, database: Any) -> None:
        self._client = database.connect()

    def upsert(self, rows: pa.Table) -> None:
        names = rows.column_names
        pipeline = self._client.pipeline(transaction=False)
        for row in values(rows):
            pipeline.hset(f"plain:{row[0]}", mapping=dict(zip(names, row, strict=True)))
        pipeline.execute()

    def lookup(self, keys: Sequence[str]) -> int:
        pipeline = self._client.pipeline(transaction=False)
        for key in keys:
            pipeline.hgetall(f"plain:{key}")
        return len([row for row in pipeline.execute() if row])

    def scan(self) -> int:
        keys = [key.removeprefix("plain:") for key in self._client.scan_iter("plain:*", count=5_000)]
        return self.lookup(keys)


class PlainMongo(Plain):
    def __init__(self, database: Any) -> None:
        self._rows = database.connect()["plain"]

    def upsert(self, rows: pa.Table) -> None:
        from pymongo import ReplaceOne

        names = rows.column_names
        documents = [{"_id": row[0], **dict(zip(names, row, strict=True))} for row in values(rows)]
        steps = [ReplaceOne({"_id": document["_id"]}, document, upsert=True) for document in documents]
        self._rows.bulk_write(steps, ordered=False)

    def lookup(self, keys: Sequence[str]) -> int:
        return len(list(self._rows.find({"_id": {"$in": list(keys)}})))

    def scan(self) -> int:
        return len(list(self._rows.find()))


class PlainDelta(Plain):
    def __init__(self, path: Path) -> None:
        self._path = path
        self._schema = pa.schema([])

    def upsert(self, rows: pa.Table) -> None:
        import deltalake

        self._schema = rows.schema

        if not deltalake.DeltaTable.is_deltatable(str(self._path)):
            deltalake.write_deltalake(str(self._path), rows)
            return
        merger = deltalake.DeltaTable(self._path).merge(rows, "t.key = s.key", source_alias="s", target_alias="t")
        merger.when_matched_update_all().when_not_matched_insert_all().execute()

    def lookup(self, keys: Sequence[str]) -> int:
        if len(keys) == 1:
            return self._rows(f"key = '{keys[0]}'").num_rows
        # A condition with thousands of keys is planned for longer than all rows are read.
        rows = self._rows(None)
        return rows.filter(pc.is_in(rows["key"], pa.array(list(keys)))).num_rows

    def scan(self) -> int:
        return self._rows(None).num_rows

    def _rows(self, condition: str | None) -> pa.Table:
        import deltalake

        return pa.table(deltalake.DeltaTable(self._path).scan(predicate=condition)).cast(self._schema)


CLIENTS: dict[str, Callable[[Any], Plain]] = {
    "sqlite": PlainSqlite,
    "postgresql": PlainPostgres,
    "mysql": PlainMysql,
    "redis": PlainRedis,
    "mongodb": PlainMongo,
    "delta": PlainDelta,
}
