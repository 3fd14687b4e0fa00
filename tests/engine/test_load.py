"""Loading tables in parts: several commits at first, one that holds what differs later, nothing after a failure."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import millpond as mp
from millpond.engine import table_content

pytestmark = pytest.mark.spark

KEYED = "CREATE TABLE parts PRIMARY KEY (k) AS SELECT k, upper(v) AS v FROM 'file:in/*.csv';"
PLAIN = "CREATE TABLE parts AS SELECT k, v FROM 'file:in/*.csv';"
VIEW = "CREATE TABLE counts AS SELECT v, COUNT(*) AS n FROM parts GROUP BY v;"


@pytest.fixture(autouse=True)
def _small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Parts of a load are single files, and a commit has at most two of them."""
    monkeypatch.setattr(table_content, "ROWS_MAX", 150)
    monkeypatch.setattr("millpond.engine.feeds.records.HELD_ROWS", 1)


@pytest.fixture
def run(tmp_path: Path, spark: Any) -> Iterator[Callable[..., mp.App]]:
    apps: list[mp.App] = []

    def once(*statements: str) -> mp.App:
        if apps:
            apps[-1].stop()
        file = tmp_path / "app.sql"
        file.write_text("\n".join(statements))
        apps.append(mp.App(file, spark=spark, state=tmp_path / "state"))
        apps[-1].run_once()
        return apps[-1]

    yield once
    apps[-1].stop()


def write(folder: Path, file: int, rows: list[tuple[int, str]]) -> None:
    (folder / "in").mkdir(exist_ok=True)
    text = "k,v\n" + "".join(f"{k},{v}\n" for k, v in rows)
    (folder / "in" / f"{file:02d}.csv").write_text(text)


def content(app: mp.App) -> list[tuple[int, str]]:
    return sorted((row["k"], row["v"]) for row in app.table("parts").find().to_pylist())


@pytest.mark.parametrize("table", [KEYED, PLAIN], ids=["keyed", "plain"])
def test_the_first_load_is_several_commits_and_views_follow_at_its_end(run: Any, tmp_path: Path, table: str) -> None:
    for file in range(6):
        write(tmp_path, file, [(100 * file + n, "x") for n in range(100)])
    app = run(table, VIEW)
    assert len(app.table("parts")) == 600
    assert app.table("parts").version == 3
    assert app.table("counts").find().to_pylist() == [{"v": "X" if table == KEYED else "x", "n": 600}]
    (source,) = app.progress().sources
    assert source.rows == 600


def test_a_load_that_goes_too_far_leaves_nothing(run: Any, tmp_path: Path) -> None:
    for file in range(6):
        write(tmp_path, file, [(100 * file + n, "x") for n in range(100)])
    with pytest.raises(mp.MillpondError, match=r"MP509.*stopped after 500 rows"):
        run(KEYED.replace(";", " WITH ('bulk.max.rows' = '450');"))


def test_the_last_of_a_key_counts_whichever_part_has_it(run: Any, tmp_path: Path) -> None:
    for file in range(4):
        write(tmp_path, file, [(n, f"f{file}") for n in range(100)])
    assert content(run(KEYED)) == [(n, "F3") for n in range(100)]


@pytest.mark.parametrize("table", [KEYED, PLAIN], ids=["keyed", "plain"])
def test_a_later_load_is_one_commit_of_what_differs(run: Any, tmp_path: Path, table: str) -> None:
    for file in range(4):
        write(tmp_path, file, [(100 * file + n, "x") for n in range(100)])
    before = run(table, VIEW).table("parts").version
    write(tmp_path, 2, [(200 + n, "y") for n in range(50)])
    write(tmp_path, 9, [(900 + n, "x") for n in range(200)])
    app = run(table, VIEW)
    x, y = ("X", "Y") if table == KEYED else ("x", "y")
    expected = [(100 * f + n, x) for f in (0, 1, 3) for n in range(100)]
    assert content(app) == sorted([*expected, *((200 + n, y) for n in range(50)), *((900 + n, x) for n in range(200))])
    assert app.table("parts").version == before + 1
    counts = {row["v"]: row["n"] for row in app.table("counts").find().to_pylist()}
    assert counts == {x: 500, y: 50}
    assert not list((tmp_path / "state").rglob("load-*"))
