"""The table contract, part 3: types and values."""

from __future__ import annotations

import datetime as dt
import math
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from millpond.contracts.table import Store, Table
from millpond.schema import TIMESTAMP, TIMESTAMP_NTZ, Column, Schema
from millpond.testing.table_harness import Harness, refuses

VALUES: tuple[tuple[pa.DataType, list[Any]], ...] = (
    (pa.bool_(), [True, False, None]),
    (pa.int8(), [-128, 127, 0, None]),
    (pa.int16(), [-32768, 32767, None]),
    (pa.int32(), [-(2**31), 2**31 - 1, None]),
    (pa.int64(), [-(2**63), 2**63 - 1, None]),
    (pa.float32(), [0.5, -1.25, float("inf"), None]),
    (pa.float64(), [0.1, 1e300, float("-inf"), None]),
    (pa.decimal128(38, 10), [Decimal("9999999999999999999999999999.9999999999"), Decimal("-0.0000000001"), None]),
    (pa.string(), ["", "a", "ü€𝄞", "x" * 1000, "a\x00b", None]),
    (pa.binary(), [b"", b"\x00\xff", None]),
    (pa.date32(), [dt.date(1, 1, 1), dt.date(9999, 12, 31), None]),
    (TIMESTAMP, [dt.datetime(2026, 1, 2, 3, 4, 5, 678901, dt.UTC), dt.datetime(1, 1, 1, tzinfo=dt.UTC), None]),
    (TIMESTAMP_NTZ, [dt.datetime(2026, 1, 2, 3, 4, 5, 678901), None]),
    (pa.list_(pa.int32()), [[], [1, None, 3], None]),
    (pa.map_(pa.string(), pa.int64()), [{}, {"a": 1, "b": None}, None]),
    (pa.struct([("a", pa.int32()), ("b", pa.list_(pa.string()))]), [{"a": 1, "b": ["x", None]}, None]),
)


class TypesContract(Harness):
    """Every type is stored and returned without loss."""

    @pytest.mark.parametrize(("type_", "values"), VALUES, ids=lambda v: str(v)[:24])
    def test_values_come_back_as_they_were(self, tmp_path: Path, type_: pa.DataType, values: list[Any]) -> None:
        schema = Schema.of([Column("k", pa.int32(), False), Column("v", type_)], ["k"])
        values = self._storable(values)
        store = self.open(tmp_path / "types")
        table = store.create(self.spec("t", schema))
        table.insert([{"k": k, "v": v} for k, v in enumerate(values)])
        self._check(table, values)
        store.checkpoint()
        table.upsert([{"k": 0, "v": values[0]}])
        store.close()
        if self.keeps_rows:
            again = self.open(tmp_path / "types")
            self._check(again.create(self.spec("t", schema)), values)
            again.close()

    @pytest.mark.parametrize(("type_", "values"), VALUES[:13], ids=lambda v: str(v)[:24])
    def test_simple_types_are_keys(self, store: Store, type_: pa.DataType, values: list[Any]) -> None:
        schema = Schema.of([Column("k", type_, False), Column("n", pa.int32())], ["k"])
        table = store.create(self.spec("t", schema))
        keys = [v for v in self._storable(values) if v is not None]
        keys = [v for v in keys if not isinstance(v, str) or len(v) <= self.key_characters]
        table.insert([{"k": k, "n": 0} for k in keys])
        table.upsert([{"k": k, "n": i} for i, k in enumerate(keys)])
        assert [table.get(k) for k in keys] == [{"k": k, "n": i} for i, k in enumerate(keys)]
        assert table.lookup(keys).num_rows == len(keys)
        assert table.delete(keys=keys) == len(keys)

    def test_zero_has_no_sign_and_nan_is_one_value_as_a_key(self, store: Store) -> None:
        table = store.create(
            self.spec("t", Schema.of([Column("k", pa.float64(), False), Column("n", pa.int32())], ["k"]))
        )
        table.upsert([{"k": 0.0, "n": 1}])
        table.upsert([{"k": -0.0, "n": 3}])
        assert table.values("n") == [3]
        assert table.contains(0.0)
        if not self.stores_nan:
            with refuses("MP404"):
                table.upsert([{"k": float("nan"), "n": 2}])
            return
        table.upsert([{"k": float("nan"), "n": 2}])
        table.upsert([{"k": -float("nan"), "n": 4}])
        assert sorted(table.values("n")) == [3, 4]
        assert table.contains(float("nan"))

    def test_values_are_assigned_as_spark_assigns(self, store: Store) -> None:
        names = {"i": pa.int32(), "d": pa.decimal128(5, 2), "s": pa.string(), "f": pa.float64(), "t": TIMESTAMP}
        table = store.create(self.spec("t", Schema.of([Column(n, t) for n, t in names.items()])))
        day = dt.date(2026, 1, 2)
        table.insert([{"i": 1.9, "d": 0.125, "s": 5, "f": Decimal("1.5"), "t": day}])
        table.insert(pa.table({"i": [Decimal("-1.9")], "d": ["x"]}).drop_columns(["d"]))
        table.insert(pa.table({"d": pa.array([Decimal("-0.125")]), "t": pa.array([day])}))
        midnight = dt.datetime(2026, 1, 2, tzinfo=dt.UTC)
        assert table.to_arrow().to_pylist() == [
            {"i": 1, "d": Decimal("0.13"), "s": "5", "f": 1.5, "t": midnight},
            {"i": -1, "d": None, "s": None, "f": None, "t": None},
            {"i": None, "d": Decimal("-0.13"), "s": None, "f": None, "t": midnight},
        ]
        for wrong in ({"i": "1"}, {"i": True}, {"d": 1000}, {"d": "1"}, {"f": "1"}, {"t": 5}, {"i": float("nan")}):
            with refuses("MP404"):
                table.insert([wrong])
        for array in (pa.table({"i": ["1"]}), pa.table({"d": pa.array([1000])}), pa.table({"i": pa.array([2**40])})):
            with refuses("MP404"):
                table.insert(array)

    def test_a_text_with_the_character_0_is_stored_or_rejected(self, store: Store) -> None:
        schema = Schema.of([Column("k", pa.string(), False), Column("v", pa.string())], ["k"])
        table = store.create(self.spec("t", schema))
        assert table.get("a\0b") is None
        if self.stores_nul:
            table.insert([{"k": "a\0b", "v": "\0"}])
            assert table.get("a\0b") == {"k": "a\0b", "v": "\0"}
            return
        for row in ({"k": "a\0b", "v": "v"}, {"k": "k", "v": "\0"}):
            with refuses("MP404"):
                table.insert([row])
        assert len(table) == 0
        table.insert([{"k": "k", "v": "v"}])
        assert table.get("k") == {"k": "k", "v": "v"}

    def _storable(self, values: list[Any]) -> list[Any]:
        kept = [v for v in values if self.stores_nul or not (isinstance(v, str) and "\0" in v)]
        return [v for v in kept if self.stores_nan or not (isinstance(v, float) and not math.isfinite(v))]

    def _check(self, table: Table, values: list[Any]) -> None:
        for key, value in enumerate(values):
            row = table.get(key)
            assert row is not None
            assert row["v"] == value
