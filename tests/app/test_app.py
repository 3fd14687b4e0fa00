"""An app from Python: tables, statements and transactions without Spark; queries and views with it."""

from __future__ import annotations

import io
import subprocess
import sys
import textwrap
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

import millpond as mp
from millpond.errors import ConstraintError, InputError, NotYetError, SourceError, TableError

USERS = """
CREATE TABLE users (user_id STRING PRIMARY KEY, name STRING, tier STRING NOT NULL DEFAULT 'BASIC', age INT);
CREATE TABLE orders (id INT PRIMARY KEY, user_id STRING, amount DECIMAL(12,2));
INSERT INTO users VALUES ('u1', 'Ann', 'GOLD', 30), ('u2', 'Bo', DEFAULT, 70), ('u3', 'Abe', 'BASIC', NULL);
"""


@pytest.fixture
def app(tmp_path: Path) -> Any:
    """Tables with rows; nothing in it needs Spark."""
    made = mp.App(sql=USERS, state=tmp_path / "state")
    made.run_once()
    yield made
    made.stop()


def test_the_table_api_answers_without_a_java_process(tmp_path: Path) -> None:
    program = f"""
        import millpond as mp, subprocess, os
        app = mp.App(sql={USERS!r}, state={str(tmp_path / "state")!r})
        app.run_once()
        users = app.table("USERS")
        assert users.get("u1")["tier"] == "GOLD"
        assert users.contains("u2") and not users.contains("u9") and len(users) == 3
        assert users.count("tier = 'BASIC'") == 2 and users.exists("age > ?", [65])
        assert users.find("tier = ? AND name LIKE 'A%'", ["BASIC"], columns=["name"]).to_pylist() == [{{"name": "Abe"}}]
        assert users.values("name", "age > 20") == ["Ann", "Bo"]
        assert users.scalar("MAX(age)", "tier = ?", ["BASIC"]) == 70
        assert users.lookup(["u1", "u9", "u3"]).num_rows == 2
        assert sum(b.num_rows for b in users.scan(batch_rows=2)) == 3
        assert users.update("user_id = ?", {{"tier": "GOLD"}}, ["u2"]) == 1
        assert users.delete(keys=["u3"]) == 1
        assert app.query("SELECT name FROM users WHERE age > 50 ORDER BY name").rows() == [{{"name": "Bo"}}]
        assert app.execute("UPDATE users SET age = age + 1 WHERE tier = 'GOLD'") == 2
        app.stop()
        children = subprocess.run(["ps", "--ppid", str(os.getpid()), "-o", "comm="], capture_output=True, text=True)
        assert "java" not in children.stdout, children.stdout
    """
    subprocess.run([sys.executable, "-c", textwrap.dedent(program)], check=True)


def test_an_app_that_was_stopped_says_so_until_it_is_started_again(tmp_path: Path) -> None:
    made = mp.App(sql="CREATE TABLE t (n INT PRIMARY KEY);", state=tmp_path / "state")
    made.execute("INSERT INTO t VALUES (1)")
    made.stop()
    for use in (
        lambda: made.execute("INSERT INTO t VALUES (2)"),
        lambda: made.table("t"),
        lambda: made.query("SELECT 1"),
    ):
        with pytest.raises(mp.MillpondError, match="MP710"):
            use()
    made.start()
    assert made.table("t").values("n") == [1]
    made.stop()


def test_changes_survive_a_stop(app: Any, tmp_path: Path) -> None:
    app.table("users").upsert([{"user_id": "u9", "name": "Zoe"}])
    app.stop()
    again = mp.App(sql=USERS, state=tmp_path / "state")
    assert again.table("users").get("u9") == {"user_id": "u9", "name": "Zoe", "tier": "BASIC", "age": None}
    again.stop()


def test_one_shot_statements_run_once_and_added_ones_run_later(app: Any, tmp_path: Path) -> None:
    app.stop()
    more = USERS + "INSERT INTO orders VALUES (1, 'u1', 10.50);\n"
    for _ in range(2):
        again = mp.App(sql=more, state=tmp_path / "state")
        again.run_once()
    assert len(again.table("users")) == 3
    assert again.table("orders").to_arrow().to_pylist() == [{"id": 1, "user_id": "u1", "amount": Decimal("10.50")}]
    again.stop()


