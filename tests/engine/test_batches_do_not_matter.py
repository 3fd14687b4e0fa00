"""What a keyed table holds does not depend on how events are cut into batches: random apps against plain Python."""

from __future__ import annotations

import os
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.engine.random_changes import DECLARED, MORE_FROM, REF, Draw, World, expected
from tests.engine.stepping import Stepper
from tests.seeds import FRESH

pytestmark = pytest.mark.spark

SOAK = bool(os.environ.get("MILLPOND_SOAK"))
SEEDS = [*range(400 if SOAK else 10), *range(MORE_FROM, MORE_FROM + (100 if SOAK else 3)), FRESH]
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
        tables: Any = [{tuple(r[k] for k in key): r for r in app.rows(name)} for name, key in KEYS]
        found = World(tables[0], tables[1], len(app.rows("dead_letters")))
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
@pytest.mark.parametrize("seed", dict.fromkeys([*SEEDS[:: 1 if SOAK else 4], 107, FRESH]))
def test_spark_gives_the_same(seed: int, tmp_path: Path, spark: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MILLPOND_ENGINE", "spark")
    # Statements that read all of their target take one event at a time.
    found, wanted, text = run(tmp_path / "all", spark, seed, 100, 25 if seed < MORE_FROM else 12)
    assert found == wanted, text


def unkeyed(draw: random.Random, count: int) -> list[tuple[str, Callable[[list[Any], Any], list[Any]]]]:
    """Statements on a table without a key, and what each makes of its rows with one event."""

    def of(kind: str) -> tuple[str, Callable[[list[Any], Any], list[Any]]]:
        op = draw.choice(["i", "u", "d"])
        if kind == "insert":
            return (
                f"INSERT INTO l SELECT id, v FROM c WHERE op = '{op}';",
                lambda rows, e: [*rows, (e["id"], e["v"])] if e["op"] == op else rows,
            )
        if kind == "delete":
            return (
                f"DELETE FROM l USING c WHERE l.id = c.id AND c.op = '{op}';",
                lambda rows, e: [r for r in rows if r[0] is None or r[0] != e["id"]] if e["op"] == op else rows,
            )
        return f"UPDATE l SET v = coalesce(l.v, 0) + 1 FROM c WHERE l.id = c.id AND c.op = '{op}';", lambda rows, e: [
            (r[0], (r[1] or 0) + 1) if e["op"] == op and r[0] is not None and r[0] == e["id"] else r for r in rows
        ]

    kinds = ["insert", *(draw.choice(["insert", "delete", "update"]) for _ in range(count - 1))]
    return [of(kind) for kind in kinds]


@pytest.mark.parametrize("seed", [*range(4), FRESH])
def test_a_table_without_a_key_holds_the_same_too(seed: int, tmp_path: Path, spark: Any) -> None:
    draw = random.Random(seed)
    statements, events = unkeyed(draw, 2 + seed % 3), Draw(seed).events(25)
    wanted: list[Any] = []
    for event in events:
        for _, change in statements:
            wanted = change(wanted, event)
    for size in SIZES:
        (folder := tmp_path / f"by{size}").mkdir()
        text = DECLARED + "CREATE TABLE l (id INT, v INT);\n" + "\n".join(sql for sql, _ in statements)
        app = Stepper(text, folder, spark)
        try:
            for start in range(0, len(events), size):
                app.feed(events[start : start + size])
            found = [tuple(row.values()) for row in app.rows("l")]
        finally:
            app.close()
        assert sorted(found, key=str) == sorted(wanted, key=str), f"batches of {size}\n{text}"
