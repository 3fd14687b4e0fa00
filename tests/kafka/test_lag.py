"""How far behind a source is: asked of the brokers, not counted from what this run has read."""

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import millpond as mp

pytestmark = pytest.mark.spark
PATIENCE_S = 60.0
AGE_S = 1000


def test_lag_is_what_is_not_in_the_tables_directly_after_a_restart_too(
    topic: Callable[..., Any], run: Callable[..., Any], spark: Any, tmp_path: Path
) -> None:
    orders = topic()
    orders.send({"id": 1}, {"id": 2})
    sql = f"""
        CREATE STREAM orders (id INT) FROM {orders.uri};
        CREATE TABLE shares (share DOUBLE);
        INSERT INTO shares SELECT 10 / (id - 4) FROM orders;
    """
    run(sql)
    orders.send({"id": 3}, {"id": 4}, {"id": 5}, timestamp=int((time.time() - AGE_S) * 1000))
    added = f"""
        CREATE STREAM fresh (id INT) FROM {orders.uri} WITH ('auto.offset.reset' = 'latest');
        INSERT INTO shares SELECT id FROM fresh;
        CREATE TABLE unseen AS SELECT * FROM {topic().uri};
    """
    app = mp.App(sql=sql + added, state=tmp_path / "state", spark=spark)
    app.start()
    deadline = time.monotonic() + PATIENCE_S
    while (behind := app.progress().sources[0]).lag_s is None:
        assert time.monotonic() < deadline, "nobody said how long the oldest message has waited"
        time.sleep(0.05)
    # The batch is undone by what divides by zero.
    assert behind.lag == 3
    assert AGE_S <= behind.lag_s < 2 * AGE_S
    fresh, empty = app.progress().sources[1:]
    assert fresh.lag == 0
    # It has no message from which columns could be inferred.
    assert (empty.state, empty.health, empty.lag) == ("waiting", "healthy", 0)
    app.stop()
