"""`table.scalar`: every aggregate, by Arrow where it agrees with Spark and else by Spark."""

from __future__ import annotations

from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

import millpond as mp
from millpond.errors import MillpondError

TEXT = """
CREATE TABLE t (id INT PRIMARY KEY, s STRING, n INT, d DECIMAL(10,2), a ARRAY<INT>);
INSERT INTO t VALUES (1, 'a', 1, 1.5, array(1, 2)), (2, 'b', 2, 2.5, array(3)), (3, 'a', NULL, NULL, NULL);
"""


@pytest.fixture(scope="module")
def app(tmp_path_factory: pytest.TempPathFactory, spark: Any) -> Iterator[mp.App]:
    made = mp.App(sql=TEXT, state=Path(tmp_path_factory.mktemp("scalar")) / "state", spark=spark)
    made.run_once()
    yield made
    made.stop()


@pytest.mark.parametrize(
    ("expression", "condition", "parameters", "expected"),
    [
        ("SUM(n)", None, [], 3),
        ("SUM(n * ?) + AVG(d) * ?", None, [2, 3], Decimal("12.000000")),
        ("STDDEV(n)", None, [], pytest.approx(0.7071067811865476)),
        ("median(n)", None, [], 1.5),
        ("percentile_approx(n, 0.5)", None, [], 1),
        ("collect_list(s)", None, [], ["a", "b", "a"]),
        ("max_by(s, n)", None, [], "b"),
        ("SUM(n) FILTER (WHERE s = ?)", "id < ?", ["a", 3], 1),
        ("COUNT_IF(n > 1) + ?", None, [10], 11),
        ("MAX(a)", None, [], [3]),
        ("listagg(s, ',')", "n > 0", [], "a,b"),
        ("STDDEV(n)", "id > 100", [], None),
        ("COUNT(DISTINCT s, n)", None, [], 2),
    ],
)
def test_an_aggregate_of_the_rows(
    app: mp.App, expression: str, condition: str | None, parameters: list[Any], expected: Any
) -> None:
    assert app.table("t").scalar(expression, condition, parameters) == expected


@pytest.mark.parametrize(
    ("expression", "code"),
    [("n", "MP220"), ("STDDEV(nope)", "MP202.*nope"), ("SUM(nope)", "MP202.*nope"), ("STDDEV(n * ?)", "MP411")],
)
def test_a_wrong_aggregate_is_reported(app: mp.App, expression: str, code: str) -> None:
    with pytest.raises(MillpondError, match=code):
        app.table("t").scalar(expression)
