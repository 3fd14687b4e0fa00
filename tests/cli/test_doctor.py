"""`millpond doctor` on machines that lack something."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterable
from importlib import metadata
from pathlib import Path

import pyarrow as pa
import pytest

from millpond.app.app import App
from millpond.cli import health
from millpond.cli.health import MISSING, OK, WARN, Finding, Machine
from millpond.cli.main import main
from millpond.contracts.table import TableSpec
from millpond.errors import StateError
from millpond.schema import Column, Schema
from millpond.tables.store import open_store

Capture = pytest.CaptureFixture[str]


def make_java(folder: Path, version: str) -> Path:
    """A Java with its version in its release file."""
    (folder / "bin").mkdir(parents=True)
    java = folder / "bin" / "java"
    java.write_text("#!/bin/sh\n")
    java.chmod(0o755)
    (folder / "release").write_text(f'IMPLEMENTOR="x"\nJAVA_VERSION="{version}"\n')
    return java


def only(findings: Iterable[Finding]) -> Finding:
    (finding,) = findings
    return finding


def test_a_machine_that_runs_the_tests_can_run_millpond(capsys: Capture) -> None:
    assert main(["doctor"]) == 0
    reported = capsys.readouterr().out
    assert "Millpond can run here" in reported
    assert all(
        name in reported for name in ("Python", "Java", "pyspark", "memory", "cores", "disk", "clock", "kafka jars")
    )


def test_json_is_one_object_per_finding(capsys: Capture) -> None:
    assert main(["doctor", "--json"]) == 0
    findings = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert {"name", "state", "detail", "command"} == set(findings[0])


def test_no_java_at_all_is_missing_with_the_command_that_brings_it(tmp_path: Path) -> None:
    found = only(health.java(Machine({"PATH": str(tmp_path)}, tmp_path)))
    assert found.state == MISSING
    assert "17" in found.command


def test_an_old_java_is_missing(tmp_path: Path) -> None:
    make_java(tmp_path / "jdk8", "1.8.0_392")
    found = only(health.java(Machine({"JAVA_HOME": str(tmp_path / "jdk8")}, tmp_path)))
    assert (found.state, found.detail.split(" ")[0]) == (MISSING, "8")
    assert "JAVA_HOME" in found.command


def test_a_new_enough_java_is_fine(tmp_path: Path) -> None:
    java = make_java(tmp_path / "jdk", "21.0.2")
    found = only(health.java(Machine({"PATH": str(java.parent)}, tmp_path)))
    assert (found.state, found.command) == (OK, "")
    assert found.detail.startswith("21 at ")


def test_a_wrong_java_home_is_named(tmp_path: Path) -> None:
    found = only(health.java(Machine({"JAVA_HOME": str(tmp_path)}, tmp_path)))
    assert (found.state, found.command) == (MISSING, "unset JAVA_HOME")


def test_a_missing_package_makes_doctor_fail(monkeypatch: pytest.MonkeyPatch, capsys: Capture) -> None:
    monkeypatch.setattr(health, "NEEDED", ("pyarrow", "no-such-package"))
    assert main(["doctor"]) == 1
    reported = capsys.readouterr().out
    assert f"pyarrow           {metadata.version('pyarrow')}" in reported
    assert "-m pip install no-such-package" in reported
    assert "Missing: no-such-package. Millpond cannot run without it." in reported


def test_a_folder_that_cannot_be_written_is_reported(tmp_path: Path) -> None:
    gone = tmp_path / "gone"
    temporary, here = health.folders(Machine({}, gone))
    assert (temporary.state, here.state) == (OK, WARN)
    assert "--state" in here.command


def test_kafka_jars_are_found_in_the_cache(tmp_path: Path) -> None:
    machine = Machine({"HOME": str(tmp_path)}, tmp_path)
    assert only(health.kafka(machine)).state == WARN
    cache = tmp_path / ".cache" / "millpond" / "jars"
    cache.mkdir(parents=True)
    (cache / "spark-sql-kafka-0-10_2.13-4.2.1.jar").touch()
    assert only(health.kafka(machine)).state == OK


def test_a_full_disk_is_a_warning(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(health, "DISK_MIN_BYTES", 2**62)
    found = only(health.disk(Machine({}, tmp_path)))
    assert (found.state, "--state" in found.command) == (WARN, True)


def test_repair_keeps_what_is_undamaged_and_reports_what_is_lost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["doctor", "--repair"]) == 1
    assert capsys.readouterr().err.startswith("MP807  ")
    store = open_store(tmp_path / ".millpond" / "app" / "store")
    table = store.create(TableSpec("t", Schema.of([Column("n", pa.int64())])))
    table.insert([{"n": 1}])
    table.insert([{"n": 2}])
    store.close()
    assert main(["doctor", "--repair"]) == 0
    assert "Not damaged" in capsys.readouterr().out
    log = tmp_path / ".millpond" / "app" / "store" / "log-000001"
    log.write_bytes(log.read_bytes()[:-20] + b"\xff" * 20)
    assert main(["doctor", "--repair", "--state", ".millpond/app"]) == 0
    assert "are lost" in capsys.readouterr().out
    store = open_store(tmp_path / ".millpond" / "app" / "store")
    assert store.table("t").values("n") == [1]
    store.close()


def test_a_state_is_examined_and_left_alone(tmp_path: Path, capsys: Capture) -> None:
    state = tmp_path / "state"
    app = App(sql="CREATE TABLE t (n INT PRIMARY KEY);", state=state)
    app.execute("INSERT INTO t VALUES (1), (2)")
    assert main(["doctor", "--state", str(state)]) == 1
    assert "MP801" in capsys.readouterr().err
    app.stop()
    assert main(["doctor", "--state", str(state)]) == 0
    assert "The state is not damaged." in capsys.readouterr().out
    log = state / "store" / "log-000001"
    whole = log.read_bytes()
    log.unlink()
    assert main(["doctor", "--state", str(state)]) == 1
    reported = capsys.readouterr().out
    assert f"{log} is missing" in reported
    assert f"millpond doctor --repair --state {state}" in reported
    log.write_bytes(whole)
    shutil.rmtree(state / "store")
    assert main(["doctor", "--state", str(state), "--json"]) == 1
    assert json.loads(capsys.readouterr().out)["state"] == "damaged"
    again = App(sql="CREATE TABLE t (n INT PRIMARY KEY);", state=state)
    with pytest.raises(StateError, match=r"MP804.*store is missing or empty"):
        again.table("t")
    assert main(["doctor", "--state", str(tmp_path / "none")]) == 1
    assert "MP807" in capsys.readouterr().err
