"""'backfill': a GROUP BY table that is added, or gets more aggregates, is computed again from the source's start."""

from __future__ import annotations

import gzip
import json
import os
import subprocess
import sys
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import millpond as mp
from millpond.app.stopped_app import query_state
from millpond.cli.main import main
from millpond.errors import MillpondError
from millpond.faults import BACKFILL_POINTS

pytestmark = pytest.mark.spark

TRADES = "CREATE STREAM trades (id INT, user_id STRING, price DECIMAL(12,2)) FROM 'file:in/*.jsonl';"
BIG = "CREATE STREAM big AS SELECT * FROM trades WHERE price > 5;"
TOTALS = "CREATE TABLE totals AS SELECT user_id, COUNT(*) AS n FROM big GROUP BY user_id"
WIDER = (
    "CREATE TABLE totals AS SELECT user_id, COUNT(*) AS n, SUM(price) AS total, COUNT(DISTINCT price) AS prices, "
    "MAX_BY(id, price) AS top FROM big GROUP BY user_id"
)
EVERYTHING = "CREATE TABLE everything AS SELECT COUNT(*) AS n, SUM(price) AS total, COLLECT_LIST(id) AS ids FROM trades"
RICH = "CREATE TABLE rich AS SELECT user_id, n FROM totals WHERE n > 1;"
BACKFILL = " WITH ('backfill' = 'true');"
FIRST = (TRADES, BIG, TOTALS + ";")
EDITED = (TRADES, BIG, WIDER + BACKFILL, EVERYTHING + BACKFILL)


class Folder:
    """Files of trades, and an app file over them that is edited."""

    def __init__(self, path: Path, spark: Any) -> None:
        self.path, self.spark, self._trades = path, spark, 0
        (path / "in").mkdir()

    def trade(self, file: str, *prices: object) -> None:
        with open(self.path / "in" / file, "a") as out:
            for price in prices:
                self._trades += 1
                out.write(json.dumps({"id": self._trades, "user_id": f"u{self._trades % 2}", "price": price}) + "\n")

    def write(self, *statements: str) -> Path:
        file = self.path / "app.sql"
        file.write_text("\n".join(statements))
        return file

    def run(self, *statements: str, state: Path | None = None, accept: bool = False) -> list[str]:
        """Run the file once; returns the codes of what it warns of."""
        app = mp.App(self.write(*statements), spark=self.spark, state=state, accept=accept)
        try:
            app.run_once()
            return [p.code for p in app.progress().problems]
        finally:
            app.stop()

    def rows(self, sql: str, state: Path | None = None) -> list[dict[str, Any]]:
        state = state or self.path / ".millpond" / "app"
        return list(query_state(sql, state=state, app_file=self.path / "app.sql").to_pylist())

    def all_rows(self, state: Path | None = None) -> list[list[dict[str, Any]]]:
        wanted = ("SELECT * FROM totals ORDER BY user_id", "SELECT n, total, ARRAY_SORT(ids) AS ids FROM everything")
        return [self.rows(sql, state) for sql in wanted]

    def fresh(self, name: str, *statements: str) -> list[list[dict[str, Any]]]:
        """What an app over all data there is has in its tables."""
        self.run(*statements, state=self.path / name)
        return self.all_rows(self.path / name)


@pytest.fixture
def folder(tmp_path: Path, spark: Any) -> Folder:
    made = Folder(tmp_path, spark)
    made.trade("a.jsonl", 10, 20, 1, "wrong")
    assert made.run(*FIRST) == []
    made.trade("b.jsonl", 10, 7)
    made.trade("a.jsonl", 30, 40)
    assert made.run(*FIRST) == []
    return made


