"""Every section of the documents in this folder is an app with the rows that must come out of it."""

import os
import random
from pathlib import Path
from typing import Any

import pytest
from tests.seeds import FRESH, replayed_by

from millpond.testing.documents import Section, read_sections
from millpond.testing.sql_files import CommandLine, InProcess, run_section

FOLDER = Path(__file__).parent
SECTIONS = [section for file in sorted(FOLDER.glob("*.md")) for section in read_sections(file)]
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
    """Spark is the reference: some sections, other ones in each run, and all of them in `make soak`."""
    monkeypatch.setenv("MILLPOND_ENGINE", "spark")
    chosen = SECTIONS if os.environ.get("MILLPOND_SOAK") else random.Random(FRESH).sample(SECTIONS, SAMPLE)
    failed: dict[str, str] = {}
    for number, section in enumerate(chosen):
        folder = tmp_path / str(number)
        folder.mkdir()
        try:
            run_section(section, folder, InProcess(lambda: spark))
        except Exception as error:
            failed[section.name] = str(error)
    assert failed == {}, replayed_by()
