"""Commands that need no Spark start no Java; those that need it start it once."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

MILLPOND = (sys.executable, "-m", "millpond.cli.main")
PATIENCE_S = 300.0

APP = """
CREATE STREAM s (k INT, v STRING) FROM 'file://./größe.jsonl';
CREATE TABLE t (k INT PRIMARY KEY, v STRING);
INSERT INTO t SELECT k, upper(v) FROM s;
CREATE TABLE totals AS SELECT k, COUNT(*) AS n FROM s GROUP BY k;
CREATE TABLE sums AS SELECT SUM(n) AS n FROM totals;
"""
# A Java that only leaves a mark, and fails.
JAVA = '#!/bin/sh\necho started >> "{mark}"\nexit 1\n'


class Folder:
    """An app, and a Java that notes when it is started."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "Übung"
        self.path.mkdir()
        (self.path / "app.sql").write_text(APP, "utf-8")
        (self.path / "größe.jsonl").write_text('{"k": 1, "v": "ä"}\n', "utf-8")
        self._home, self._mark = folder / "jdk", folder / "mark"
        (self._home / "bin").mkdir(parents=True)
        (self._home / "bin" / "java").write_text(JAVA.format(mark=self._mark))
        (self._home / "bin" / "java").chmod(0o755)
        (self._home / "release").write_text('JAVA_VERSION="17.0.1"\n')

    def run(self, *words: str) -> tuple[int, str]:
        around = {**os.environ, "JAVA_HOME": str(self._home), "LC_ALL": "C"}
        done = subprocess.run(
            [*MILLPOND, *words],
            cwd=self.path,
            env=around,
            capture_output=True,
            encoding="utf-8",
            check=False,
            timeout=PATIENCE_S,
        )
        return done.returncode, done.stdout + done.stderr

    @property
    def java_started(self) -> bool:
        return self._mark.exists()


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    return Folder(tmp_path)


@pytest.mark.process
def test_an_app_that_arrow_evaluates_runs_once_and_is_queried_without_java(folder: Folder) -> None:
    for words in (["check", "app.sql"], ["explain", "app.sql"], ["run", "app.sql", "--once"]):
        code, said = folder.run(*words)
        assert code == 0, said
    code, said = folder.run("query", "SELECT v, n FROM t, sums", "--app", "app.sql", "--format", "json")
    assert (code, said) == (0, '{"v": "Ä", "n": 1}\n')
    assert not folder.java_started


@pytest.mark.process
def test_invalid_records_become_dead_letters_without_java(folder: Folder) -> None:
    lines = ['{"k": 1, "v": "a"}', "rubbish", '{"K": "2", "v": 5.50}', '{"k": 3.5}', '{"k": 4, "v"']
    (folder.path / "größe.jsonl").write_text("\n".join(lines) + "\n", "utf-8")
    code, said = folder.run("run", "app.sql", "--once")
    assert code == 0, said
    code, said = folder.run("query", "SELECT k, v FROM t ORDER BY k", "--app", "app.sql", "--format", "csv")
    assert (code, said) == (0, "k,v\n1,A\n2,5.50\n")
    code, said = folder.run("query", "SELECT reason FROM dead_letters", "--app", "app.sql", "--format", "csv")
    assert (code, len(said.splitlines())) == (0, 4), said
    assert not folder.java_started


@pytest.mark.process
def test_a_file_with_errors_starts_no_java(folder: Folder) -> None:
    (folder.path / "app.sql").write_text(APP.replace("upper(v)", "soundex(w)"), "utf-8")
    for words in (["run", "app.sql"], ["run", "app.sql", "--once"], ["check", "app.sql"]):
        code, said = folder.run(*words)
        assert (code, "MP202" in said) == (2, True), said
    assert not folder.java_started


@pytest.mark.process
def test_a_java_that_does_not_start_is_reported(folder: Folder) -> None:
    (folder.path / "app.sql").write_text(APP.replace("upper(v)", "soundex(v)"), "utf-8")
    code, said = folder.run("run", "app.sql", "--once")
    assert (code, "MP705" in said) == (1, True), said
    assert folder.java_started
    (folder.path / "app.sql").write_text(APP, "utf-8")
    code, said = folder.run("run", "app.sql", "--accept")
    assert (code, "MP705" in said) == (1, True), said


@pytest.mark.process
def test_a_first_batch_that_only_spark_reads_starts_it(tmp_path: Path) -> None:
    (tmp_path / "s.jsonl").write_text("".join(f'{{"k": {k}}}\n' for k in range(3000)))
    (tmp_path / "app.sql").write_text(
        "SET driver.max.rows = 10;\n"
        "CREATE STREAM s (k INT) FROM 'file://./s.jsonl';\n"
        "INSERT INTO 'file://./out' SELECT k FROM s;\n"
    )
    done = subprocess.run(
        [*MILLPOND, "run", "app.sql", "--once"],
        cwd=tmp_path,
        capture_output=True,
        encoding="utf-8",
        check=False,
        timeout=PATIENCE_S,
    )
    assert done.returncode == 0, done.stderr
    written = "".join(file.read_text() for file in (tmp_path / "out").glob("*.json*"))
    assert len(written.splitlines()) == 3000