def test_what_is_added_is_what_a_new_app_would_have_and_goes_on_exactly_once(
    folder: Folder, capsys: pytest.CaptureFixture[str]
) -> None:
    letters = folder.rows("SELECT COUNT(*) AS n FROM dead_letters")
    file = folder.write(*EDITED)
    assert main(["explain", str(file)]) == 0
    output = capsys.readouterr().out
    again = "recomputed from the beginning of file:in/*.jsonl"
    assert f"totals  kept, 2 rows; added: total, prices, top; {again}\n" in output
    assert f"everything  new; {again}\n" in output
    assert "MP814" not in output
    assert "MP811" not in output
    assert folder.run(*EDITED) == []
    assert folder.all_rows() == folder.fresh("one", *EDITED)
    assert folder.rows("SELECT COUNT(*) AS n FROM dead_letters") == letters
    folder.trade("a.jsonl", 50, 20)
    folder.trade("c.jsonl", 60)
    assert folder.run(*EDITED) == []
    assert folder.all_rows() == folder.fresh("two", *EDITED)


def test_what_came_since_the_last_run_is_counted_once(folder: Folder) -> None:
    folder.trade("a.jsonl", 50, 20)
    folder.trade("c.jsonl", 60)
    assert folder.run(*EDITED) == []
    (row,) = folder.rows("SELECT n, ids FROM everything")
    assert (row["n"], sorted(row["ids"])) == (10, [1, 2, 3, 5, 6, 7, 8, 9, 10, 11])


def test_views_over_it_are_computed_anew(folder: Folder) -> None:
    late = TOTALS.replace("totals", "late").replace("big", "trades")
    view = RICH.replace("totals", "late")
    assert folder.run(*FIRST, late + ";", view) == ["MP811"]
    assert folder.rows("SELECT * FROM rich") == []
    more = late.replace("AS n", "AS n, SUM(price) AS total")
    assert folder.run(*FIRST, more + BACKFILL, view) == []
    assert sorted(row["n"] for row in folder.rows("SELECT n FROM rich")) == [3, 4]


def test_a_table_that_is_kept_or_read_for_the_first_time_is_as_without_it(folder: Folder) -> None:
    assert folder.run(TRADES, BIG, TOTALS + BACKFILL) == []
    assert sorted(row["n"] for row in folder.rows("SELECT n FROM totals")) == [3, 3]


@pytest.mark.parametrize("what", ["removed", "rewritten"])
def test_a_file_that_is_not_as_it_was_is_named_and_nothing_is_changed(folder: Folder, what: str) -> None:
    before, file = folder.rows("SELECT * FROM totals ORDER BY user_id"), folder.path / "in" / "a.jsonl"
    file.unlink()
    if what == "rewritten":
        folder.trade("a.jsonl", 99)
    with pytest.raises(MillpondError, match=r"MP815.*a\.jsonl' (no longer exists|was rewritten)"):
        folder.run(TRADES, BIG, WIDER + BACKFILL)
    folder.write(*FIRST)
    assert folder.rows("SELECT * FROM totals ORDER BY user_id") == before


def test_a_file_that_was_rewritten_and_read_again_is_refused(folder: Folder) -> None:
    (folder.path / "in" / "a.jsonl").write_text("")
    folder.trade("a.jsonl", 99)
    assert folder.run(*FIRST) == ["MP510"]
    with pytest.raises(MillpondError, match=r"MP815.*was rewritten after it had been read"):
        folder.run(TRADES, BIG, WIDER + BACKFILL)


def test_generated_rows_are_made_again_up_to_where_the_stream_is(tmp_path: Path, spark: Any) -> None:
    app = Folder(tmp_path, spark)
    stream = "CREATE STREAM g FROM 'generate://?rows=250000&seed=1' WITH ('max.rows.per.batch' = '70000');"
    count = "CREATE TABLE c AS SELECT seq % 2 AS half, COUNT(*) AS n FROM g GROUP BY seq % 2"
    app.run(stream, count + ";")
    wider = count.replace("AS n", "AS n, SUM(seq) AS total, MAX(ts) AS last")
    assert app.run(stream, wider + BACKFILL) == []
    app.run(stream, wider + BACKFILL, state=tmp_path / "fresh")
    assert app.rows("SELECT * FROM c ORDER BY half") == app.rows("SELECT * FROM c ORDER BY half", tmp_path / "fresh")


