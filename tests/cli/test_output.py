"""Standard output and error: whatever they are connected to, and whoever prints to them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

MAIN = "-m millpond.cli.main"
PATIENCE_S = 120.0

# Everything that prints without asking: Python, its threads, finalizers and warnings, loggers, C code, other processes.
NOISE = """
import gc, logging, os, subprocess, sys, threading, warnings
from dataclasses import replace
from millpond.cli import main

def fail():
    raise LookupError("a thread\\nof two lines")

class Broken:
    def __del__(self):
        raise LookupError("a finalizer")

def noisy(arguments):
    warnings.warn("a warning")
    logging.getLogger("py4j").error("a logger without a handler")
    thread = threading.Thread(target=fail); thread.start(); thread.join()
    Broken(); gc.collect()
    print("half a line, ", end="", file=sys.stderr); print("and its end", file=sys.stderr)
    os.write(2, b"printed by C code\\n")
    subprocess.run(["sh", "-c", "echo printed by a child >&2"], check=True)
    threading.Thread(target=lambda: (threading.main_thread().join(), fail())).start()
    raise LookupError("the command")

main.COMMANDS = tuple(replace(c, run=noisy) if c.name == "doctor" else c for c in main.COMMANDS)
sys.argv = ["millpond", "doctor", "--json", "--debug"]
sys.exit(main.main())
"""


def shell(words: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """A line of a shell in which MILLPOND is the command."""
    line = words.replace("MILLPOND", f"{sys.executable} {MAIN}")
    return subprocess.run(
        ["sh", "-c", line], cwd=folder, capture_output=True, text=True, check=False, timeout=PATIENCE_S
    )


@pytest.fixture
def app(tmp_path: Path) -> Path:
    (tmp_path / "app.sql").write_text("CREATE TABLE t (a INT PRIMARY KEY);\n")
    (tmp_path / "wrong.sql").write_text("CREATE TABEL t (a INT);\n")
    return tmp_path


@pytest.mark.process
def test_with_json_every_line_of_standard_error_is_json(app: Path) -> None:
    (app / "noise.py").write_text(NOISE)
    words = [sys.executable, "noise.py"]
    done = subprocess.run(words, cwd=app, capture_output=True, text=True, check=False, timeout=PATIENCE_S)
    events = [json.loads(line) for line in done.stderr.splitlines()]
    text = "\n".join(str(event.get("text")) for event in events)
    for printed in ("a warning", "of two lines", "a finalizer", "half a line, and its end", "C code", "a child"):
        assert printed in text
    assert "MP999" in {event.get("code") for event in events}
    assert (done.returncode, done.stdout) == (1, "")


@pytest.mark.process
@pytest.mark.parametrize(
    ("words", "code", "out", "err"),
    [
        ("MILLPOND --help > /dev/full", 1, "", "MP805  Standard output cannot be written: "),
        ("MILLPOND explain app.sql --json > /dev/full", 1, "", '"code": "MP805"'),
        ("MILLPOND explain app.sql >&-", 1, "", "MP805  Standard output cannot be written: "),
        ("MILLPOND version 2>&-", 0, "millpond 0.", ""),
        ("MILLPOND check wrong.sql 2>&-", 2, "", ""),
        ("MILLPOND check wrong.sql 2>/dev/full", 2, "", ""),
        ("MILLPOND check wrong.sql --json 2>&-", 2, "", ""),
        ("MILLPOND version <&- >&- 2>&-", 1, "", ""),
    ],
)
def test_a_standard_stream_that_is_closed_or_full_is_coded_or_silent(
    words: str, code: int, out: str, err: str, app: Path
) -> None:
    done = shell(words, app)
    assert done.returncode == code, done.stderr
    assert done.stdout.startswith(out)
    assert err in done.stderr
    assert bool(done.stderr) == bool(err)
    assert "MP999" not in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.process
def test_no_file_of_the_app_becomes_standard_error(app: Path) -> None:
    code = (
        "import os, sys; from millpond.cli.output import standard_streams\n"
        "with standard_streams(json=False):\n"
        "    sys.exit(0 if os.open('app.sql', os.O_RDONLY) > 2 else 1)"
    )
    done = shell(f'{sys.executable} -c "{code}" <&- >&- 2>&-', app)
    assert done.returncode == 0


def test_standard_error_is_as_it_was_afterwards(capfd: pytest.CaptureFixture[str]) -> None:
    from millpond.cli.main import main

    before = sys.stderr
    assert main(["chek", "--json"]) == 2
    assert sys.stderr is before
    os.write(2, b"plain again\n")
    lines = capfd.readouterr().err.splitlines()
    assert json.loads(lines[0])["code"] == "MP310"
    assert lines[1:] == ["plain again"]
