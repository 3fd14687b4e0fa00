"""Queries from several threads: side by side, bounded, cancelled."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest

import millpond as mp
from millpond.app.queries import Cancellation
from millpond.errors import RunError

TABLES = """
CREATE TABLE users (user_id STRING PRIMARY KEY, tier STRING, n INT);
INSERT INTO users VALUES ('u1', 'GOLD', 1), ('u2', 'BASIC', 2), ('u3', 'GOLD', 3);
"""
# Spark answers it: Arrow refuses `explode`. It takes minutes, unless it is cancelled.
ENDLESS = """
SELECT SUM(a.x * b.x) FROM (SELECT explode(sequence(1, 100000)) AS x FROM users) a
CROSS JOIN (SELECT explode(sequence(1, 1000000)) AS x FROM users) b
"""


@pytest.fixture
def app(tmp_path: Path, spark: Any) -> Any:
    made = mp.App(sql=TABLES, state=tmp_path / "state", spark=spark)
    made.run_once()
    yield made
    made.stop()


@pytest.mark.spark
def test_a_query_of_spark_is_cancelled_and_the_next_one_is_answered(app: Any) -> None:
    cancellation = Cancellation()
    raised: list[BaseException] = []

    def ask(cancellation: Cancellation) -> None:
        try:
            app.answer(ENDLESS, cancellation=cancellation)
        except RunError as error:
            raised.append(error)

    thread = threading.Thread(target=ask, args=(cancellation,))
    thread.start()
    while not cancellation._stop:
        thread.join(0.01)
        assert thread.is_alive()
    # A second one waits for it, and goes when it is cancelled too.
    waiting = Cancellation()
    behind = threading.Thread(target=ask, args=(waiting,))
    behind.start()
    waiting.cancel("Enough.")
    behind.join(60)
    assert "MP714  Enough." in str(raised.pop())
    # What Arrow can answer does not wait.
    assert app.query("SELECT COUNT(*) AS n FROM users").rows() == [{"n": 3}]
    cancellation.cancel("The client has gone.")
    thread.join(60)
    assert not thread.is_alive()
    assert "MP714  The client has gone." in str(raised[0])
    assert app.query("SELECT explode(array(n)) AS n FROM users WHERE n = 1").rows() == [{"n": 1}]


@pytest.mark.spark
@pytest.mark.parametrize("what", ["n", "explode(array(n)) AS n"])
def test_at_most_so_many_rows_come(app: Any, what: str) -> None:
    sql = f"SELECT {what} FROM users ORDER BY n"
    assert app.answer(sql, limit=2)["n"].to_pylist() == [1, 2]
    assert app.answer(sql, limit=0).num_rows == 0
    assert app.answer(sql).num_rows == 3


@pytest.mark.spark
@pytest.mark.parametrize(
    ("sql", "parameters"),
    [
        ("SELECT user_id FROM users WHERE tier = ? AND n > ? ORDER BY user_id", ["GOLD", 1]),
        ("SELECT n, ? AS given, ? AS more, ? AS none FROM users WHERE n < ? ORDER BY n", ["x' --", True, None, 3]),
        ("SELECT n + ? AS sum, ? AS big FROM users ORDER BY n", [2_147_483_000, 2**40]),
        ("SELECT n FROM users WHERE n IN (?, ?) ORDER BY n", [-1, 3]),
    ],
)
def test_parameters_give_the_same_rows_and_types_with_arrow_as_with_spark(
    app: Any, sql: str, parameters: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    by_arrow = app.answer(sql, parameters)
    monkeypatch.setattr("millpond.app.queries.with_literals", lambda query, parameters: None)
    by_spark = app.answer(sql, parameters)
    assert by_arrow.to_pylist() == by_spark.to_pylist()
    assert by_arrow.schema.types == by_spark.schema.types
