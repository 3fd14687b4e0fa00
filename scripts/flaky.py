"""Every test that starts a process or a server, many times over, while all cores stay busy.

    python scripts/flaky.py [--times 20] [--only TEXT] [--workers N] [--idle]

The tests of a file run in one pytest process, several turns in a row, so that collecting them and starting their
servers is done once for all these turns. Two such processes per core run side by side, so that each test competes with
others for its core, and processes of low priority use what they leave. Prints a table of the tests with their runs,
failures and slowest run, also when it is interrupted; exits with 1 when a test has failed. The output of each failure
goes to a folder that is named at the end.
"""

from __future__ import annotations

import argparse
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import groupby
from pathlib import Path
from xml.etree import ElementTree

import pytest

ROOT = Path(__file__).resolve().parents[1]
# Tests of these files and folders talk to a process or a server; of all others, those marked `process` do.
SERVERS = (
    "tests/kafka",
    "tests/databases",
    "tests/objects",
    "tests/serve",
    "tests/sources/test_http.py",
    "tests/sources/test_webhook.py",
    "tests/engine/test_supervision.py",
    "tests/engine/test_kill.py",
    "tests/tables/test_crash.py",
    "tests/tables/test_interrupted.py",
    "tests/tables/test_threads.py",
    "tests/cli/test_query.py",
    "tests/cli/test_stopper.py",
    "tests/cli/test_run.py",
)
TURNS_PER_PROCESS = 5
WORKERS_PER_CORE = 2
# Until whoever started it is gone, in whatever way that ended.
BURN = "import os; os.nice(10); parent = os.getppid()\nwhile os.getppid() == parent: sum(range(1_000_000))"
PASSED, NOTHING_RUN = 0, 5


@dataclass(frozen=True)
class Job:
    """Several turns of the tests of one file, in one process."""

    tests: tuple[str, ...]
    turns: range

    @property
    def title(self) -> str:
        file = self.tests[0].partition("::")[0]
        return f"{file}, turns {self.turns[0]} to {self.turns[-1]}"


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


@dataclass
class Processes:
    """The pytest processes under way, which are interrupted when this is, so that they end what their tests started."""

    running: set[subprocess.Popen[str]] = field(default_factory=set)
    lock: threading.Lock = field(default_factory=threading.Lock)
    stopped: bool = False

    def pytest(self, *words: str, turns: int = 1) -> tuple[int, str]:
        """Run pytest; its exit code and all that it prints."""
        with self.lock:
            if self.stopped:
                return NOTHING_RUN, ""
            process = subprocess.Popen(
                [sys.executable, "-m", "pytest", "-p", "flaky", *words],
                cwd=ROOT,
                env=os.environ | {"PYTHONPATH": _with_this_folder(), "FLAKY_TURNS": str(turns)},
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                # In the background of a shell it would be ignored.
                preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
            )
            self.running.add(process)
        said, _ = process.communicate()
        with self.lock:
            self.running.discard(process)
        return process.returncode, said

    def stop(self) -> None:
        with self.lock:
            self.stopped = True
            for process in self.running:
                process.send_signal(signal.SIGINT)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--times", type=int, default=20, help="how often each test runs (20)")
    parser.add_argument("--only", metavar="TEXT", default="", help="only tests whose id contains this text")
    parser.add_argument("--workers", type=int, help=f"pytest processes side by side ({WORKERS_PER_CORE} per core)")
    parser.add_argument("--idle", action="store_true", help="one process, and leave the other cores alone")
    arguments = parser.parse_args()
    # So that processes started here are ended, as after Ctrl-C.
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))
    cores = os.cpu_count() or 1
    processes = Processes()
    tests = [test for test in collected(processes) if arguments.only in test]
    if not tests:
        parser.error(f"no test that starts a process or server has '{arguments.only}' in its name")
    records: dict[str, Record] = {}
    kept = Path(tempfile.mkdtemp(prefix="millpond-flaky-"))
    workers = arguments.workers or (1 if arguments.idle else WORKERS_PER_CORE * cores)
    try:
        with busy_cores(0 if arguments.idle else cores):
            run(jobs(tests, arguments.times), records, kept, processes, workers)
    finally:
        failures = summary(records, kept)
    return 1 if failures else 0


