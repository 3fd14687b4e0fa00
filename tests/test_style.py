"""The measurable part of how the code should read: docstrings, lengths, parameters, names."""

import ast
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src" / "millpond"
FILES = sorted(SOURCE.rglob("*.py"))

FILE_LINES_MAX = 500
FUNCTION_LINES_MAX = 70
PARAMETERS_MAX = 7
NAMES_THAT_SAY_NOTHING = {"utils", "util", "helpers", "misc", "common", "manager", "mgr", "cfg"}

# One thing at several stages: what is parsed, planned, checked, executed, or offered as a command; see decision 25.
STAGES = """
    aggregates apply backfill comparisons dead_letters evaluator explain from_clause function_calls
    grouping_sets lookup one_shots over_streams parameters pushdown server settings sink state_ttl
    statement_groups statements stream_joins subqueries table_changes view_refresh
"""
# One part of several connectors, and connectors that are source, sink and backend.
CONNECTOR_PARTS = """
    address backend changes connection discovery feeder options source table tables types
    clickhouse memory mysql postgresql s3 sqlalchemy
"""

Function = ast.FunctionDef | ast.AsyncFunctionDef


def tree_of(file: Path) -> ast.Module:
    return ast.parse(file.read_text("utf-8"))


def functions(file: Path) -> Iterator[Function]:
    return (node for node in ast.walk(tree_of(file)) if isinstance(node, Function))


def parameters(function: Function) -> int:
    """How many a caller sees: neither self nor cls counts."""
    names = [*function.args.posonlyargs, *function.args.args, *function.args.kwonlyargs]
    return sum(name.arg not in ("self", "cls") for name in names)


@pytest.mark.parametrize("file", FILES, ids=lambda f: str(f.relative_to(SOURCE)))
def test_a_file_is_short_and_says_what_it_is_for(file: Path) -> None:
    docstring = ast.get_docstring(tree_of(file))
    assert docstring, "the first line of a module is a docstring"
    assert "\n\n" in docstring or "\n" not in docstring, "the docstring starts with one line"
    assert len(file.read_text("utf-8").splitlines()) <= FILE_LINES_MAX
    assert file.stem not in NAMES_THAT_SAY_NOTHING


def test_a_file_name_is_used_once_or_for_one_thing() -> None:
    several = {name for name, n in Counter(file.stem for file in FILES).items() if n > 1}
    assert several - {"__init__", *STAGES.split(), *CONNECTOR_PARTS.split()} == set()


def test_functions_fit_a_screen() -> None:
    long = [
        f"{file.relative_to(SOURCE)}:{f.lineno} {f.name} has {f.end_lineno - f.lineno + 1} lines"
        for file in FILES
        for f in functions(file)
        if f.end_lineno and f.end_lineno - f.lineno + 1 > FUNCTION_LINES_MAX
    ]
    assert long == []


def test_functions_take_few_parameters() -> None:
    # App is the product's front door: its keyword arguments are listed in the contract of the surface.
    greedy = [
        f"{file.relative_to(SOURCE)}:{f.lineno} {f.name} takes {parameters(f)}"
        for file in FILES
        for f in functions(file)
        if parameters(f) > PARAMETERS_MAX and file.name != "app.py"
    ]
    assert greedy == []


# Words and phrases that do not say what happens. Write: reports, warns, raises, returns, emits, rejects, exists.
VAGUE = re.compile(
    r"(?<![A-Za-z])(tells?|told|telling|nobody knows|whosever|as it stands|in one go)(?![A-Za-z])"
    r"|\b(is|are|was|were) (not |always |still |no longer )?there\b"
    r"|\b(stands?|stood|steps?|stepped|puts?)[ _]aside\b|\b(is|are|was|were) (handed|said)\b|\bhand(s|ed) over\b"
    r"|\blets? go\b|\b(URI|server|docs|option|explain) (says|knows)\b",
    re.IGNORECASE,
)
# The method of Python's files.
FILE_METHOD = re.compile(r"\.tell\(\)|def tell\(self\)")


def test_text_and_names_use_plain_words() -> None:
    docs = [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")]
    found = [
        f"{file.relative_to(ROOT)}:{number} {line.strip()}"
        for file in [*FILES, *docs]
        for number, line in enumerate(file.read_text("utf-8").splitlines(), start=1)
        if VAGUE.search(FILE_METHOD.sub("", line))
    ]
    assert found == []


def test_the_files_that_the_architecture_names_exist() -> None:
    text = (ROOT / "ARCHITECTURE.md").read_text("utf-8")
    named = set(re.findall(r"`([a-z_/]+\.py|[a-z_/]+/)`", text))
    places = (ROOT, SOURCE, SOURCE / "engine")
    assert len(named) > 40
    assert sorted(name for name in named if not any((place / name).exists() for place in places)) == []
