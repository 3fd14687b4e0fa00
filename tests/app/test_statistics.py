"""What an app reports about its sources, tables, flows and sinks: in SHOW, in Python and while it loads."""

import json
import time
from pathlib import Path
from typing import Any

import pytest

import millpond as mp
from millpond.errors import MillpondError

pytestmark = pytest.mark.spark

APP = """
CREATE STREAM events (id INT, n INT) FROM 'file://./events.jsonl';
CREATE TABLE people PRIMARY KEY (id) AS SELECT * FROM 'file://./people.csv'{limits};
CREATE TABLE sums AS SELECT id, SUM(n) AS n FROM events GROUP BY id;
INSERT INTO 'file://./out' SELECT * FROM events;
"""
SHOWN = {
    "TABLES": "name, state, rows, version, backend, key, loaded, updated_at, bytes",
    "SOURCES": "name, type, state, health, rows, updated_at, lag, retries, bad_records",
    "FLOWS": "name, stream, state, statements, batches, rows, rows_per_s, batch_ms, lag, error, "
    "arrow_batches, arrow_rows, arrow_ms, spark_batches, spark_rows, spark_ms",
}


@pytest.fixture
def make(tmp_path: Path, spark: Any) -> Any:
    (tmp_path / "events.jsonl").write_text('{"id": 1, "n": 2}\n{"id": 2, "n": 3}\nrubbish\n')
    (tmp_path / "people.csv").write_text("id,name\n1,Ann\n2,Bo\n3\n")
    made: list[Any] = []

    def app(limits: str = "") -> Any:
        (tmp_path / "app.sql").write_text(APP.format(limits=limits))
        made.append(mp.App(tmp_path / "app.sql", state=tmp_path / "state", spark=spark))
        return made[-1]

    yield app
    for each in made:
        each.stop()


def test_figures_of_the_last_run_stay_when_the_app_is_opened_only_to_be_asked(make: Any) -> None:
    app = make()
    app.run_once()
    for _ in range(2):
        events, people = sorted(app.query("SHOW SOURCES").rows(), key=lambda row: str(row["name"]))
        assert [(s["state"], s["health"], s["rows"], s["bad_records"]) for s in (events, people)] == [
            ("stopped", "healthy", 3, 1),
            ("stopped", "healthy", 3, 1),
        ]
        app.stop()
        app = make()


def test_every_source_table_flow_and_sink_reports_its_figures(make: Any) -> None:
    began = time.time()
    with make() as app:
        stats = app.stats()
        shown = {kind: app.query(f"SHOW {kind}").to_arrow() for kind in SHOWN}
    assert json.loads(json.dumps(stats)) == stats
    events, people = (next(s for s in stats["sources"] if name in s["name"]) for name in ("events", "people"))
    assert (events["rows"], events["bad_records"], events["lag"], events["bytes"]) == (3, 1, 0, 44)
    assert (people["rows"], people["bad_records"], people["bytes"]) == (3, 1, 21)
    assert began <= events["updated_at"] <= time.time()
    assert events["rows_per_s"] > 0
    assert events["rows_per_s_5m"] > 0
    (flow,) = stats["flows"]
    assert (flow["rows"], flow["batches"], flow["bad_records"], flow["lag"]) == (3, 1, 1, 0)
    (sink,) = stats["sinks"]
    assert (sink["rows"], sink["batches"], sink["guarantee"]) == (2, 1, "exactly once")
    loaded = next(t for t in stats["tables"] if t["name"] == "people")
    assert (loaded["load"]["rows"], loaded["load"]["done"], loaded["loaded"]) == (3, 21, "21 of 21 bytes")
    for kind, names in SHOWN.items():
        assert ", ".join(shown[kind].column_names) == names
    assert shown["SOURCES"]["updated_at"].null_count == 0


def test_a_load_beyond_its_limit_fails_with_the_count_and_publishes_nothing(make: Any) -> None:
    app = make(" WITH ('bulk.max.rows' = '2')")
    with pytest.raises(MillpondError, match=r"MP509.*stopped after 3 rows: 'bulk.max.rows' is 2"):
        app.run_once()
    (people,) = [t for t in app.stats()["tables"] if t["name"] == "people"]
    assert (people["state"], people["rows"]) == ("failed", 0)


def test_a_load_that_takes_too_long_fails(make: Any) -> None:
    app = make(" WITH ('bulk.timeout' = '0ms')")
    with pytest.raises(MillpondError, match=r"MP509.*'bulk.timeout' is 0 s"):
        app.run_once()
    assert len(app.table("people")) == 0


def test_a_table_whose_reload_fails_stays_usable_and_is_stale(make: Any, tmp_path: Path) -> None:
    app = make(" WITH ('bulk.max.rows' = '3')")
    app.run_once()
    app.stop()
    with (tmp_path / "people.csv").open("a") as file:
        file.write("4,Di\n")
    with pytest.raises(MillpondError, match="MP509"):
        app.run_once()
    (people,) = [t for t in app.stats()["tables"] if t["name"] == "people"]
    assert (people["state"], people["rows"]) == ("stale", 2)
