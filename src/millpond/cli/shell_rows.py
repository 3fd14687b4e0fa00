"""Rows in the shell: aligned tables that fit the terminal, one value per line, or a file."""

from __future__ import annotations

import os
import pydoc
import shutil
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from millpond.cli.output import counted
from millpond.errors import RunError

if TYPE_CHECKING:
    import pyarrow as pa

GAP = "  "
COLUMN_WIDTH_MIN = 8
# Rows shown on a terminal; a file gets all.
ROWS_MAX = 10_000

NAME_CELL = 20


@dataclass(frozen=True)
class Screen:
    """The size of the terminal; None where there is none, and nothing has to fit."""

    width: int | None = None
    height: int | None = None

    @classmethod
    def current(cls) -> Screen:
        if not sys.stdout.isatty():
            return cls()
        size = shutil.get_terminal_size()
        return cls(size.columns, size.lines)


def show(table: pa.Table, screen: Screen, *, expanded: bool) -> None:
    """Print rows; through a pager if there are more than fit the terminal."""
    shown = table.slice(0, ROWS_MAX) if screen.width is not None else table
    lines = list(lines_of(shown, screen, expanded=expanded))
    more = f" of {table.num_rows:,}; \\o FILE writes all" if shown.num_rows < table.num_rows else ""
    lines.append(f"({counted(shown.num_rows, 'row')}{more})")
    text = "\n".join(lines)
    if screen.height is not None and len(lines) >= screen.height:
        os.environ.setdefault("LESS", "-SFRX")
        pydoc.pager(text)
    else:
        print(text, flush=True)


def lines_of(table: pa.Table, screen: Screen, *, expanded: bool = False) -> Iterator[str]:
    """Aligned columns if they fit the width, shortened where they must be; else one value per line."""
    from millpond.rendering import cells, is_number, shown_texts, text_lines

    if screen.width is None and not expanded:
        yield from text_lines(table)
        return
    names = [name.replace("\n", " ") for name in table.schema.names]
    columns = [shown_texts(column) for column in table.columns]
    wanted = [max(map(cells, [name, *texts])) for name, texts in zip(names, columns, strict=True)]
    widths = None if expanded else fitted(wanted, screen.width)
    if widths is None:
        yield from _expanded(names, columns)
        return
    right = [is_number(field.type) for field in table.schema]
    yield _line(names, widths, [False] * len(names))
    yield GAP.join("-" * width for width in widths)
    for values in zip(*columns, strict=True):
        yield _line(values, widths, right)


def fitted(wanted: Sequence[int], width: int | None) -> list[int] | None:
    """The widths of columns: those wanted, the widest shortened until all fit; None if that is not possible."""
    room = (width or sum(wanted) + len(GAP) * len(wanted)) - len(GAP) * (len(wanted) - 1)
    if sum(min(want, COLUMN_WIDTH_MIN) for want in wanted) > room:
        return None
    widths = [min(want, room) for want in wanted]
    while sum(widths) > room:
        widths[widths.index(max(widths))] -= 1
    return widths


def _line(values: Sequence[str], widths: Sequence[int], right: Sequence[bool]) -> str:
    from millpond.rendering import cells

    found = []
    for value, width, to_right in zip(values, widths, right, strict=True):
        text = _cut(value, width)
        space = " " * (width - cells(text))
        found.append(space + text if to_right else text + space)
    return GAP.join(found).rstrip()


def _cut(text: str, width: int) -> str:
    from millpond.rendering import cells

    if cells(text) <= width:
        return text
    while cells(text) > width - 1:
        text = text[:-1]
    return f"{text}…"


def _expanded(names: Sequence[str], columns: Sequence[Sequence[str]]) -> Iterator[str]:
    width = max(map(len, names), default=0)
    for number, values in enumerate(zip(*columns, strict=True), 1):
        yield f"-[ row {number} ]".ljust(width + 12, "-")
        yield from (f"{name.ljust(width)} | {value}" for name, value in zip(names, values, strict=True))


def append(table: pa.Table, file: Path) -> None:
    """Add rows to a file: CSV or JSON lines by its ending, else aligned columns; MP805 if it cannot be written."""
    from millpond.rendering import csv_lines, json_lines, text_lines

    lines = {".csv": csv_lines, ".json": json_lines, ".jsonl": json_lines}.get(file.suffix.lower(), text_lines)
    try:
        with file.open("a", encoding="utf-8") as out:
            out.writelines(f"{line}\n" for line in lines(table))
    except OSError as error:
        raise RunError("MP805", f"{file} cannot be written: {error.strerror}.", hint="Choose another file.") from error


def side_by_side(names: Iterable[str], width: int) -> Iterator[str]:
    """Names in columns that fit the width; a long name takes several cells."""
    line = ""
    for name in names:
        if line and len(line) + len(name) > width:
            yield line.rstrip()
            line = ""
        line += name.ljust(-(-(len(name) + 2) // NAME_CELL) * NAME_CELL)
    if line:
        yield line.rstrip()