@pytest.mark.spark
def test_merge_and_on_conflict_run_by_execute_and_in_transactions(tmp_path: Path, spark: Any) -> None:
    app = mp.App(sql=USERS, state=tmp_path / "state", spark=spark)
    app.run_once()
    merge = """MERGE INTO users USING (SELECT 'u1' AS id, 50 AS age UNION ALL SELECT 'u9', 9) AS s
        ON users.user_id = s.id
        WHEN MATCHED THEN UPDATE SET age = s.age WHEN NOT MATCHED THEN INSERT (user_id, age) VALUES (s.id, s.age)"""
    assert app.execute(merge) == 2
    with app.transaction() as tx:
        add = "INSERT INTO users (user_id, age) VALUES ('u9', 1), ('u8', 8) ON CONFLICT (user_id) DO UPDATE SET age = "
        assert tx.execute(add + "users.age + excluded.age") == 2
        with pytest.raises(mp.MillpondError, match="MP412"):
            tx.execute("INSERT INTO users (user_id, age) VALUES ('x', 1), ('x', 8) ON CONFLICT DO UPDATE SET age = 1")
        assert tx.execute("INSERT INTO users (user_id) VALUES ('u9') ON CONFLICT DO NOTHING") == 0
    assert app.table("users").values("age", "user_id IN ('u1', 'u8', 'u9')") == [50, 10, 8]
    app.stop()


def test_a_view_is_made_asked_and_dropped_at_once(app: Any) -> None:
    app.execute("CREATE VIEW old AS SELECT user_id FROM users WHERE age > 40")
    found = app.query("SELECT COUNT(*) AS n FROM old").to_arrow().to_pylist()
    assert found == app.query("SELECT COUNT(*) AS n FROM users WHERE age > 40").to_arrow().to_pylist()
    with pytest.raises(mp.MillpondError, match="MP205"):
        app.execute("CREATE VIEW old AS SELECT 1 AS a")
    app.execute("CREATE OR REPLACE VIEW old AS SELECT 7 AS a; CREATE VIEW IF NOT EXISTS old AS SELECT 8 AS a")
    assert app.query("SELECT a FROM old").to_arrow()["a"].to_pylist() == [7]
    app.execute("DROP VIEW old; DROP VIEW IF EXISTS old")
    with pytest.raises(mp.MillpondError, match="MP201"):
        app.query("SELECT a FROM old")


def fail_inside_a_transaction(app: Any) -> None:
    with app.transaction() as tx:
        tx.execute("UPDATE users SET tier = 'LOST'")
        tx.table("orders").insert([{"id": 1, "user_id": "u1", "amount": 1}])
        tx.execute("INSERT INTO users VALUES ('u1', 'again', 'GOLD', 1)")


def test_a_transaction_is_all_or_nothing(app: Any) -> None:
    with pytest.raises(ConstraintError, match="MP402"):
        fail_inside_a_transaction(app)
    assert app.table("users").count("tier = 'LOST'") == 0
    assert len(app.table("orders")) == 0
    with app.transaction() as tx:
        tx.execute("INSERT INTO orders VALUES (1, 'u1', 1.25)")
        assert app.table("orders").get(1) is None
    assert app.table("orders").get(1)["amount"] == Decimal("1.25")


def test_a_wrong_file_shows_all_its_mistakes() -> None:
    with pytest.raises(InputError) as caught:
        mp.App(sql="CREATE TABLE t (a INT);\nINSERT INTO tt VALUES (1);\nSELECT b FROM t;\n")
    assert [p.code for p in caught.value.problems] == ["MP201", "MP202"]


def test_what_cannot_run_yet_is_refused_before_anything_is_made(tmp_path: Path) -> None:
    past = "CREATE TABLE p (k INT PRIMARY KEY) WITH ('history' = '1h');"
    text = f"{past} CREATE TABLE v AS SELECT k FROM p VERSION AS OF 2;"
    with pytest.raises(NotYetError, match="MP901"):
        mp.App(sql=text, state=tmp_path / "state")
    assert not (tmp_path / "state").exists()


def test_an_unknown_table_is_reported_with_the_nearest_name(app: Any) -> None:
    with pytest.raises(TableError, match="Did you mean 'users'"):
        app.table("user")
    assert "users" in app
    assert "user" not in app


@pytest.mark.spark
def test_views_follow_every_way_of_changing_a_table(spark: Any, tmp_path: Path) -> None:
    text = USERS + "CREATE TABLE tiers AS SELECT tier, COUNT(*) AS n, MIN(age) AS youngest FROM users GROUP BY tier;"
    with mp.App(sql=text + "CREATE TABLE top AS SELECT MAX(n) AS n FROM tiers;", spark=spark) as app:

        def tiers() -> dict[str, tuple[int, int | None]]:
            return {r["tier"]: (r["n"], r["youngest"]) for r in app.table("tiers").to_arrow().to_pylist()}

        assert tiers() == {"GOLD": (1, 30), "BASIC": (2, 70)}
        app.table("users").upsert([{"user_id": "u4", "tier": "BASIC", "age": 5}])
        assert tiers() == {"GOLD": (1, 30), "BASIC": (3, 5)}
        app.execute("DELETE FROM users WHERE user_id IN (SELECT user_id FROM users WHERE age = 5)")
        assert tiers() == {"GOLD": (1, 30), "BASIC": (2, 70)}
        with app.transaction() as tx:
            tx.execute("UPDATE users SET tier = 'GOLD'")
            tx.table("users").delete("user_id = 'u1'")
        assert tiers() == {"GOLD": (2, 70)}
        assert app.table("top").values("n") == [2]


