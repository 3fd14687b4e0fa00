"""A scalar subquery with several rows: the message names the row for which it returned them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import millpond as mp
from millpond.errors import MillpondError


@pytest.mark.spark
def test_the_row_is_named(tmp_path: Path, spark: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("MILLPOND_ENGINE", raising=False)
    (tmp_path / "app.sql").write_text(
        "CREATE TABLE t (id INT PRIMARY KEY, s INT);\n"
        "CREATE TABLE u (k INT PRIMARY KEY, n INT);\n"
        "INSERT INTO t VALUES (1, 1), (2, 2);\n"
        "INSERT INTO u VALUES (1, 0);\n"
    )
    with mp.App(tmp_path / "app.sql", state=tmp_path / "state", spark=spark) as app:
        app.run_once()
        with pytest.raises(MillpondError, match="It did for k = 1"):
            app.execute("UPDATE u SET n = (SELECT s FROM t WHERE t.id <= u.k + 1)")
