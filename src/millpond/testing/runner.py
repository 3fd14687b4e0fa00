"""A run of test files: which there are, the result of each section, and the expected rows written anew."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from xml.etree import ElementTree

from millpond.errors import MillpondError, OptionError, did_you_mean
from millpond.testing.documents import Block, Section, read_sections
from millpond.testing.sql_files import Driver, Failure, failures

# What a block with expected rows has, one of them, and the attributes of each language that means something in a test.
EXPECTED = ("query", "sink", "stdout")
ATTRIBUTES = {
    "csv": ("title", *EXPECTED),
    "sql": ("title", "file", "set", "now", "exit"),
    "run": ("set", "now", "exit"),
    "database": ("url", "file"),
}


@dataclass(frozen=True)
class Result:
    """The result of a section; `error` is what kept it from being run to its end."""

    section: Section
    seconds: float
    failures: tuple[Failure, ...] = ()
    error: str = ""

    @property
    def passed(self) -> bool:
        return not self.failures and not self.error

    def lines(self) -> Iterator[str]:
        """What is wrong, with the place of each block in its file."""
        for failure in self.failures:
            first, *rest = "\n".join(failure.lines()).splitlines()
            yield f"{self.section.file}:{failure.block.line}: {first}"
            yield from rest
        if self.error:
            yield f"{self.section.file}: {self.error}"


def sections_of(paths: Iterable[str | Path]) -> list[Section]:
    """The tests in files and in all `.md` files of folders; a section without an app is none. MP310 for a path that is
    not there, or that has no test, and for a block with an attribute that does not exist."""
    found: list[Section] = []
    for path in map(Path, paths):
        if not path.exists():
            raise OptionError("MP310", f"There is no file or folder '{path}'.", hint="Check the path.")
        files = sorted(path.rglob("*.md")) if path.is_dir() else [path]
        tests = [section for file in files for section in _read(file) if _is_test(section)]
        if not tests:
            hint = "A test is a section of a Markdown file with a block of sql and one of expected rows."
            raise OptionError("MP310", f"There is no test in '{path}'.", hint=hint)
        found += tests
    return found


def _read(file: Path) -> tuple[Section, ...]:
    try:
        return read_sections(file)
    except (OSError, ValueError) as error:
        raise OptionError("MP310", f"{file} cannot be read: {error}.", hint="Close each block with ```.") from error


def _is_test(section: Section) -> bool:
    """A section with an app and something that is expected of it. A misspelt attribute is an error: its block would
    otherwise be text, and its test would be left out without a word."""
    if not any(block.language == "sql" for block in section.blocks):
        return False
    expects = any(b.language == "says" or {*EXPECTED, "exit"} & b.attributes.keys() for b in section.blocks)
    for block in section.blocks:
        if expects or block.language == "csv":
            _reject_unknown_attributes(block, section.file)
    return expects


def _reject_unknown_attributes(block: Block, file: Path) -> None:
    known = ATTRIBUTES.get(block.language, tuple(block.attributes))
    for name in block.attributes:
        if name not in known:
            message = f"{file}:{block.line}: a block of {block.language} has no attribute '{name}'."
            hint = did_you_mean(name, known) or f"Its attributes are {', '.join(known)}."
            raise OptionError("MP310", message, hint=hint)


def run_tests(sections: Sequence[Section], driver: Driver) -> Iterator[Result]:
    """Run each section in a folder of its own, one after another."""
    for section in sections:
        started = time.monotonic()
        found: list[Failure] = []
        error = ""
        with tempfile.TemporaryDirectory(prefix="millpond-test-") as folder:
            try:
                found += failures(section, Path(folder), driver)
            except MillpondError as raised:
                error = str(raised)
            except OSError as raised:
                error = f"{raised.filename or ''} {raised.strerror or raised}".strip()
            except ValueError as raised:
                # An attribute of a block that cannot be read, such as exit=no or now=yesterday.
                error = str(raised)
        yield Result(section, time.monotonic() - started, tuple(found), error)


def updated(file: Path, results: Iterable[Result]) -> str:
    """The text of a test file with the rows that came out in the place of the expected ones."""
    lines = file.read_text("utf-8").splitlines()
    changes = [f for r in results if r.section.file == file for f in r.failures if f.got is not None]
    for failure in sorted(changes, key=lambda f: f.block.line, reverse=True):
        start = failure.block.line
        end = start + len(failure.block.body.splitlines())
        lines[start:end] = _in_place(lines[start:end], failure.got or ())
    return "\n".join(lines) + "\n"


def _in_place(before: Sequence[str], got: Sequence[str]) -> list[str]:
    """Rows that were expected stay where they are, others follow."""
    left = list(got[1:])
    kept = []
    for line in before[1:]:
        if line in left:
            left.remove(line)
            kept.append(line)
    return [*got[:1], *kept, *left]


def junit(results: Sequence[Result]) -> str:
    """The results as XML, as continuous integration reads them."""
    suites = ElementTree.Element("testsuites")
    for file in dict.fromkeys(result.section.file for result in results):
        own = [result for result in results if result.section.file == file]
        suite = ElementTree.SubElement(
            suites,
            "testsuite",
            name=str(file),
            tests=str(len(own)),
            failures=str(sum(bool(r.failures) for r in own)),
            errors=str(sum(bool(r.error) for r in own)),
            time=f"{sum(r.seconds for r in own):.3f}",
        )
        for result in own:
            name = result.section.heading or file.stem
            case = ElementTree.SubElement(
                suite, "testcase", classname=str(file), name=name, time=f"{result.seconds:.3f}"
            )
            if not result.passed:
                kind = "error" if result.error else "failure"
                ElementTree.SubElement(case, kind, message=next(result.lines())).text = "\n".join(result.lines())
    return ElementTree.tostring(suites, encoding="unicode", xml_declaration=True)


def without_rows(result: Result) -> Result:
    """A result of which only what cannot be updated is left."""
    return replace(result, failures=tuple(f for f in result.failures if f.got is None))