@pytest.mark.spark
def test_queries_take_parameters_and_joins(spark: Any) -> None:
    with mp.App(sql=USERS, spark=spark, output=io.StringIO()) as app:
        app.execute("INSERT INTO orders VALUES (1, 'u1', 9.99), (2, 'u1', 0.01), (3, 'u9', 5)")
        found = app.query(
            "SELECT u.name, SUM(o.amount) AS total FROM orders o JOIN users u USING (user_id) "
            "WHERE o.amount > ? GROUP BY u.name",
            [Decimal("0.001")],
        )
        assert found.rows() == [{"name": "Ann", "total": Decimal("10.00")}]
        assert app.query("SHOW TABLES").to_arrow()["name"].to_pylist().count("users") == 1
        assert app.query("DESCRIBE users").rows()[0]["column"] == "user_id"


def test_definitions_run_at_once_and_leave_the_file_its_tables(app: Any) -> None:
    assert app.execute("CREATE TABLE notes (id INT PRIMARY KEY, text STRING DEFAULT 'none')") == 0
    assert app.execute("INSERT INTO notes VALUES (1, DEFAULT); UPSERT INTO notes VALUES (1, 'one'), (2, 'two')") == 3
    app.execute("CREATE INDEX ON notes (text)")
    assert app.table("notes").lookup(["two"], by="text").num_rows == 1
    with pytest.raises(TableError, match="MP409"):
        app.execute("DROP TABLE users")
    app.execute("DROP TABLE notes; DROP TABLE IF EXISTS notes")
    assert "notes" not in app


def test_what_a_transaction_cannot_take_back_is_refused_in_it(app: Any) -> None:
    """Before anything runs, and never ignored."""
    for definition in (
        "CREATE TABLE z (x INT)",
        "CREATE INDEX ON users (age)",
        "DROP TABLE users",
        "SET time.zone = 'UTC'",
    ):
        with app.transaction() as tx, pytest.raises(InputError, match="MP310"):
            tx.execute(f"DELETE FROM users; {definition}; DELETE FROM users")
    for ignored in ("SET time.zone = 'UTC'", "CREATE STREAM s FROM kafka://localhost/s"):
        with pytest.raises(InputError, match="MP310"):
            app.execute(ignored)
    with pytest.raises(InputError, match=r"MP217.*not allowed in a transaction"):
        app.execute("DELETE FROM users; BEGIN; CREATE TABLE z (x INT); COMMIT")
    assert len(app.table("users")) == 3
    assert "z" not in app


def test_variables_are_put_into_what_is_executed_and_asked() -> None:
    with mp.App(sql="CREATE TABLE t (id INT PRIMARY KEY)", variables={"N": "5"}) as app:
        assert app.execute("INSERT INTO t VALUES (${N})") == 1
        with app.transaction() as tx:
            assert tx.execute("INSERT INTO t VALUES (${N} + 1), (${M:-7})") == 2
        assert app.query("SELECT id FROM t WHERE id > ${N} ORDER BY id").rows() == [{"id": 6}, {"id": 7}]


def test_a_transaction_beside_definitions_is_one(app: Any) -> None:
    assert app.execute("CREATE TABLE z (x INT); BEGIN; DELETE FROM users; ROLLBACK; INSERT INTO z VALUES (1)") == 1
    with pytest.raises(ConstraintError, match="MP402"):
        app.execute(
            "CREATE INDEX ON users (age); BEGIN; DELETE FROM z; INSERT INTO users (user_id) VALUES ('u1'); COMMIT"
        )
    assert len(app.table("users")) == 3
    assert len(app.table("z")) == 1


def test_a_query_is_one_select_with_a_value_for_each_parameter(app: Any) -> None:
    for wrong in ("DELETE FROM users", "SELECT 1 AS a; SELECT 2 AS b"):
        with pytest.raises(InputError, match="MP101"):
            app.query(wrong)
    with pytest.raises(TableError, match="MP411"):
        app.query("SELECT name FROM users", [1])
    with pytest.raises(InputError, match="MP310"):
        app.execute("SELECT name FROM users")
    assert len(app.table("users")) == 3


