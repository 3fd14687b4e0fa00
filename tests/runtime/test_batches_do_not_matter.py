"""What a keyed table holds does not depend on how events are cut into batches: random apps against plain Python."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from tests.runtime.random_changes import DECLARED, REF, Draw, World, expected
from tests.runtime.stepping import Stepper
from tests.seeds import FRESH

pytestmark = pytest.mark.spark

SOAK = bool(os.environ.get("MILLPOND_SOAK"))
SEEDS = [*range(400 if SOAK else 10), FRESH]
SIZES = (1, 7, 100)


def run(folder: Path, spark: Any, seed: int, size: int, events_max: int) -> tuple[World, World, str]:
    """What an app comes to by batches of a size, what it should come to, and the app."""
    draw = Draw(seed)
    changes, events = draw.app(2 + seed % 4), draw.events(events_max)
    text = DECLARED + "\n".join(change.sql for change in changes)
    folder.mkdir()
    app = Stepper(text, folder, spark)
    app.put("ref", [{"id": id_, "x": x} for id_, x in REF.items()])
    try:
        for start in range(0, len(events), size):
            app.feed(events[start : start + size])
        tables = [{tuple(r[k] for k in key): r for r in app.rows(name)} for name, key in KEYS]
        found = World(*tables, len(app.rows("dead_letters")))
    finally:
        app.close()
    return found, expected(changes, events), text


KEYS = (("t", ("id",)), ("u", ("id", "k")))


@pytest.mark.parametrize("seed", SEEDS)
def test_a_table_holds_the_same_whatever_the_size_of_batches(seed: int, tmp_path: Path, spark: Any) -> None:
    for size in SIZES:
        found, wanted, text = run(tmp_path / f"by{size}", spark, seed, size, 40)
        assert found == wanted, f"batches of {size}\n{text}"


# 107 has an event to blame among the items of five statements.
@pytest.mark.parametrize("seed", [*SEEDS[:: 1 if SOAK else 4], 107])
def test_spark_gives_the_same(seed: int, tmp_path: Path, spark: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MILLPOND_ENGINE", "spark")
    found, wanted, text = run(tmp_path / "all", spark, seed, 100, 25)
    assert found == wanted, text
