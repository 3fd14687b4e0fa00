"""Every example of README and docs/ is run, and the generated pages are up to date.

Each page has a folder of its own. A block with a title is written there as a file. Then, in the order of the page:

- `sql` is run with `--once`; with `check` it is only checked (what cannot run yet, or what a console block runs);
  with `wrong` it must be refused.
- `console` runs the lines after `$` as a user would and compares what they print; `...` stands for any lines. After
  `$ cd FOLDER` the commands of the page run there.
- `python` blocks of a page are run together in one process, after everything else.
- `output` is what the block before it prints; with `json` as it is printed with `--json`.
"""

import io
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from scripts.docs import DOCS, renewed

from millpond.app.app import App
from millpond.app.planning import plan_text
from millpond.cli.command import Parser
from millpond.cli.main import COMMANDS
from millpond.errors import CODES
from millpond.sql.parse_other import SHOWN
from millpond.sql.parser import STATEMENTS
from millpond.testing.documents import Block, read_sections

ROOT = DOCS.parent
PAGES = (ROOT / "README.md", *sorted(DOCS.glob("*.md")))
CONSOLE_TIMEOUT_S = 300
# Printed between the Python blocks of a page, so that each block's output can be separated from the next one's.
SEPARATOR = "-----8<-----"


def blocks_of(page: Path) -> list[Block]:
    return [block for section in read_sections(page) for block in section.blocks]


def with_output(blocks: list[Block]) -> Iterator[tuple[Block, Block | None]]:
    """Each block with the `output` block right after it."""
    for block, after in pairwise([*blocks, None]):
        if block and block.language != "output":
            yield block, after if after and after.language == "output" else None


def run_sql(block: Block, spark: Any) -> str:
    """What the bare SELECTs of an app print, as JSON lines."""
    output = io.StringIO()
    settings = {"json": "true"}
    if block.title:
        app = App(block.title, spark=spark, settings=settings, output=output)
    else:
        app = App(sql=block.body, spark=spark, settings=settings, output=output)
    try:
        app.run_once()
    finally:
        app.stop()
    return output.getvalue()


def try_sql(block: Block, spark: Any) -> str | None:
    """Do with a block what its flags say; what it printed, or None where nothing is to be compared."""
    if block.has("check") or block.has("wrong"):
        plan = plan_text(block.body)
        assert bool(plan.errors) == block.has("wrong"), "\n".join(map(str, plan.problems))
        return "".join(f"{problem}\n" for problem in plan.errors)
    return run_sql(block, spark)


def read_between(page: Path, start: str, end: str) -> str:
    return page.read_text("utf-8").partition(f"{start}\n")[2].partition(f"{end}\n")[0]


def matches(got: list[str], wanted: list[str]) -> bool:
    """Whether lines are the wanted ones; `...` stands for any number of lines."""
    if not wanted:
        return not got
    if wanted[0] == "...":
        return any(matches(got[n:], wanted[1:]) for n in range(len(got) + 1))
    return bool(got) and got[0].rstrip() == wanted[0].rstrip() and matches(got[1:], wanted[1:])


def run_console(block: Block, folder: Path) -> Path:
    """Run each command of a block; the last one may end with another code than 0; returns the folder at the end."""
    lines = block.body.splitlines()
    starts = [n for n, line in enumerate(lines) if line.startswith("$ ")]
    environment = {**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    for start, end in pairwise([*starts, len(lines)]):
        if re.fullmatch(r"\$ cd \S+", lines[start]):
            folder = folder / lines[start][5:]
            continue
        done = subprocess.run(
            lines[start][2:],
            shell=True,
            cwd=folder,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=CONSOLE_TIMEOUT_S,
            check=False,
        )
        wanted_exit = int(block.attributes.get("exit", "0")) if start == starts[-1] else 0
        assert done.returncode == wanted_exit, f"{lines[start]}: exit {done.returncode}\n{done.stdout}"
        assert matches(done.stdout.splitlines(), lines[start + 1 : end]), f"{lines[start]}: printed\n{done.stdout}"
    return folder


def run_python(blocks: list[tuple[Block, Block | None]], folder: Path) -> None:
    """The Python blocks of a page, as one program; each that has an output must print just that."""
    program = f"\nprint({SEPARATOR!r})\n".join(block.body for block, _ in blocks)
    command = [sys.executable, "-c", program]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=CONSOLE_TIMEOUT_S, check=False)
    assert done.returncode == 0, done.stderr
    printed = done.stdout.split(f"{SEPARATOR}\n")
    for (block, output), got in zip(blocks, printed, strict=True):
        assert output is None or got == output.body, f"line {block.line}: printed\n{got}"


@pytest.mark.spark
@pytest.mark.process
@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.stem)
def test_the_examples_of_a_page_do_what_it_says(
    page: Path, spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    pairs = list(with_output(blocks_of(page)))
    folder = tmp_path
    for block, output in pairs:
        if block.title:
            Path(block.title).parent.mkdir(parents=True, exist_ok=True)
            Path(block.title).write_text(block.body, "utf-8")
        if block.language == "sql":
            printed = try_sql(block, spark)
            assert output is None or printed == output.body, f"{page.name}:{block.line} printed\n{printed}"
        elif block.language == "console":
            folder = run_console(block, folder)
    python = [pair for pair in pairs if pair[0].language == "python"]
    if python:
        run_python(python, tmp_path)


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.stem)
def test_the_generated_parts_of_a_page_are_up_to_date(page: Path) -> None:
    text = page.read_text("utf-8")
    assert renewed(text) == text, "run: make docs"


def test_every_error_code_has_its_line_in_the_docs() -> None:
    text = (DOCS / "errors.md").read_text("utf-8")
    assert [code for code in CODES if f"| `{code}` |" not in text] == []


def test_the_reference_has_every_statement() -> None:
    text = read_between(DOCS / "sql.md", "## Statements", "## Streams and tables")
    words = [*STATEMENTS, *SHOWN]
    assert [word for word in words if word not in ("(", "DESC") and not re.search(rf"\b{word}\b", text)] == []


def test_the_synopsis_has_every_option_of_every_command() -> None:
    synopsis = read_between(DOCS / "cli.md", "```text", "```")
    parts = re.findall(r"^millpond ([\w-]+)((?:.*\n {4,})*.*)", synopsis, re.M)
    shown = {name: set(re.findall(r"--[\w-]+", rest)) for name, rest in parts}
    flags = {
        command.name: {
            max(action.option_strings, key=len) for action in Parser(command)._actions if action.option_strings
        }
        for command in COMMANDS
    }
    assert shown == {name: found - {"--help", "--debug"} for name, found in flags.items()}


@pytest.mark.parametrize("page", [*PAGES, ROOT / "ARCHITECTURE.md", ROOT / "CONTRIBUTING.md"], ids=lambda p: p.stem)
def test_links_between_pages_lead_somewhere(page: Path) -> None:
    targets = re.findall(r"\]\(([^)#\s]+)(?:#[^)]*)?\)", page.read_text("utf-8"))
    assert [t for t in targets if "://" not in t and not (page.parent / t).exists()] == []


def test_readme_leads_to_every_page() -> None:
    text = (ROOT / "README.md").read_text("utf-8")
    assert [page.name for page in DOCS.glob("*.md") if f"(docs/{page.name})" not in text] == []


def test_three_dots_stand_for_any_lines() -> None:
    assert matches(["a", "b", "c"], ["...", "c"])
    assert matches(["a"], ["a", "..."])
    assert not matches(["a", "b"], ["a"])
    assert not matches(["a"], ["...", "b"])
