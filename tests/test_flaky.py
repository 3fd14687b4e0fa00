"""The script behind `make flaky`."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

SCRIPT = Path(__file__).parents[1] / "scripts" / "flaky.py"
SOUND = "tests/cli/test_stopper.py::test_signals_go_back_to_whom_they_belonged"


@pytest.fixture
def flaky(monkeypatch: pytest.MonkeyPatch) -> Any:
    spec = importlib.util.spec_from_file_location("flaky", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "flaky", module)
    spec.loader.exec_module(module)
    return module


def main(flaky: Any, monkeypatch: pytest.MonkeyPatch, tests: list[str], *words: str) -> int:
    monkeypatch.setattr(flaky, "collected", lambda processes: tests)
    monkeypatch.setattr(sys, "argv", ["flaky.py", *words])
    return int(flaky.main())


def test_tests_run_so_many_times_and_a_failure_is_counted(
    flaky: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    seen = tmp_path / "seen"
    broken = tmp_path / "test_broken.py"
    broken.write_text(
        "from pathlib import Path\n"
        f"def test_every_second_time(tmp_path):\n    seen = Path({str(seen)!r})\n"
        "    if seen.exists():\n        seen.unlink()\n        raise AssertionError\n    seen.touch()\n"
    )
    assert main(flaky, monkeypatch, [SOUND, str(broken)], "--times", "4", "--idle") == 1
    said = capsys.readouterr().out
    table = {line.split()[0].rpartition("::")[2]: line.split()[1:3] for line in said.splitlines() if "::" in line}
    assert table == {
        "test_every_second_time": ["4", "2"],
        "test_signals_go_back_to_whom_they_belonged": ["4", "0"],
    }


def test_a_name_that_fits_no_test_is_refused(
    flaky: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as left:
        main(flaky, monkeypatch, [SOUND], "--only", "no_such_test")
    assert left.value.code == 2
    assert "no_such_test" in capsys.readouterr().err


def test_what_keeps_the_cores_busy_ends_with_the_run(flaky: Any) -> None:
    started: list[subprocess.Popen[bytes]] = []

    class Popen(subprocess.Popen[bytes]):
        def __init__(self, *words: Any) -> None:
            super().__init__(*words)
            started.append(self)

    flaky.subprocess = type("Processes", (), {"Popen": Popen})
    with flaky.busy_cores(2):
        assert [burner.poll() for burner in started] == [None, None]
    assert [burner.returncode for burner in started] == [-9, -9]
