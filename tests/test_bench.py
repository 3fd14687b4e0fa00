"""The benchmarks: their command lines, and that what they measure runs."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from bench.feature_cases import CASES, HEAD
from tests.databases.servers import INSTALL, PostgreSQL

import millpond as mp

BENCH = Path(__file__).parents[1] / "bench"


def run(name: str, *words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(BENCH / f"{name}.py"), *words]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)


@pytest.mark.parametrize(
    "name", ["start", "flows", "sources", "databases", "kafka_figures", "features", "apps", "app_growth", "backends"]
)
def test_a_figure_that_does_not_exist_is_refused_before_anything_starts(name: str) -> None:
    done = run(name, "--only", "csvv")
    assert done.returncode == 2
    assert "no such figures: csvv; there are " in done.stderr
    assert "Traceback" not in done.stderr


def test_an_engine_that_does_not_exist_is_rejected() -> None:
    done = run("features", "--engine", "arow")
    assert done.returncode == 2
    assert "no such engines: arow; there are arrow, spark, plain" in done.stderr


def test_every_feature_is_an_app_that_check_accepts() -> None:
    for case in CASES:
        app = mp.App(sql=HEAD + case.sql)
        assert app.plan.flows, case.name
        app.stop()


@pytest.mark.process
def test_a_feature_is_measured_on_ten_rows() -> None:
    done = run("features", "--only", "join_left", "--rows", "10", "--engine", "arrow", "--json")
    assert done.returncode == 0, done.stderr
    figures = json.loads(done.stdout)
    assert set(figures) == {f"join_left_10_{what}_arrow" for what in ("ms", "trigger_ms", "jobs")}
    assert figures["join_left_10_ms_arrow"] > 0
    assert figures["join_left_10_jobs_arrow"] == 0


@pytest.mark.process
def test_a_backend_is_measured_beside_its_plain_client() -> None:
    done = run("backends", "--only", "memory,sqlite", "--rows", "2000", "--json")
    assert done.returncode == 0, done.stderr
    memory, sqlite = (json.loads(line) for line in done.stdout.splitlines())
    own = {"load_rows_s", "upsert_1000_rows_s", "upsert_2000_rows_s", "lookup_keys_s", "get_ms", "scan_rows_s"}
    assert set(memory) == {"backend", "rows", "commit_ms", *own}
    assert set(sqlite) == {*memory, *(f"plain_{name}" for name in own)}


@pytest.mark.process
def test_starts_are_measured() -> None:
    done = run("start", "--only", "once,query,check", "--runs", "1", "--json")
    assert done.returncode == 0, done.stderr
    figures = json.loads(done.stdout)
    assert set(figures) == {f"{name}_{what}" for name in ("once", "query", "check") for what in ("s", "cpu_s")}
    assert all(value > 0 for value in figures.values())


@pytest.mark.process
@pytest.mark.skipif(bool(PostgreSQL.missing()), reason=INSTALL)
def test_a_database_is_measured_on_a_thousand_rows() -> None:
    done = run("databases", "--only", "postgresql", "--scale", "0.001", "--json")
    assert done.returncode == 0, done.stderr
    figures = json.loads(done.stdout)
    assert {"pg_load_ratio", "pg_cdc_rows_s", "cdc_delay_ms", "lookup_rows_s", "pg_sink_rows_s"} <= set(figures)
    assert all(value > 0 for value in figures.values())
