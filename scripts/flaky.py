"""Every test that starts a process or a server, many times over, while other processes keep all cores busy.

    python scripts/flaky.py [--times 20] [--only TEXT] [--idle]

Prints a table of the tests with their runs, failures and slowest run; exits with 1 when one has failed. The output of
each failure goes to a folder that is named at the end.
"""

from __future__ import annotations

import argparse
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from xml.etree import ElementTree

ROOT = Path(__file__).resolve().parents[1]
# Tests of these files and folders talk to a process or a server; of all others, those marked `process` do.
SERVERS = (
    "tests/kafka",
    "tests/serve/test_control_socket.py",
    "tests/engine/test_supervision.py",
    "tests/engine/test_kill.py",
    "tests/tables/test_crash.py",
    "tests/tables/test_threads.py",
    "tests/cli/test_query.py",
    "tests/cli/test_stopper.py",
    "tests/cli/test_run.py",
)
# Until whoever started it is gone, in whatever way that ended.
BURN = "import os; parent = os.getppid()\nwhile os.getppid() == parent: sum(range(1_000_000))"
PASSED, NOTHING_RUN = 0, 5


@dataclass
class Record:
    """What is known of one test."""

    runs: int = 0
    failures: int = 0
    slowest_s: float = 0.0

    def add(self, seconds: float, *, failed: bool) -> None:
        self.runs += 1
        self.failures += failed
        self.slowest_s = max(self.slowest_s, seconds)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--times", type=int, default=20, help="how often each test runs (20)")
    parser.add_argument("--only", metavar="TEXT", default="", help="only tests whose id contains this text")
    parser.add_argument("--idle", action="store_true", help="leave the cores alone")
    arguments = parser.parse_args()
    # So that processes started here are ended, as after Ctrl-C.
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))
    tests = [test for test in collected() if arguments.only in test]
    if not tests:
        parser.error(f"no test that starts a process or server has '{arguments.only}' in its name")
    records: dict[str, Record] = {}
    kept = Path(tempfile.mkdtemp(prefix="millpond-flaky-"))
    with busy_cores(0 if arguments.idle else os.cpu_count() or 1):
        for turn in range(1, arguments.times + 1):
            started = time.monotonic()
            failed = run(tests, records, kept / f"{turn}.txt")
            outcome = f"{failed} failed" if failed else "all passed"
            print(f"run {turn} of {arguments.times}: {outcome}, {time.monotonic() - started:.0f} s", flush=True)
    print_table(records)
    failures = sum(record.failures for record in records.values())
    print(f"{failures} failures; their output is in {kept}" if failures else "No failures.")
    return 1 if failures else 0


def collected() -> list[str]:
    """The ids of the tests, in the order in which they run."""
    marked = _ids(["-m", "process"])
    served = _ids([name for name in SERVERS if (ROOT / name).exists()])
    return list(dict.fromkeys([*marked, *served]))


def _ids(words: list[str]) -> list[str]:
    code, said = pytest("--collect-only", *words)
    if code not in (PASSED, NOTHING_RUN):
        sys.exit(said)
    return [line for line in said.splitlines() if "::" in line]


def pytest(*words: str) -> tuple[int, str]:
    """Run pytest; its exit code and all that it prints. It is interrupted when this is, so that it ends what its tests
    have started."""
    with subprocess.Popen(
        [sys.executable, "-m", "pytest", *words],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        # In the background of a shell it would be ignored.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    ) as process:
        try:
            said, _ = process.communicate()
        except BaseException:
            process.send_signal(signal.SIGINT)
            raise
    return process.returncode, said


def run(tests: list[str], records: dict[str, Record], output: Path) -> int:
    """Run the tests once and add what became of them; returns how many failed."""
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.xml"
        _, said = pytest(f"--junit-xml={report}", *tests)
        if not report.exists():
            sys.exit(said)
        found = list(ElementTree.parse(report).iter("testcase"))
    failed = 0
    for case in found:
        if case.find("skipped") is not None:
            continue
        broken = case.find("failure") is not None or case.find("error") is not None
        failed += broken
        name = f"{case.get('classname')}::{case.get('name')}"
        records.setdefault(name, Record()).add(float(case.get("time") or 0), failed=broken)
    if failed:
        output.write_text(said, "utf-8")
    return failed


@contextmanager
def busy_cores(count: int) -> Iterator[None]:
    """A process on each core that never rests; ended by their ids."""
    burners = [subprocess.Popen([sys.executable, "-c", BURN]) for _ in range(count)]
    try:
        yield
    finally:
        for burner in burners:
            burner.kill()
            burner.wait()


def print_table(records: dict[str, Record]) -> None:
    width = max(map(len, records), default=4)
    print(f"{'test':<{width}}  runs  failures  slowest")
    for name, record in sorted(records.items(), key=lambda item: (-item[1].failures, item[0])):
        print(f"{name:<{width}}  {record.runs:>4}  {record.failures:>8}  {record.slowest_s:>5.1f} s")


if __name__ == "__main__":
    sys.exit(main())
