"""Spark reads a table in Delta by itself: the same rows as the driver reads, whatever is merged."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from millpond.contracts.table import TableSpec
from millpond.engine.spark.transfer import Exchange
from millpond.schema import TIMESTAMP, Column, Schema
from millpond.tables.store import open_store

SCHEMA = Schema.of(
    [
        Column("k", pa.string(), False),
        Column("a b", pa.int8()),
        Column("d", pa.decimal128(12, 2)),
        Column("t", TIMESTAMP),
        Column("l", pa.list_(pa.string())),
    ],
    ["k"],
)


def row(number: int, **more: Any) -> dict[str, Any]:
    moment = dt.datetime(2026, 1, 1, 0, 0, 0, 123456, dt.UTC) + dt.timedelta(seconds=number)
    values = {"k": f"k{number}", "a b": number % 100, "d": Decimal(number) / 4, "t": moment, "l": [str(number), None]}
    return values | more


@pytest.mark.spark
@pytest.mark.parametrize("schema", [SCHEMA, Schema.of(SCHEMA.columns)], ids=["keyed", "unkeyed"])
def test_spark_reads_the_rows_of_each_version(
    tmp_path: Path, spark: Any, monkeypatch: pytest.MonkeyPatch, schema: Schema
) -> None:
    monkeypatch.setattr("millpond.engine.spark.transfer.ROWS_DIRECT_MAX", 0)
    store: Any = open_store(tmp_path / "tables")
    table = store.create(TableSpec("t", schema, "delta"))
    exchange = Exchange(tmp_path / "exchange")

    def check(read: Any) -> None:
        assert read.files() is not None
        found = exchange.frame(spark, read, shared=True).toArrow().cast(read.schema.arrow())
        assert sorted(found.to_pylist(), key=str) == sorted(read.to_arrow().to_pylist(), key=str)

    table.insert([row(n) for n in range(50)])
    check(table)
    table.rows.remote.merge()
    check(table)
    before = table.snapshot()
    table.delete("`a b` < 10")
    table.update("k = 'k20'", {"a b": 99})
    table.insert([row(70, t=None, l=None)])
    check(table)
    check(before)
    table.rows.remote.merge()
    check(table)
    check(before)
    with store.begin() as tx:
        check(tx.table("t"))
        tx.table("t").delete("k = 'k21'")
        assert tx.table("t").files() is None
    assert list((tmp_path / "exchange").glob("*")) == []
    store.close()
