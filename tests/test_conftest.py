"""A skipped test is listed loudly, and is a failure where CI=true; random tests are other ones in each run."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

SKIPPING = "import pytest\n\n@pytest.mark.skip(reason='no such luck')\ndef test_it(): ...\n\ndef test_other(): ...\n"
DRAWING = """
import pytest
from hypothesis import given, settings, strategies
from tests.seeds import FRESH

@settings(max_examples=5, database=None)
@given(strategies.integers(0, 10**9))
def test_drawn(number):
    print("drew", number)
    assert number < 0

@pytest.mark.parametrize("seed", [1, FRESH])
def test_collected_the_same_by_all_workers(seed): ...
"""


def run(folder: Path, text: str, workers: str = "0", **variables: str) -> subprocess.CompletedProcess[str]:
    """pytest with our conftest over one file of tests."""
    shutil.copy(Path(__file__).with_name("conftest.py"), folder)
    (folder / "test_it.py").write_text(text, "utf-8")
    path = os.pathsep.join([str(Path(__file__).parents[1]), os.environ.get("PYTHONPATH", "")])
    kept = {name: value for name, value in os.environ.items() if name != "MILLPOND_SEED"}
    return subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-n", workers, "-p", "no:cacheprovider", str(folder)],
        cwd=folder,
        env={**kept, "PYTHONPATH": path, **variables},
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.parametrize(("ci", "workers", "exit_code"), [("true", "0", 1), ("", "0", 0), ("true", "2", 1)])
def test_a_skip_is_reported_with_its_reason_and_fails_only_on_ci(
    tmp_path: Path, ci: str, workers: str, exit_code: int
) -> None:
    done = run(tmp_path, SKIPPING, workers, CI=ci)
    assert done.returncode == exit_code, done.stdout
    assert "1 SKIPPED" in done.stdout
    assert "no such luck" in done.stdout


def test_seeds_vary_are_printed_and_replay_a_run(tmp_path: Path) -> None:
    first, second = run(tmp_path, DRAWING, CI="true"), run(tmp_path, DRAWING, CI="true")
    seeds = [
        re.findall(r"MILLPOND_SEED=(\d+) runs the same random tests again", done.stdout) for done in (first, second)
    ]
    # At the start, and with the failure.
    assert [len(found) for found in seeds] == [2, 2]
    assert seeds[0] != seeds[1]
    assert drawn(first) != drawn(second)
    assert drawn(run(tmp_path, DRAWING, MILLPOND_SEED=seeds[0][0])) == drawn(first)
    assert "reproduce_failure" in first.stdout


def test_all_workers_have_the_same_seed(tmp_path: Path) -> None:
    done = run(tmp_path, DRAWING, "2")
    assert "Different tests were collected" not in done.stdout
    assert "2 passed" in done.stdout


def drawn(done: subprocess.CompletedProcess[str]) -> list[str]:
    return re.findall(r"drew (\d+)", done.stdout)
