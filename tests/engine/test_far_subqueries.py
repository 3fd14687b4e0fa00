"""Subqueries that look two queries out, which Spark cannot resolve: the same rows whatever the size of a batch."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import millpond as mp
from millpond.contracts.evaluator import DRIVER_ROWS
from millpond.errors import MillpondError
from millpond.sql.conditions import far_column
from millpond.sql.parser import parse_script
from millpond.sql.statements import Select

ROWS = DRIVER_ROWS + 3
TABLES = """
CREATE TABLE t (k INT PRIMARY KEY, g INT);
CREATE TABLE u (g INT, x INT);
INSERT INTO t VALUES (0, 1), (1, 2), (2, 3);
INSERT INTO u VALUES (1, 0), (1, 3), (2, 1), (3, 4);
"""
INNER = "SELECT 1 FROM u WHERE u.g = t.g AND u.x = s.x"
FLOW = f"""
CREATE STREAM s AS SELECT CAST(seq % 3 AS INT) AS k, CAST(seq % 5 AS INT) AS x FROM 'generate://?rows={ROWS}';
CREATE TABLE met AS SELECT COUNT(*) AS n FROM s WHERE EXISTS (SELECT 1 FROM t WHERE t.k = s.k AND EXISTS ({INNER}));
CREATE TABLE free AS SELECT COUNT(*) AS n FROM s WHERE EXISTS (SELECT 1 FROM t WHERE t.k = s.k
  AND NOT EXISTS ({INNER}));
"""


def test_a_batch_that_is_too_large_for_the_driver_has_the_same_rows(tmp_path: Path, spark: Any) -> None:
    app = mp.App(sql=TABLES + FLOW, state=tmp_path / "state", spark=spark)
    app.run_once()
    pairs = {(0, 0), (0, 3), (1, 1), (2, 4)}
    expected = sum((i % 3, i % 5) in pairs for i in range(ROWS))
    assert app.query("SELECT n FROM met").rows() == [{"n": expected}]
    assert app.query("SELECT n FROM free").rows() == [{"n": ROWS - expected}]
    app.stop()


def test_one_that_cannot_be_answered_says_so(tmp_path: Path, spark: Any) -> None:
    app = mp.App(sql=TABLES, state=tmp_path / "state", spark=spark)
    grouped = (
        "SELECT s.k FROM t s WHERE s.g IN (SELECT max(t.g) FROM t WHERE t.k = s.k GROUP BY t.k HAVING count(*) > "
        "(SELECT count(*) FROM u WHERE u.g = t.k AND u.x = s.g))"
    )
    with pytest.raises(MillpondError, match=r"MP224.*reads s\.g of a query two levels further out"):
        app.query(grouped)
    app.stop()


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("SELECT 1 FROM a WHERE EXISTS (SELECT 1 FROM b WHERE b.k = a.k)", None),
        ("SELECT 1 FROM a WHERE EXISTS (SELECT 1 FROM b WHERE b.k IN (SELECT c.k FROM c WHERE c.x = a.x))", "x"),
        ("SELECT 1 FROM a WHERE EXISTS (SELECT 1 FROM b, (SELECT c.k FROM c) c WHERE b.k = c.k AND a.k = c.k)", None),
        ("SELECT (SELECT 1 FROM a WHERE EXISTS (SELECT 1 FROM b WHERE b.k = a.k)) FROM a", None),
    ],
)
def test_how_far_out_a_column_is(text: str, found: str | None) -> None:
    (statement,) = parse_script(text).statements
    assert isinstance(statement, Select)
    column = far_column(statement.query)
    assert (column.name if column is not None else None) == found
