"""Rows of a query on their way out: aligned text, JSON lines, CSV or an Arrow stream, to a file or standard output."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, BinaryIO

from millpond.cli.messages import counted
from millpond.errors import RunError

if TYPE_CHECKING:
    import pyarrow as pa

FORMATS = ("table", "json", "csv", "arrow")


@dataclass(frozen=True)
class Form:
    """How rows are written and where; without a file to standard output."""

    format: str
    exact_numbers: bool = False
    file: str | None = None

    @property
    def is_binary(self) -> bool:
        return self.format == "arrow"


def write_result(table: pa.Table, form: Form) -> None:
    """Write all rows of the table."""
    with _opened(form) as out:
        if form.is_binary:
            _write_arrow(table, out)
        else:
            out.writelines(f"{line}\n".encode() for line in _lines(table, form))
        out.flush()


def _lines(table: pa.Table, form: Form) -> Iterator[str]:
    # Here because it brings in Arrow, which `millpond --help` does not need.
    from millpond.rendering import csv_lines, json_lines, text_lines

    if form.format == "json":
        yield from json_lines(table, exact_numbers=form.exact_numbers)
    elif form.format == "csv":
        yield from csv_lines(table)
    else:
        yield from text_lines(table)
        yield f"({counted(table.num_rows, 'row')})"


def _write_arrow(table: pa.Table, out: BinaryIO) -> None:
    import pyarrow as pa

    with pa.ipc.new_stream(out, table.schema) as stream:
        stream.write_table(table)


@contextmanager
def _opened(form: Form) -> Iterator[BinaryIO]:
    if form.file is None:
        sys.stdout.flush()
        yield sys.stdout.buffer
        return
    try:
        with open(form.file, "wb") as out:
            yield out
    except OSError as error:
        hint = "Give another file with -o, or make room."
        raise RunError("MP805", f"{form.file} cannot be written: {error.strerror}.", hint=hint) from error
