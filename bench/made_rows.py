"""The rows that the benchmarks of tables are about, and a table for them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from millpond.contracts.table import Table, TableSpec
from millpond.schema import TIMESTAMP, Schema
from millpond.tables.store import TableStore

_TIERS = pa.array(["BASIC", "SILVER", "GOLD", "PLATINUM"])


def rows(count: int, first: int = 0) -> pa.Table:
    """Rows of the benchmark: a text key, two texts of few values, and five numbers and times."""
    numbers = np.arange(first, first + count)
    padded = pc.utf8_lpad(pa.array(numbers).cast(pa.string()), 8, "0")
    return pa.table(
        {
            "key": pc.binary_join_element_wise("user", padded, "-"),
            "symbol": pc.binary_join_element_wise("sym", pa.array(numbers % 500).cast(pa.string()), "-"),
            "tier": _TIERS.take(pa.array(numbers % 4)),
            "quantity": pa.array((numbers % 1000).astype(np.int32)),
            "volume": pa.array(numbers),
            "ratio": pa.array(numbers / 7),
            "price": pa.array(numbers % 100_000).cast(pa.decimal128(19, 0)).cast(pa.decimal128(12, 2)),
            "ts": pa.array(numbers * 1000).cast(TIMESTAMP),
        }
    )


@contextmanager
def table_in(store: TableStore, name: str, backend: str = "memory", **values: Any) -> Iterator[Table]:
    """A table for these rows, as long as it is used."""
    spec = TableSpec(name, Schema.from_arrow(rows(1).schema, ["key"]), backend=backend, values=values)
    yield store.create(spec)
    store.drop(name)
