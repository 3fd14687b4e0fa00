"""The sections of the documents in this folder, and some of them run together."""

from __future__ import annotations

import os
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.seeds import FRESH

from millpond.testing.documents import read_sections
from millpond.testing.sql_files import InProcess, run_section

FOLDER = Path(__file__).parent
SECTIONS = [section for file in sorted(FOLDER.glob("*.md")) for section in read_sections(file)]


def failed_of(sample: int, folder: Path, spark: Any, before: Callable[[], None] = lambda: None) -> dict[str, str]:
    """What was wrong with which of some sections, other ones in each run; with all of them in `make soak`. What only
    memory can do, such as keys of nested types, may be rejected. `before` is called before each section."""
    chosen = SECTIONS if os.environ.get("MILLPOND_SOAK") else random.Random(FRESH).sample(SECTIONS, sample)
    failed: dict[str, str] = {}
    for number, section in enumerate(chosen):
        own = folder / str(number)
        own.mkdir()
        before()
        try:
            run_section(section, own, InProcess(lambda: spark))
        except Exception as error:
            if not ("MP208" in str(error) and "Use 'backend' = 'memory'" in str(error)):
                failed[section.name] = str(error)
    return failed
