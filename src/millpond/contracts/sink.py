"""The contract of a sink: rows are staged before the commit and published after it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, TextIO

from millpond.contracts.stored_json import JsonObject, StoredJson
from millpond.errors import Problem
from millpond.options import Option, OptionValues
from millpond.uris import Uri

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

    from millpond.schema import Schema


def _not_rejected(rows: pa.Table, reason: str, flow: str, statement: int) -> None:
    raise AssertionError("an app that opens a sink sets where rejected rows go")


@dataclass(frozen=True)
class SinkSpec:
    """Everything needed to open a sink; plain data, created by the planner. `values` has every option, with defaults.
    `writer` identifies the state directory that writes, because several may write to one sink; `private`: only the
    app's user may read the output."""

    id: str
    uri: Uri
    values: OptionValues = field(repr=False)
    base: Path
    writer: str = ""
    private: bool = False
    # Set when an app opens it: a folder in the state directory for what it must remember, the columns of each statement
    # that writes here, as far as their types are known, and where `publish` puts rows that the sink rejects, which
    # become dead letters: the rows, the reason, and the flow and the statement of the mark.
    folder: Path | None = field(default=None, compare=False)
    columns: tuple[Schema, ...] = field(default=(), compare=False)
    reject: Callable[[pa.Table, str, str, int], None] = field(default=_not_rejected, repr=False, compare=False)
    # Called by a sink that has something to do when the app stops, after the last batch, with what that is.
    at_stop: Callable[[Callable[[], None]], None] = field(default=lambda work: None, repr=False, compare=False)
    # Takes a warning about what a sink does between batches; any thread may call it.
    warn: Callable[[Problem], None] = field(default=lambda problem: None, repr=False, compare=False)
    # Where a sink prints, None for standard output, and whether as JSON lines.
    output: TextIO | None = field(default=None, repr=False, compare=False)
    prints_json: bool = field(default=False, compare=False)

    @property
    def shown(self) -> str:
        return self.uri.shown


# Additional columns of the rows of a sink with `marks_rows`; see there.
ROW, BATCH = "_mp_row", "_mp_batch"


@dataclass(frozen=True)
class Mark:
    """Identifies one output: the same mark always names the same rows, so that a replay is recognized. `part`
    distinguishes the outputs of commits that do not belong to a batch of the flow."""

    flow: str
    batch: int
    statement: int
    part: str = ""

    def __str__(self) -> str:
        flow = f"{self.flow}-{self.part}" if self.part else self.flow
        return f"{flow}-{self.batch:08d}-{self.statement:03d}"


class Sink(Protocol):
    """A destination of results. One object per statement and run."""

    # Whether the rows passed to `prepare` and `stage` have one more column, ROW: a text that identifies the row within
    # its batch and statement, the same in a replay. If rows belong to other batches, the column BATCH has their
    # numbers.
    marks_rows: bool

    def require(self, spark: Callable[[], SparkSession]) -> None:
        """Called before a flow that writes here starts, and again at each restart: raises SinkError MP601 when
        the sink cannot be written, MP602 when it cannot be reached. `spark` starts the session. Must not wait."""

    def prepare(self, rows: pa.Table) -> pa.Table:
        """Called before `stage` with rows that are on the driver, as those of a small batch are: a sink that may
        require a DataFrame can do work here that Spark does more slowly. The returned table is passed to `stage`."""

    def takes_arrow(self, rows: pa.Table) -> bool:
        """Whether `stage` accepts what `prepare` has returned; otherwise it is transferred to Spark, and `stage` gets a
        DataFrame. Must not wait."""

    def stage(self, rows: pa.Table | DataFrame, mark: Mark) -> JsonObject | None:
        """Called before the commit, once per batch in which the statement has a result (an empty one too). `rows` has
        the user's columns, in stream order, and the columns of `marks_rows`. Staging the same mark again must replace
        the output of the first attempt.
        Returns what `publish` needs, as JSON, which is written into the commit record. None: nothing to publish."""

    def publish(self, staged: dict[str, StoredJson]) -> None:
        """Called after the commit, and again at recovery with the value from the commit record: must be idempotent."""

    def discard(self) -> None:
        """Called at start, before any batch: remove what this writer staged and no commit record refers to."""

    def rows_written(self) -> int:
        """Rows published in this run; callable from any thread."""


@dataclass(frozen=True)
class SinkPlugin:
    """A sink as its module declares it; the module must import neither pyspark nor pandas at its top."""

    name: str
    options: tuple[Option, ...]
    guarantee: str
    open: Callable[[SinkSpec], Sink] | None = None
    runnable: bool = True
    validate: Callable[[SinkSpec], str | None] | None = None
    # Folders within that of the sink which executors write to: on a cluster they are in its storage.
    staging: tuple[str, ...] = ()
    # Checks that rows of these columns can be written, without accessing the sink; raises if they cannot.
    fits: Callable[[SinkSpec, tuple[str, ...]], None] | None = None
    # The options that a URI already sets, so that they must not be given in WITH as well.
    set_by: Callable[[Uri], tuple[str, ...]] = lambda uri: ()
    # The given values with those of the URI, and of the connection that it names; `connections` are texts by name.
    located: Callable[[Uri, OptionValues, Mapping[str, str]], OptionValues] = lambda uri, given, named: given
    # Whether Spark writes all rows of a sink, so that it is started early; what is known only later starts it, too.
    needs_spark: Callable[[SinkSpec], bool] = lambda spec: False
    # The guarantee of a sink with these options, if it depends on them.
    guarantee_of: Callable[[OptionValues], str] | None = None

    def guaranteed(self, values: OptionValues) -> str:
        """The guarantee of a sink with these options."""
        return self.guarantee_of(values) if self.guarantee_of is not None else self.guarantee
