"""Handing records to memory:// sources: what is taken, what is rejected; without Spark."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pytest

import millpond as mp
from millpond.app.queries import Result
from millpond.errors import MillpondError

PAYMENTS = """
CREATE STREAM payments (
  account BIGINT, amount DECIMAL(12,2), payer STRUCT<name: STRING, tags: ARRAY<STRUCT<tag: STRING>>>
) FROM 'memory://payments';
CREATE TABLE totals AS SELECT account, SUM(amount) AS amount FROM payments GROUP BY account;
"""
Open = Callable[..., mp.App]


@pytest.fixture
def opened(tmp_path: Path) -> Iterator[Open]:
    """Opens an app that is stopped after the test."""
    apps: list[mp.App] = []

    def open_(sql: str = PAYMENTS) -> mp.App:
        apps.append(mp.App(sql=sql, state=tmp_path / f"state-{len(apps)}"))
        return apps[-1]

    yield open_
    for app in apps:
        app.stop()


def waiting(app: mp.App) -> int:
    """The records that were taken and not read yet."""
    return app.progress().sources[0].lag or 0


@pytest.mark.parametrize(
    ("rows", "message", "near"),
    [
        ([{"account": 1}, {"acount": 1}], "'memory://payments' has no column 'acount'.", "account"),
        ([{"account": 1, "payer": {"nmae": "Ann"}}], "'memory://payments' has no column 'payer.nmae'.", "payer.name"),
        (
            [{"payer": {"tags": [{"tag": "a"}, {"tga": "b"}]}}],
            "'memory://payments' has no column 'payer.tags.tga'.",
            "payer.tags.tag",
        ),
        (pa.table({"account": [1], "acount": [1]}), "'memory://payments' has no column 'acount'.", "account"),
        (
            pa.RecordBatch.from_pylist([{"payer": {"nmae": "x"}}]),
            "'memory://payments' has no column 'payer.nmae'.",
            "payer.name",
        ),
        (pd.DataFrame({"acount": [1]}), "'memory://payments' has no column 'acount'.", "account"),
    ],
)
def test_a_name_that_the_stream_has_not_is_rejected_and_nothing_is_taken(
    opened: Open, rows: Any, message: str, near: str
) -> None:
    app = opened()
    with pytest.raises(MillpondError) as raised:
        app.feed("memory://payments").send(rows)
    assert (raised.value.code, raised.value.problems[0].message) == ("MP202", message)
    assert f"Did you mean '{near}'?" in raised.value.hint
    assert "'on.unknown.field' = 'ignore'" in raised.value.hint
    assert waiting(app) == 0


def test_names_in_other_letters_are_the_same_names(opened: Open) -> None:
    assert opened().feed("memory://payments").send([{"ACCOUNT": 1, "Payer": {"NAME": "Ann"}}]) == 1


def test_unknown_names_are_taken_where_the_stream_ignores_them(opened: Open) -> None:
    ignoring = PAYMENTS.replace("'memory://payments'", "'memory://payments' WITH ('on.unknown.field' = 'ignore')")
    app = opened(ignoring)
    assert app.feed("memory://payments").send([{"account": 1, "note": "x"}]) == 1
    assert waiting(app) == 1


def test_a_stream_without_declared_columns_takes_its_first_records_as_they_are(opened: Open) -> None:
    app = opened("CREATE STREAM s FROM 'memory://s'; CREATE TABLE n AS SELECT a, COUNT(*) AS n FROM s GROUP BY a;")
    assert app.feed("memory://s").send([{"a": 1, "b": 2}]) == 1


def test_a_name_that_one_of_two_streams_has_is_known(opened: Open) -> None:
    app = opened("""
        CREATE STREAM a (x INT) FROM 'memory://s';
        CREATE STREAM b (y INT) FROM 'memory://s';
        CREATE TABLE n AS SELECT x, COUNT(*) AS n FROM a GROUP BY x;
        CREATE TABLE m AS SELECT y, COUNT(*) AS n FROM b GROUP BY y;
    """)
    assert app.feed("memory://s").send([{"x": 1, "y": 2}]) == 1
    with pytest.raises(MillpondError, match="MP202"):
        app.feed("memory://s").send([{"z": 1}])


def test_records_may_come_from_a_generator_or_pandas(opened: Open) -> None:
    app = opened()
    feed = app.feed("memory://payments")
    assert feed.send({"account": n} for n in range(3)) == 3  # type: ignore[arg-type]
    frame = pd.DataFrame({"account": [1, 2], "amount": [Decimal("1.50"), None]}, index=["x", "y"])
    assert feed.send(frame) == 2
    assert waiting(app) == 5


def test_pandas_rows_are_inserted_without_their_index(opened: Open) -> None:
    app = opened("CREATE TABLE t (k INT PRIMARY KEY, name STRING, at TIMESTAMP, x DOUBLE);")
    at = pd.Timestamp("2026-03-01T10:00:00Z")
    frame = pd.DataFrame({"k": [1, 2], "name": ["Ann", None], "at": [at, None], "x": [0.5, None]}, index=["p", "q"])
    table = app.table("t")
    assert table.insert(frame) == 2
    assert table.upsert(pd.DataFrame({"k": [2], "name": ["Bo"]})) == 1
    assert table.get(1) == {"k": 1, "name": "Ann", "at": at.to_pydatetime(), "x": 0.5}
    assert table.get(2) == {"k": 2, "name": "Bo", "at": None, "x": None}


def test_a_frame_of_values_that_have_no_common_type_is_rejected(opened: Open) -> None:
    table = opened("CREATE TABLE t (k INT PRIMARY KEY, name STRING);").table("t")
    with pytest.raises(MillpondError, match="MP404"):
        table.insert(pd.DataFrame({"k": [1, 2], "name": ["Ann", 7]}))
    assert len(table) == 0


def test_a_result_becomes_a_frame_and_back(opened: Open) -> None:
    app = opened("CREATE TABLE t (k INT PRIMARY KEY, name STRING);")
    app.table("t").insert([{"k": 1, "name": "Ann"}, {"k": 2, "name": None}])
    frame = app.query("SELECT * FROM t ORDER BY k").to_pandas()
    assert list(frame.columns) == ["k", "name"]
    assert frame["name"][0] == "Ann"
    assert pd.isna(frame["name"][1])


def test_without_pandas_the_error_has_the_line_that_installs_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(MillpondError) as raised:
        Result(pa.table({"a": [1]})).to_pandas()
    assert (raised.value.code, raised.value.hint) == ("MP309", "Run: pip install 'millpond[pandas]'")
