"""A changed SQL file on an old state directory: what is kept, rebuilt, rejected, and reported beforehand."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

import millpond as mp
from millpond.app.stopped_app import query_state
from millpond.cli.main import main
from millpond.errors import MillpondError, StateError
from millpond.testing.sql_files import sink_lines

pytestmark = pytest.mark.spark

USERS = "CREATE TABLE users (user_id STRING PRIMARY KEY, tier STRING);"
FILL = "INSERT INTO users VALUES ('u1', 'GOLD');"
TRADES = "CREATE STREAM trades (id INT, user_id STRING, price DECIMAL(12,2)) FROM 'file:trades.jsonl';"
BIG = "CREATE STREAM big AS SELECT * FROM trades WHERE price > 5;"
TOTALS = "CREATE TABLE totals AS SELECT user_id, COUNT(DISTINCT price) AS n FROM big GROUP BY user_id;"
TIERS = "CREATE TABLE tiers AS SELECT tier, COUNT(*) AS n FROM users GROUP BY tier;"
OUT = "INSERT INTO 'file:out' SELECT user_id, COUNT(*) AS n FROM trades GROUP BY user_id;"
EVERY = "INSERT INTO 'file:every' SELECT id FROM trades;"
FIRST = (USERS, FILL, TRADES, BIG, TOTALS, TIERS, OUT)


class Edited:
    """One app file that is rewritten and run again on the same state directory."""

    def __init__(self, folder: Path, spark: Any) -> None:
        self.folder, self.spark = folder, spark
        self._trades = 0

    def trade(self, *prices: str) -> None:
        with open(self.folder / "trades.jsonl", "a") as file:
            for price in prices:
                self._trades += 1
                file.write(json.dumps({"id": self._trades, "user_id": "u1", "price": price}) + "\n")

    def run(self, *statements: str, accept: bool = False) -> list[str]:
        """Run the file once; returns the codes of what it warns of."""
        self.write(*statements)
        app = mp.App(self.folder / "app.sql", spark=self.spark, accept=accept)
        try:
            app.run_once()
            return [p.code for p in app.progress().problems]
        finally:
            app.stop()

    def write(self, *statements: str) -> None:
        (self.folder / "app.sql").write_text("\n".join(statements))

    def rows(self, sql: str) -> list[dict[str, Any]]:
        state = self.folder / ".millpond" / "app"
        return list(query_state(sql, state=state, app_file=self.folder / "app.sql").to_pylist())

    def hidden(self) -> set[str]:
        """Names of the tables that hold what statements gather."""
        app = mp.App(self.folder / "app.sql", spark=self.spark)
        try:
            store = app._open().context.store
            return {n for n in store.names() if store.table(n).spec.hidden}
        finally:
            app.stop()


@pytest.fixture
def edited(tmp_path: Path, spark: Any) -> Edited:
    made = Edited(tmp_path, spark)
    made.trade("10", "20", "1")
    assert made.run(*FIRST) == []
    return made


def test_what_is_not_changed_keeps_its_rows_and_goes_on_where_it_was(edited: Edited) -> None:
    edited.trade("20", "30")
    codes = edited.run(TRADES, EVERY, OUT, BIG, TIERS, FILL, USERS, TOTALS)
    assert codes == ["MP811"], "the added statement sees what comes from now on"
    assert edited.rows("SELECT user_id, n FROM totals") == [{"user_id": "u1", "n": 3}]
    assert edited.rows("SELECT n FROM tiers") == [{"n": 1}], "the INSERT did not run again"
    assert [json.loads(line)["n"] for line in sink_lines(edited.folder / "out")] == [3, 5]
    assert [json.loads(line)["id"] for line in sink_lines(edited.folder / "every")] == [4, 5]
    edited.trade("40")
    patient = TRADES.replace(";", " WITH ('file.wait.timeout' = '1s', 'max.rows.per.batch' = '10');")
    assert edited.run(patient, EVERY.replace("every", "other"), OUT, BIG, TIERS, USERS, TOTALS) == ["MP811"]
    assert [json.loads(line)["id"] for line in sink_lines(edited.folder / "other")] == [6]
    assert edited.rows("SELECT n FROM totals") == [{"n": 4}]
    flows = [(row["name"], row["state"], row["statements"]) for row in edited.rows("SHOW FLOWS")]
    assert flows == [("trades", "finished", 3)]
    assert [row["name"] for row in edited.rows("SHOW SOURCES")] == ["trades"]


LOSING = {
    "a column that must have a value": (
        USERS.replace("tier STRING", "tier STRING, age INT NOT NULL"),
        *(TRADES, BIG, TOTALS, TIERS, OUT),
    ),
    "another key": (USERS.replace(" PRIMARY KEY", ""), FILL, TRADES, BIG, TOTALS, TIERS, OUT),
    "another aggregate": (USERS, FILL, TRADES, BIG, TOTALS.replace("DISTINCT price", "price"), TIERS, OUT),
    "another stream below": (USERS, FILL, TRADES, BIG.replace("> 5", "> 0"), TOTALS, TIERS, OUT),
    "another type below": (USERS, FILL, TRADES.replace("12,2", "12,3"), BIG, TOTALS, TIERS, OUT),
    "a table less": (TRADES, BIG, TOTALS, OUT),
    "a sum written elsewhere": (USERS, FILL, TRADES, BIG, TOTALS, TIERS, OUT.replace("file:out", "file:elsewhere")),
}


def test_what_would_lose_rows_is_refused_and_changes_nothing(edited: Edited) -> None:
    for name, statements in LOSING.items():
        with pytest.raises(StateError, match="MP806"):
            edited.run(*statements)
        edited.write(*FIRST)
        assert edited.rows("SELECT user_id, n FROM totals") == [{"user_id": "u1", "n": 2}], name
    assert edited.run(*FIRST) == []


def test_what_is_accepted_starts_anew_and_leaves_nothing_behind(edited: Edited) -> None:
    before = edited.hidden()
    assert {"totals__groups", "totals__distinct0"} <= before
    edited.trade("7")
    assert edited.run(TRADES, BIG, TOTALS.replace("DISTINCT price", "price"), accept=True) == ["MP811"]
    assert edited.rows("SELECT n FROM totals") == [{"n": 1}]
    assert {row["name"] for row in edited.rows("SHOW TABLES")} == {"dead_letters", "totals"}
    assert edited.hidden() == {"totals__groups"}


def test_views_follow_their_definition_and_or_replace_and_drop_accept(edited: Edited) -> None:
    tiers = TIERS.replace("COUNT(*)", "COUNT(*) + 10")
    assert edited.run(USERS, FILL, TRADES, BIG, TOTALS, tiers, OUT) == ["MP813"], "a warning that it is rebuilt"
    assert edited.rows("SELECT n FROM tiers") == [{"n": 11}]
    replaced = TOTALS.replace("CREATE TABLE", "CREATE OR REPLACE TABLE").replace("DISTINCT price", "price")
    edited.trade("7")
    edited.run("DROP TABLE IF EXISTS users;", TRADES, BIG, replaced, OUT)
    assert edited.rows("SELECT n FROM totals") == [{"n": 1}]
    assert "users" not in {row["name"] for row in edited.rows("SHOW TABLES")}


def test_rows_of_a_loaded_table_are_let_go_only_where_they_can_be_had_again(tmp_path: Path, spark: Any) -> None:
    file, app = tmp_path / "tiers.csv", Edited(tmp_path, spark)
    file.write_text("tier,bonus\nGOLD,5\n")
    loaded = "CREATE TABLE tiers PRIMARY KEY (tier) AS SELECT * FROM 'file:tiers.csv';"
    assert app.run(loaded) == []
    with pytest.raises(StateError, match="MP806"):
        app.run("CREATE TABLE tiers (tier STRING PRIMARY KEY, bonus BIGINT);")
    file.rename(tmp_path / "elsewhere.csv")
    with pytest.raises(StateError, match="MP806"):
        app.run(loaded.replace("*", "tier, bonus * 2 AS bonus"))
    (tmp_path / "elsewhere.csv").rename(file)
    assert app.run(loaded.replace("*", "tier, bonus * 2 AS bonus")) == ["MP813"]
    assert app.rows("SELECT bonus FROM tiers") == [{"bonus": 10}]


def test_a_hint_changes_nothing_of_what_a_statement_means(edited: Edited) -> None:
    joined = (
        "INSERT INTO 'file:joined' SELECT tier, COUNT(*) AS n FROM trades JOIN users u USING (user_id) GROUP BY tier;"
    )
    edited.run(*FIRST, joined)
    edited.trade("5")
    assert edited.run(*FIRST, joined.replace("SELECT", "SELECT /*+ SNAPSHOT(u) */")) == []
    assert [json.loads(line)["n"] for line in sink_lines(edited.folder / "joined")] == [1]
    edited.trade("6")
    assert edited.run(*FIRST, joined) == []
    assert [json.loads(line)["n"] for line in sink_lines(edited.folder / "joined")] == [1, 2]


def test_explain_shows_the_plan_while_the_app_runs(edited: Edited, capsys: pytest.CaptureFixture[str]) -> None:
    file = edited.folder / "app.sql"
    app = mp.App(file, spark=edited.spark)
    app.tables()
    assert main(["explain", str(file)]) == 0
    assert main(["explain", str(file), "--state", str(edited.folder / ".millpond" / "app")]) == 1
    app.stop()
    output = capsys.readouterr()
    assert "Plan of app" in output.out
    assert "Against the state" not in output.out
    assert output.err.count("MP801") == 2


def test_explain_shows_it_beforehand(edited: Edited, capsys: pytest.CaptureFixture[str]) -> None:
    file, state = edited.folder / "app.sql", str(edited.folder / ".millpond" / "app")
    new = "CREATE TABLE added (a INT);"
    edited.write(
        TRADES, BIG, TOTALS.replace("DISTINCT price", "price"), TIERS.replace("tier,", "tier AS t,"), USERS, new
    )
    assert main(["explain", str(file), "--state", state, "--json"]) == 0
    output = json.loads(capsys.readouterr().out)["difference"]
    changes = {t["name"]: (t["change"], t["rows"], t["loses"]) for t in output["tables"] if not t["hidden"]}
    assert changes == {
        "totals": ("changed", 1, True),
        "tiers": ("rebuilt", 1, False),
        "users": ("kept", 1, False),
        "added": ("new", 0, False),
    }
    (flow,) = output["flows"]
    assert (flow["name"], flow["change"], flow["batch"], flow["added"]) == ("trades", "kept", 0, [3])
    assert len(flow["removed"]) == 2
    assert {p["code"] for p in output["losses"]} == {"MP806"}
    edited.write(*FIRST, "INSERT INTO users VALUES ('u2', 'BASIC');")
    assert main(["explain", str(file)]) == 0
    text = capsys.readouterr().out
    assert "users  kept, 1 row\n" in text
    assert "trades  kept, continues after batch 0\n" in text
    assert "line 2: INSERT has run\n  line 8: INSERT will run" in text


def test_an_aggregate_that_a_row_has_stopped_is_repaired_by_an_option_and_keeps_its_rows(
    tmp_path: Path, spark: Any
) -> None:
    app = Edited(tmp_path, spark)
    rates = "CREATE TABLE rates AS SELECT user_id, SUM(100 / price) AS rate FROM trades GROUP BY user_id"
    app.trade("10")
    app.run(TRADES, rates + ";")
    app.trade("0", "20")
    with pytest.raises(MillpondError, match="MP701"):
        app.run(TRADES, rates + ";")
    assert app.run(TRADES, rates + " WITH ('on.error' = 'dead-letter');") == []
    assert [str(row["rate"]).rstrip("0") for row in app.rows("SELECT rate FROM rates")] == ["15."]
    assert app.rows("SELECT statement, code FROM dead_letters") == [{"statement": 1, "code": "MP701"}]


def test_columns_that_are_added_to_a_declared_table_keep_its_rows_and_those_removed_must_be_accepted(
    edited: Edited, capsys: pytest.CaptureFixture[str]
) -> None:
    wider = "CREATE TABLE users (user_id STRING PRIMARY KEY, age INT, tier STRING, kind STRING NOT NULL DEFAULT 'new');"
    others = FIRST[2:]
    edited.write(wider, *others)
    assert main(["explain", str(edited.folder / "app.sql")]) == 0
    assert (
        "users  kept, 1 row; added: age, kind, with their default or NULL in existing rows" in capsys.readouterr().out
    )
    assert edited.run(wider, *others) == []
    expected = {"user_id": "u1", "age": None, "tier": "GOLD", "kind": "new"}
    assert edited.rows("SELECT * FROM users") == [expected]
    assert edited.rows("SELECT n FROM tiers") == [{"n": 1}]
    narrower = "CREATE TABLE users (user_id STRING PRIMARY KEY, kind STRING NOT NULL DEFAULT 'x', tier STRING);"
    with pytest.raises(StateError, match=r"'users' no longer has 'age' as it was; the values .* would be lost \(1\)"):
        edited.run(narrower, *others)
    edited.run(narrower, *others, accept=True)
    assert edited.rows("SELECT * FROM users") == [{"user_id": "u1", "kind": "new", "tier": "GOLD"}]
    with pytest.raises(StateError, match="The definition of the table 'users' has changed"):
        edited.run(narrower.replace("tier STRING", "tier INT"), *others)


def test_aggregates_that_are_added_count_from_now_on_and_the_others_keep_their_groups(
    edited: Edited, capsys: pytest.CaptureFixture[str]
) -> None:
    wider = TOTALS.replace(
        "COUNT(DISTINCT price) AS n",
        "SUM(price) AS total, COUNT(DISTINCT price) AS n, COUNT(*) AS c, COUNT(DISTINCT id) + 1 AS ids",
    )
    others = [s for s in FIRST if s != TOTALS]
    edited.write(*others, wider)
    assert main(["explain", str(edited.folder / "app.sql")]) == 0
    output = capsys.readouterr().out
    assert "totals  kept, 1 row; added: total, c, ids, counted from now on" in output
    assert "'total', 'c', 'ids' of 'totals' count only events from now on; its 1 rows are kept." in output
    assert edited.run(*others, wider) == ["MP814"]
    kept = {"user_id": "u1", "total": None, "n": 2, "c": 0, "ids": 1}
    assert edited.rows("SELECT * FROM totals") == [kept]
    edited.trade("20", "40")
    assert edited.run(*others, wider) == []
    after = [(r["n"], str(r["total"]), r["c"], r["ids"]) for r in edited.rows("SELECT * FROM totals")]
    assert after == [(3, "60.00", 2, 3)]
    with pytest.raises(StateError, match="'totals' no longer has 'c' as it was"):
        edited.run(*others, wider.replace("COUNT(*) AS c", "COUNT(price) AS c"))
    fewer = wider.replace("SUM(price) AS total, ", "")
    with pytest.raises(StateError, match="'totals' no longer has 'total'"):
        edited.run(*others, fewer)
    edited.run(*others, fewer, accept=True)
    assert edited.rows("SELECT * FROM totals") == [{"user_id": "u1", "n": 3, "c": 2, "ids": 3}]
    with pytest.raises(StateError, match="The definition of the table 'totals' has changed"):
        edited.run(*others, fewer.replace("GROUP BY", "WHERE id > 1 GROUP BY"))


def test_explain_says_that_a_flow_cannot_go_on_where_run_would_refuse(
    edited: Edited, capsys: pytest.CaptureFixture[str]
) -> None:
    shutil.rmtree(edited.folder / ".millpond" / "app" / "flows")
    assert main(["explain", str(edited.folder / "app.sql")]) == 0
    output = capsys.readouterr().out
    assert "trades  kept, cannot continue after batch 0" in output
    assert "MP809" in output
    with pytest.raises(MillpondError, match="MP809"):
        edited.run(*FIRST)
