"""The harness of the contract suites of tables: stores to test, rows to insert, and expected errors."""

from __future__ import annotations

import resource
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from millpond.contracts.table import Store, Table, TableSpec
from millpond.errors import MillpondError
from millpond.schema import Column, Schema
from millpond.tables.store import open_store

USERS = Schema.of(
    [
        Column("user_id", pa.string(), nullable=False),
        Column("name", pa.string()),
        Column("tier", pa.string(), nullable=False, default="'BASIC'"),
        Column("age", pa.int32()),
        Column("balance", pa.decimal128(12, 2)),
    ],
    key=["user_id"],
)
EVENTS = Schema.of([Column("kind", pa.string()), Column("n", pa.int64())])
POSITIONS = Schema.of(
    [Column("user_id", pa.string(), False), Column("symbol", pa.string(), False), Column("size", pa.int64())],
    key=["user_id", "symbol"],
)
ANN = {"user_id": "u1", "name": "Ann", "tier": "GOLD", "age": 41, "balance": Decimal("10.50")}
BO = {"user_id": "u2", "name": "Bo", "tier": "BASIC", "age": 17, "balance": Decimal("-3.25")}
CY = {"user_id": "u3", "name": None, "tier": "GOLD", "age": None, "balance": None}


@contextmanager
def no_room_beyond(size: int) -> Iterator[None]:
    """Inside, the operating system limits the size of files."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def refuses(code: str) -> Any:
    """A context in which an error of this code must be raised."""
    return pytest.raises(MillpondError, match=code)


class Harness:
    """Opens stores for a suite; a backend of a third party overrides what differs."""

    backend = "memory"
    options: Mapping[str, Any] = {}
    keeps_rows = True
    # Whether a text may contain the character 0.
    stores_nul = True
    # Whether a number may be NaN or infinite, and how long a text may be as a key.
    stores_nan = True
    key_characters = 1000
    # How many rows a test changes that changes many of them again and again: fewer for a server that is slow.
    many = 1000

    @pytest.fixture
    def store(self, tmp_path: Path) -> Iterator[Store]:
        store = self.open(tmp_path / "tables")
        yield store
        store.close()

    def open(self, folder: Path | None) -> Store:
        return open_store(folder)

    def spec(self, name: str, schema: Schema, **more: Any) -> TableSpec:
        return TableSpec(name, schema, self.backend, self.options, **more)

    @pytest.fixture
    def users(self, store: Store) -> Table:
        table = store.create(self.spec("users", USERS))
        table.insert([ANN, BO, CY])
        return table


def rows(table: Any) -> list[dict[str, Any]]:
    """All rows, in an order that does not depend on the table."""
    return sorted(table.to_arrow().to_pylist(maps_as_pydicts="lossy"), key=str)


def ids(table: pa.Table) -> set[str]:
    """The users in a result."""
    return set(table.column("user_id").to_pylist())