@pytest.mark.spark
def test_a_table_defined_by_a_query_is_changed_by_nothing_else(spark: Any) -> None:
    text = USERS + "CREATE TABLE tiers AS SELECT tier, COUNT(*) AS n FROM users GROUP BY tier;"
    with mp.App(sql=text, spark=spark) as app:
        with pytest.raises(InputError, match="MP214"):
            app.execute("UPDATE tiers SET n = 1")
        with pytest.raises(InputError, match="MP214"):
            app.table("tiers").insert([{"tier": "X", "n": 1}])
        assert app.table("tiers").count("n = 1 AND tier = 'X'") == 0
        assert app.execute("INSERT INTO orders VALUES ((SELECT CAST(COUNT(*) AS INT) FROM users), 'u1', 1)") == 1
        assert app.table("orders").get(3) is not None
        assert app.query("SELECT name FROM users ORDER BY 1 DESC LIMIT 1").rows() == [{"name": "Bo"}]


@pytest.mark.spark
def test_columns_of_fed_records_are_found_in_the_first_of_them(spark: Any, tmp_path: Path) -> None:
    text = """
    CREATE STREAM ticks FROM 'memory://ticks';
    CREATE TABLE total AS SELECT symbol, COUNT(*) AS n, SUM(price) AS price FROM ticks GROUP BY symbol;
    """
    with mp.App(sql=text, state=tmp_path / "state", spark=spark) as app:
        feed = app.feed("memory://ticks")
        assert feed.send([{"symbol": "A"}, {"symbol": "A", "price": Decimal("0.10")}]) == 2
        app.wait_ready(120)
        assert feed.send([{"symbol": "A", "price": Decimal("0.20")}, {"symbol": "A", "price": "cheap"}]) == 2
    app = mp.App(sql=text, state=tmp_path / "state", spark=spark)
    app.feed("memory://ticks").send([{"symbol": "B", "price": 1}])
    app.run_once()
    rows = app.query("SELECT * FROM total ORDER BY symbol").rows()
    assert rows == [
        {"symbol": "A", "n": 3, "price": Decimal("0.30")},
        {"symbol": "B", "n": 1, "price": Decimal("1.00")},
    ]
    assert app.table("dead_letters").count() == 1
    app.stop()


@pytest.mark.spark
def test_records_fed_from_python_are_a_table_where_they_are_joined(spark: Any, tmp_path: Path) -> None:
    text = """
    CREATE STREAM trades (id INT, symbol STRING) FROM 'memory://trades';
    CREATE TABLE priced AS SELECT t.id, r.price FROM trades t JOIN memory://rates r ON r.symbol = t.symbol;
    """
    app = mp.App(sql=text, state=tmp_path / "state", spark=spark)
    rates = [{"symbol": "A", "price": Decimal("1.50")}, {"symbol": "A", "price": Decimal("2.50")}, {"symbol": "B"}]
    assert app.feed("memory://rates").send(rates) == 3
    assert app.feed("memory://trades").send([{"id": 1, "symbol": "A"}, {"id": 2, "symbol": "C"}]) == 2
    app.run_once()
    rows = app.query("SELECT id, price FROM priced ORDER BY price").rows()
    assert rows == [{"id": 1, "price": Decimal("1.50")}, {"id": 1, "price": Decimal("2.50")}]
    app.stop()


@pytest.mark.spark
def test_records_fed_from_python_are_read_once_in_their_order(spark: Any, tmp_path: Path) -> None:
    text = """
    CREATE STREAM ticks (symbol STRING, price DECIMAL(12,2), n INT) FROM 'memory://ticks';
    CREATE TABLE last (symbol STRING PRIMARY KEY, price DECIMAL(12,2), n INT);
    INSERT INTO last SELECT * FROM ticks;
    CREATE TABLE total AS SELECT COUNT(*) AS n, SUM(price) AS price FROM ticks;
    """
    for start in (0, 2):
        app = mp.App(sql=text, state=tmp_path / "state", spark=spark)
        feed = app.feed("memory://ticks")
        assert feed.send([{"symbol": "A", "price": Decimal("0.10"), "n": start}, {"symbol": "B", "n": "many"}]) == 2
        assert feed.send([{"symbol": "A", "price": "0.20", "n": start + 1}]) == 1
        app.run_once()
    with pytest.raises(SourceError, match="memory://ticks"):
        app.feed("memory://tick")
    assert app.table("last").to_arrow().to_pylist() == [{"symbol": "A", "price": Decimal("0.20"), "n": 3}]
    assert app.table("total").to_arrow().to_pylist() == [{"n": 4, "price": Decimal("0.60")}]
    assert app.table("dead_letters").count() == 2
    app.stop()


@pytest.mark.spark
def test_an_app_that_stops_leaves_the_session_of_others_alone(tmp_path: Path, spark: Any) -> None:
    app = mp.App(sql=USERS, state=tmp_path / "state")
    app.run_once()
    assert app.query("SELECT stddev(age) AS s FROM users WHERE age > 50").rows() == [{"s": None}]
    app.stop()
    assert spark.range(3).count() == 3
