"""Rows that come one by one are the same rows as those that come together, whatever their values."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from millpond.contracts.table import TableSpec
from millpond.errors import ConstraintError, MillpondError
from millpond.schema import TIMESTAMP, TIMESTAMP_NTZ, Column, Schema
from millpond.tables import heap
from millpond.tables.single_rows import shape_of
from millpond.tables.store import open_store

TYPES = {
    "b": pa.bool_(),
    "i": pa.int32(),
    "l": pa.int64(),
    "d": pa.float64(),
    "m": pa.decimal128(7, 2),
    "s": pa.string(),
    "x": pa.binary(),
    "t": pa.date32(),
    "z": TIMESTAMP,
    "n": TIMESTAMP_NTZ,
}
SCHEMA = Schema.of([Column("k", pa.int64(), False), *(Column(n, t) for n, t in TYPES.items())], ["k"])
ZONE = dt.timezone(dt.timedelta(hours=5, minutes=30))
moments = st.datetimes(dt.datetime(1900, 1, 1), dt.datetime(2100, 1, 1))

# Half of what is drawn is not of the column's own type: it is converted, or refused, by the way through Arrow.
anything = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**70), 2**70),
    st.integers(-9, 9),
    st.floats(),
    st.decimals(allow_nan=True, places=3),
    st.sampled_from([Decimal("-0.00"), Decimal("1.5"), Decimal("99999.99"), Decimal("100000"), Decimal("1E+2")]),
    st.text(max_size=3),
    st.sampled_from(["\ud800", "ä"]),
    st.binary(max_size=3),
    st.dates(dt.date(1900, 1, 1), dt.date(2100, 1, 1)),
    moments,
    moments.map(lambda m: m.replace(tzinfo=ZONE)),
)


def outcome(work: Any) -> Any:
    try:
        return work()
    except MillpondError as error:
        return error.code


@given(column=st.sampled_from(list(TYPES)), value=anything)
@example(column="z", value=dt.datetime(2000, 1, 1, fold=1))
@example(column="n", value=dt.datetime(2000, 1, 1, fold=1))
@example(column="z", value=dt.datetime(2000, 1, 1, fold=1, tzinfo=dt.UTC))
@example(column="i", value=Decimal("sNaN"))
@example(column="d", value=Decimal("sNaN"))
@example(column="m", value=Decimal("sNaN"))
def test_a_value_alone_is_stored_as_it_is_among_others(column: str, value: Any) -> None:
    store = open_store(None)
    alone, together, updated = (store.create(TableSpec(name, SCHEMA)) for name in ("alone", "together", "updated"))
    row = {"k": 1, **dict.fromkeys(TYPES), column: value}
    updated.insert([{"k": 1}])
    # A list of two rows goes through Arrow.
    wanted = outcome(lambda: together.insert([row, {**row, "k": 2, column: None}]) - 1)
    assert outcome(lambda: alone.insert([row])) == wanted
    assert outcome(lambda: updated.update("k = ?", {column: value}, [1])) == wanted
    if wanted == 1:
        expected = repr(together.get(1))
        assert repr(alone.get(1)) == repr(updated.get(1)) == expected
        assert repr(alone.to_arrow().to_pylist()[0]) == expected


def test_columns_whose_values_python_cannot_hold_exactly_have_no_shape() -> None:
    for type_ in (pa.float32(), pa.list_(pa.int64()), pa.timestamp("us", "Europe/Paris")):
        assert shape_of(Schema.of([Column("v", type_)])) is None


def test_rows_one_by_one_are_read_in_every_way(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """More of them than wait as Python values, read between and after, and after a restart."""
    monkeypatch.setattr(heap, "TAIL_ROWS_MAX", 8)
    spec = TableSpec("t", SCHEMA, indexes=(("s",),))
    store = open_store(tmp_path)
    table = store.create(spec)
    for k in range(20):
        table.insert([{"k": k, "l": k * k, "s": f"s{k % 3}"}])
        if k == 4:
            assert table.find("s = ?", ["s1"]).column("k").to_pylist() == [1, 4]
    with pytest.raises(ConstraintError, match="MP402"):
        table.insert([{"k": 19}])
    table.upsert([{"k": 3, **dict.fromkeys(TYPES), "l": -1}])
    table.delete(keys=[5])
    older = table.snapshot(18)
    row = older.get(17)
    assert row is not None
    assert (len(older), row["l"], older.get(18)) == (18, 289, None)
    assert older.to_arrow().column("k").to_pylist() == list(range(18))
    (removed,) = [change.removed.column("k").to_pylist() for change in table.changes_since(21) or ()]
    assert removed == [5]
    wanted = {k: k * k for k in range(20)} | {3: -1}
    del wanted[5]
    for _ in range(2):
        assert {r["k"]: r["l"] for r in table.lookup(list(range(25))).to_pylist()} == wanted
        assert {r["k"]: r["l"] for r in table.to_arrow().to_pylist()} == wanted
        assert table.lookup(["s0"], by="s").num_rows == len([k for k in wanted if k % 3 == 0 and k != 3])
        store.close()
        store = open_store(tmp_path)
        table = store.create(spec)
    store.close()
