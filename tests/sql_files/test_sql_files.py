"""Every section of the documents in this folder is an app with the rows that must come out of it."""

from pathlib import Path
from typing import Any

import pytest
from tests.seeds import replayed_by
from tests.sql_files.sections import FOLDER, SECTIONS, failed_of

from millpond.testing.documents import Section, read_sections
from millpond.testing.sql_files import CommandLine, InProcess, run_section

# What a user meets first goes through the command line too; the rest would only repeat the start of a JVM.
THROUGH_PROCESSES = read_sections(FOLDER / "everyday.md")
SAMPLE = 12


@pytest.mark.spark
@pytest.mark.parametrize("section", SECTIONS, ids=lambda s: s.name)
def test_in_process(section: Section, tmp_path: Path, spark: Any) -> None:
    run_section(section, tmp_path, InProcess(lambda: spark))


@pytest.mark.process
@pytest.mark.parametrize("section", THROUGH_PROCESSES, ids=lambda s: s.name)
def test_through_the_command_line(section: Section, tmp_path: Path) -> None:
    run_section(section, tmp_path, CommandLine())


@pytest.mark.spark
def test_spark_gives_the_same_rows(tmp_path: Path, spark: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Spark is the reference."""
    monkeypatch.setenv("MILLPOND_ENGINE", "spark")
    assert failed_of(SAMPLE, tmp_path, spark) == {}, replayed_by()


@pytest.mark.spark
@pytest.mark.parametrize("backend", ["sqlite", "delta"])
def test_another_backend_gives_the_same_rows(
    tmp_path: Path, spark: Any, monkeypatch: pytest.MonkeyPatch, backend: str
) -> None:
    monkeypatch.setenv("MILLPOND_BACKEND", backend)
    assert failed_of(SAMPLE, tmp_path, spark) == {}, replayed_by()
