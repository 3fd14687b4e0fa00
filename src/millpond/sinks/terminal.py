"""The terminal sink: prints rows of a bare SELECT, as JSON lines or as aligned columns.

Guarantee: at least once. Rows are printed before the commit, and again if the batch is repeated after a crash.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, TextIO

import pyarrow as pa

from millpond.contracts.sink import Mark, Sink, SinkPlugin, SinkSpec
from millpond.contracts.stored_json import JsonObject, StoredJson
from millpond.errors import SinkError
from millpond.rendering import json_lines, text_lines

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

# Statements print from several threads; the lines of one result stay together.
_PRINTING = threading.Lock()


class TerminalSink:
    """A Sink that prints; see the contract."""

    def __init__(self, output: TextIO, json: bool) -> None:
        self._output, self._json = output, json
        self._rows = 0

    marks_rows = False

    def require(self, spark: Callable[[], SparkSession]) -> None:
        """Nothing to check."""

    def prepare(self, rows: pa.Table) -> pa.Table:
        return rows

    def takes_arrow(self, rows: pa.Table) -> bool:
        return True

    def stage(self, rows: DataFrame | pa.Table, mark: Mark) -> JsonObject | None:
        table = rows if isinstance(rows, pa.Table) else rows.toArrow()
        if table.num_rows:
            lines: Iterator[str] = json_lines(table) if self._json else text_lines(table)
            self._print(lines)
            self._rows += table.num_rows
        return None

    def _print(self, lines: Iterator[str]) -> None:
        try:
            with _PRINTING:
                self._output.writelines(f"{line}\n" for line in lines)
                self._output.flush()
        except OSError as error:
            message = f"The rows cannot be printed: {error.strerror or error}."
            raise SinkError("MP601", message, hint="The reader of standard output must not close it.") from error

    def publish(self, staged: dict[str, StoredJson]) -> None:
        """Nothing is staged."""

    def discard(self) -> None:
        """Nothing is staged."""

    def rows_written(self) -> int:
        return self._rows


def open_sink(spec: SinkSpec) -> Sink:
    """A sink that prints to the output of the spec, by default standard output."""
    return TerminalSink(spec.output or sys.stdout, spec.prints_json)


PLUGIN = SinkPlugin(name="terminal", options=(), guarantee="at least once", open=open_sink)
