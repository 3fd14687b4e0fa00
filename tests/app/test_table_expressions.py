"""Conditions, values and parameters of every kind on tables of every backend, by Arrow or by Spark."""

from __future__ import annotations

from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

import millpond as mp
from millpond.errors import MillpondError

ROW = {"k": 1, "ar": ["a", None, ""], "st": {"x": None, "y": [Decimal("1.10"), None]}, "s": "q'uote"}
NAMES = ("inside", "cached", "outside", "spilled")


@pytest.fixture(scope="module")
def app(tmp_path_factory: pytest.TempPathFactory, spark: Any) -> Iterator[mp.App]:
    folder = Path(tmp_path_factory.mktemp("expressions"))
    options = {
        "inside": "'backend' = 'memory'",
        "cached": "'backend' = 'cache'",
        "outside": f"'backend' = 'sqlite', 'path' = '{folder}/t.db', 'cache.max_size' = '10'",
        "spilled": "'spill' = 'true', 'max_memory' = '1KB'",
    }
    columns = "(k INT PRIMARY KEY, ar ARRAY<STRING>, st STRUCT<x: INT, y: ARRAY<DECIMAL(10,2)>>, s STRING)"
    text = "".join(f"CREATE TABLE {name} {columns} WITH ({options[name]});\n" for name in NAMES)
    made = mp.App(sql=text, state=folder / "state", spark=spark)
    for name in NAMES:
        made.table(name).insert([ROW, {"k": 2}])
    yield made
    made.stop()


@pytest.mark.parametrize(
    ("condition", "parameters", "expected"),
    [
        ("ar = ?", [["a", None, ""]], [1]),
        ("ar IN (?, ?)", [["z"], ("a", None, "")], [1]),
        ("ar = ?", [[]], []),
        ("k = ? AND st = ?", [1, ROW["st"]], [1]),
        ("st <=> ?", [{"y": [Decimal("1.10"), None], "x": None}], [1]),
        ("array_contains(?, s)", [["q'uote"]], [1]),
        ("size(?) = k", [["one", "two"]], [2]),
    ],
)
def test_lists_and_dicts_are_parameters(
    app: mp.App, condition: str, parameters: list[Any], expected: list[int]
) -> None:
    for name in NAMES:
        assert app.table(name).values("k", condition, parameters) == expected


def test_lists_are_parameters_of_queries(app: mp.App) -> None:
    assert app.query("SELECT k FROM inside WHERE ar = ? AND k = ?", [["a", None, ""], 1]).rows() == [{"k": 1}]


@pytest.mark.parametrize(
    ("condition", "parameters", "code"),
    [
        ("SUM(k) > 1", [], "MP220"),
        ("k IN (SELECT k FROM cached)", [], r"MP224.*cached"),
        ("transform(ar, x -> nope)[0] = 'a'", [], r"MP202.*nope"),
        ("st = ?", [{"zz": 1}], r"MP411.*struct"),
        ("ar = ?", [], "MP411"),
    ],
)
def test_a_condition_that_one_table_cannot_answer_is_reported(
    app: mp.App, condition: str, parameters: list[Any], code: str
) -> None:
    for name in NAMES:
        with pytest.raises(MillpondError, match=code):
            app.table(name).find(condition, parameters)


def test_a_value_may_be_a_subquery_alone(app: mp.App) -> None:
    assert app.execute("UPDATE inside SET s = (SELECT max(s) FROM outside) WHERE k = 2") == 1
    assert app.query("SELECT s FROM inside WHERE k = 2").rows() == [{"s": "q'uote"}]


def test_an_error_names_the_line_of_the_text(app: mp.App) -> None:
    with pytest.raises(MillpondError, match=r"MP402 <query>:2:1"):
        app.execute("DELETE FROM inside WHERE k = 99;\nINSERT INTO inside (k) VALUES (1)")