def put(file: Path, ids: range) -> None:
    """A file of trades in the format of its name; one of lines grows."""
    rows = [{"id": n, "user_id": f"u{n % 2}", "price": f"{n}.50"} for n in ids]
    plain = file.name.removesuffix(".gz")
    if plain.endswith(".parquet"):
        schema = pa.schema([("id", pa.int32()), ("user_id", pa.string()), ("price", pa.decimal128(12, 2))])
        pq.write_table(
            pa.Table.from_pylist([{**row, "price": Decimal(str(row["price"]))} for row in rows], schema), file
        )
        return
    lines = [json.dumps(row) for row in rows]
    if plain.endswith(".csv"):
        header = [] if file.exists() else ["id,user_id,price"]
        lines = header + [",".join(str(value) for value in row.values()) for row in rows]
    text = ("\n".join(lines) + "\n").encode()
    if file.name.endswith(".gz"):
        file.write_bytes(gzip.compress(text))
    else:
        with open(file, "ab") as out:
            out.write(text)


@pytest.mark.parametrize("ending", ["csv", "csv.gz", "jsonl.gz", "parquet"])
def test_files_of_every_format_are_read_again(tmp_path: Path, spark: Any, ending: str) -> None:
    app = Folder(tmp_path, spark)
    trades = TRADES.replace("jsonl", ending)
    put(tmp_path / "in" / f"a.{ending}", range(1, 30))
    assert app.run(trades, BIG, TOTALS + ";") == []
    put(tmp_path / "in" / f"b.{ending}", range(30, 40))
    if ending == "csv":
        put(tmp_path / "in" / "a.csv", range(40, 45))
    assert app.run(trades, BIG, TOTALS + ";") == []
    put(tmp_path / "in" / f"c.{ending}", range(50, 60))
    edited = (trades, BIG, WIDER + BACKFILL, EVERYTHING + BACKFILL)
    assert app.run(*edited) == []
    assert app.all_rows() == app.fresh("fresh", *edited)


def test_a_running_app_takes_it_by_apply_while_files_grow(folder: Folder) -> None:
    app = mp.App(folder.write(*FIRST), spark=folder.spark)
    app.start()
    try:
        folder.trade("a.jsonl", 50, 20)
        app.apply(folder.write(*EDITED, RICH))
        folder.trade("c.jsonl", 60, 70)
        app.drain("60s")
        assert app.failures == ()
        (row,) = app.query("SELECT n, ids FROM everything").rows()
        assert (row["n"], sorted(row["ids"])) == (11, [1, 2, 3, 5, 6, 7, 8, 9, 10, 11, 12])
        assert sorted(app.table("rich").values("n")) == [5, 5]
    finally:
        app.stop()
    assert folder.all_rows() == folder.fresh("fresh", *EDITED)


PROGRAM = "import sys, millpond as mp; app = mp.App(sys.argv[1]); app.run_once(); app.stop()"


def crash(file: Path, point: str) -> None:
    environment = {**os.environ, "MILLPOND_FAULT": f"{point}:1"}
    done = subprocess.run([sys.executable, "-c", PROGRAM, str(file)], env=environment, timeout=240, check=False)
    assert done.returncode == 137, "the process was ended at the point"


@pytest.mark.process
@pytest.mark.parametrize("point", BACKFILL_POINTS)
def test_a_crash_meanwhile_changes_nothing_of_what_comes_out(folder: Folder, point: str) -> None:
    crash(folder.write(*EDITED), point)
    folder.trade("a.jsonl", 50)
    folder.run(*EDITED)
    assert folder.all_rows() == folder.fresh("fresh", *EDITED)


@pytest.mark.process
def test_what_waits_in_the_feed_is_counted_by_its_own_batch_alone(folder: Folder) -> None:
    folder.trade("a.jsonl", 50, 20)
    folder.trade("c.jsonl", 60)
    crash(folder.write(*FIRST), "flow.begun")
    folder.trade("a.jsonl", 70)
    assert folder.run(*EDITED) == []
    assert folder.all_rows() == folder.fresh("fresh", *EDITED)
