"""A skipped test is listed loudly, and is a failure where CI=true."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

SKIPPING = "import pytest\n\n@pytest.mark.skip(reason='no such luck')\ndef test_it(): ...\n\ndef test_other(): ...\n"


@pytest.mark.parametrize(("ci", "workers", "exit_code"), [("true", "0", 1), ("", "0", 0), ("true", "2", 1)])
def test_a_skip_is_told_with_its_reason_and_fails_only_on_ci(
    tmp_path: Path, ci: str, workers: str, exit_code: int
) -> None:
    shutil.copy(Path(__file__).with_name("conftest.py"), tmp_path)
    (tmp_path / "test_skipping.py").write_text(SKIPPING, "utf-8")
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-n", workers, "-p", "no:cacheprovider", str(tmp_path)],
        cwd=tmp_path,
        env={**os.environ, "CI": ci},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == exit_code, done.stdout
    assert "1 SKIPPED" in done.stdout
    assert "no such luck" in done.stdout
