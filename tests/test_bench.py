"""The benchmarks' command lines."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

BENCH = Path(__file__).parents[1] / "bench"


@pytest.mark.parametrize("name", ["flows", "sources"])
def test_a_figure_that_does_not_exist_is_refused_before_anything_starts(name: str) -> None:
    words = [sys.executable, str(BENCH / f"{name}.py"), "--only", "csvv"]
    done = subprocess.run(words, capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 2
    assert "no such figures: csvv; there are " in done.stderr
    assert "Traceback" not in done.stderr
