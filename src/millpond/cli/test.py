"""`millpond test`: runs test files, prints what differs, and writes expected rows anew."""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

from millpond.cli.command import Arguments, Command
from millpond.cli.output import counted
from millpond.errors import OptionError, RunError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from millpond.testing.runner import Result


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("paths", nargs="+", metavar="PATH", help="a test file, or a folder with test files (*.md)")
    parser.add_argument("--only", metavar="TEXT", help="only the tests that have this text in their heading")
    parser.add_argument(
        "--update", action="store_true", help="show what differs, then write the actual rows into the test files"
    )
    parser.add_argument(
        "--engine", choices=("auto", "arrow"), default="auto", help="arrow: start no Java; tests that need Spark fail"
    )
    parser.add_argument("--junit", metavar="FILE", help="also write the results to FILE as JUnit XML")


def run(arguments: Arguments) -> int:
    # Imported here, after the arguments were checked, because it loads Spark.
    from millpond.testing.runner import run_tests, sections_of, without_rows
    from millpond.testing.sql_files import InProcess

    sections = sections_of(arguments.paths)
    if arguments.only is not None:
        sections = [s for s in sections if arguments.only.lower() in s.heading.lower()]
        if not sections:
            raise OptionError("MP310", f"No heading contains '{arguments.only}'.", hint="Leave out --only to see all.")
    session = _Session(allowed=arguments.engine != "arrow")
    started = time.monotonic()
    results: list[Result] = []
    try:
        for result in run_tests(sections, InProcess(session)):
            results.append(result)
            _show(result)
    finally:
        session.stop()
    if arguments.junit is not None:
        _write_junit(Path(arguments.junit), results)
    if arguments.update:
        _update(results)
        results = [without_rows(result) for result in results]
    failed = sum(not result.passed for result in results)
    summary = f"{counted(len(results) - failed, 'test')} passed, {failed} failed in {time.monotonic() - started:.1f} s"
    print(summary, flush=True)
    return 1 if failed else 0


class _Session:
    """One Spark session for all tests, started by the first that needs it; MP705 where it is not allowed."""

    def __init__(self, *, allowed: bool) -> None:
        self._allowed = allowed
        self._session: SparkSession | None = None

    def __call__(self) -> SparkSession:
        from millpond.engine.spark.session import build_session

        if not self._allowed:
            hint = "Run it without --engine arrow; 'millpond explain' shows which statements need Spark, and why."
            raise RunError("MP705", "This app needs Spark, which --engine arrow excludes.", hint=hint)
        if self._session is None:
            self._session = build_session(master="local[2]", extra={"spark.sql.shuffle.partitions": "2"})
        return self._session

    def stop(self) -> None:
        from millpond.engine.spark.session import end_session

        if self._session is not None:
            end_session(self._session)


def _show(result: Result) -> None:
    word = "ok  " if result.passed else "FAIL"
    print(f"{word}  {result.section.file}: {result.section.heading}  ({result.seconds:.1f} s)", flush=True)
    for line in result.lines():
        print(f"      {line}", flush=True)


def _update(results: list[Result]) -> None:
    from millpond.testing.runner import updated

    for file in dict.fromkeys(r.section.file for r in results if any(f.got is not None for f in r.failures)):
        text = updated(file, results)
        try:
            file.write_text(text, "utf-8")
        except OSError as error:
            raise RunError("MP805", f"{file} cannot be written: {error.strerror}.", hint="Make it writable.") from error
        print(f"written: {file}", file=sys.stderr)


def _write_junit(file: Path, results: list[Result]) -> None:
    from millpond.testing.runner import junit

    try:
        file.write_text(junit(results), "utf-8")
    except OSError as error:
        raise RunError("MP805", f"{file} cannot be written: {error.strerror}.", hint="Give another file.") from error


COMMAND = Command("test", "Run test files: apps, their input and the rows expected of them.", configure, run)