def collected(processes: Processes) -> list[str]:
    """The ids of the tests, in the order in which they run."""
    marked = _ids(processes, ["-m", "process"])
    served = _ids(processes, [name for name in SERVERS if (ROOT / name).exists()])
    return list(dict.fromkeys([*marked, *served]))


def _ids(processes: Processes, words: list[str]) -> list[str]:
    code, said = processes.pytest("--collect-only", *words)
    if code not in (PASSED, NOTHING_RUN):
        sys.exit(said)
    return [line for line in said.splitlines() if "::" in line]


def jobs(tests: list[str], times: int) -> list[Job]:
    """All files take their first turns before one takes its next: a run that is interrupted has tried every test."""
    files = [tuple(found) for _, found in groupby(sorted(tests, key=_file), key=_file)]
    found = (
        Job(file, range(start, min(start + turns, times + 1)))
        for file in files
        for start, turns in _starts(file, times)
    )
    return sorted(found, key=lambda job: job.turns[0])


def _starts(file: Sequence[str], times: int) -> Iterator[tuple[int, int]]:
    """The first turn of each process, and how many it takes. A test that follows itself keeps its fixtures in pytest,
    so a file with one test takes a process for each."""
    turns = TURNS_PER_PROCESS if len(file) > 1 else 1
    return ((start, turns) for start in range(1, times + 1, turns))


def _file(test: str) -> str:
    return test.partition("::")[0]


def run(todo: list[Job], records: dict[str, Record], kept: Path, processes: Processes, workers: int) -> None:
    """Run the jobs and add what became of each test."""
    with ThreadPoolExecutor(workers) as pool:
        started = {pool.submit(run_job, job, processes): job for job in todo}
        try:
            for number, done in enumerate(as_completed(started), 1):
                found, said, seconds = done.result()
                failed = sum(add(records, case) for case in found)
                if failed:
                    (kept / f"{number}.txt").write_text(said, "utf-8")
                outcome = f"{failed} FAILED" if failed else "passed"
                print(f"[{number} of {len(todo)}] {started[done].title}: {outcome}, {seconds:.0f} s", flush=True)
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            processes.stop()
            raise


def run_job(job: Job, processes: Processes) -> tuple[list[ElementTree.Element], str, float]:
    """The test cases of the report, what pytest printed, and how long it took."""
    started = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.xml"
        code, said = processes.pytest(f"--junit-xml={report}", *job.tests, turns=len(job.turns))
        if report.exists():
            found = list(ElementTree.parse(report).iter("testcase"))
        else:
            # pytest itself died: all that can be said is where.
            name = {"classname": _file(job.tests[0]), "name": f"(pytest ended with {code})"}
            found = [ElementTree.Element("testcase", name)]
            ElementTree.SubElement(found[0], "error")
    return found, said, time.monotonic() - started


def add(records: dict[str, Record], case: ElementTree.Element) -> bool:
    """Add the outcome of a test; whether it failed."""
    if case.find("skipped") is not None:
        return False
    failed = case.find("failure") is not None or case.find("error") is not None
    name = f"{case.get('classname')}::{case.get('name')}"
    records.setdefault(name, Record()).add(float(case.get("time") or 0), failed=failed)
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


def summary(records: dict[str, Record], kept: Path) -> int:
    """Print the table; returns how many runs failed."""
    width = max(map(len, records), default=4)
    print(f"{'test':<{width}}  runs  failures  slowest")
    for name, record in sorted(records.items(), key=lambda item: (-item[1].failures, item[0])):
        print(f"{name:<{width}}  {record.runs:>4}  {record.failures:>8}  {record.slowest_s:>5.1f} s")
    runs = sum(record.runs for record in records.values())
    failures = sum(record.failures for record in records.values())
    print(f"{failures} of {runs} runs failed; their output is in {kept}" if failures else f"{runs} runs, no failures.")
    return failures


def _with_this_folder() -> str:
    known = os.environ.get("PYTHONPATH")
    return os.pathsep.join([str(ROOT / "scripts"), *([known] if known else [])])


# After the project's own order is made.
@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """As a plugin of the processes started here: the tests, so many times over."""
    items[:] = items * int(os.environ.get("FLAKY_TURNS", "1"))


if __name__ == "__main__":
    sys.exit(main())
