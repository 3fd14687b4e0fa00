"""Every section of the documents in this folder is an app with the rows that must come out of it."""

from pathlib import Path
from typing import Any

import pytest

from millpond.testing.documents import Section, read_sections
from millpond.testing.sql_files import CommandLine, InProcess, run_section

FOLDER = Path(__file__).parent
SECTIONS = [section for file in sorted(FOLDER.glob("*.md")) for section in read_sections(file)]
# What a user meets first goes through the command line too; the rest would only repeat the start of a JVM.
THROUGH_PROCESSES = read_sections(FOLDER / "everyday.md")


@pytest.mark.spark
@pytest.mark.parametrize("section", SECTIONS, ids=lambda s: s.name)
def test_in_process(section: Section, tmp_path: Path, spark: Any) -> None:
    run_section(section, tmp_path, InProcess(spark))


@pytest.mark.process
@pytest.mark.parametrize("section", THROUGH_PROCESSES, ids=lambda s: s.name)
def test_through_the_command_line(section: Section, tmp_path: Path) -> None:
    run_section(section, tmp_path, CommandLine())
