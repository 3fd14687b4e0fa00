"""What a sink promises: rows are staged before the commit and published after it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from millpond.options import Option
from millpond.uris import Uri

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession


@dataclass(frozen=True)
class SinkSpec:
    """Everything needed to open a sink; plain data, made by the planner. `values` has every option, defaults put in.
    `writer` names the state directory that writes, where outputs of several may meet; `private`: only the app's user
    may read what is written."""

    id: str
    uri: Uri
    values: Mapping[str, Any] = field(repr=False)
    base: Path
    writer: str = ""
    private: bool = False

    @property
    def shown(self) -> str:
        return self.uri.shown


# Columns of rows that go to a sink which marks each of them; see `Sink.marks_rows`.
ROW, BATCH = "_mp_row", "_mp_batch"


@dataclass(frozen=True)
class Mark:
    """Which output this is: the same mark always names the same rows, so a replay can be told from something new.
    `part` distinguishes the outputs of commits that are no batch of their flow."""

    flow: str
    batch: int
    statement: int
    part: str = ""

    def __str__(self) -> str:
        flow = f"{self.flow}-{self.part}" if self.part else self.flow
        return f"{flow}-{self.batch:08d}-{self.statement:03d}"


class Sink(Protocol):
    """A place results go. One object per statement and run."""

    # Whether `stage` may be given rows as Arrow too, which a small batch has on the driver; else a DataFrame always.
    takes_arrow: bool
    # Whether the rows given to `prepare` and `stage` have one more column, ROW: a text that names the row within its
    # batch and statement, the same in a replay. Where rows are of other batches, the column BATCH has their numbers.
    marks_rows: bool

    def require(self, spark: Callable[[], SparkSession]) -> None:
        """Called before a flow that writes here begins, and again whenever it begins anew: raises SinkError MP601 when
        nothing can be written here, MP602 when it cannot be reached. `spark` starts the session. Never waits."""

    def prepare(self, rows: pa.Table) -> pa.Table:
        """Called before `stage` with rows that are on the driver, where the sink wants a DataFrame: it may do there
        what Spark does more slowly. What it returns goes to Spark in one piece, and then to `stage`."""

    def stage(self, rows: Any, mark: Mark) -> dict[str, Any] | None:
        """Called before the commit, once per batch in which the statement has a result (an empty one too). `rows` has
        the user's columns, in stream order, and what `marks_rows` says. Staging the same mark again must replace what
        the first try left.
        Returns what `publish` needs, as JSON; it is written into the commit record. None: nothing to publish."""

    def publish(self, staged: dict[str, Any]) -> None:
        """Called after the commit, and again at recovery with what the record holds: must be idempotent."""

    def discard(self) -> None:
        """Called at start, before any batch: whatever this writer staged and is not in a commit record is removed."""

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
    # Whether rows of these columns can be written; raises for what is wrong with them, and touches nothing.
    fits: Callable[[SinkSpec, tuple[str, ...]], None] | None = None
    # The options that a URI gives by itself, so that they cannot be given beside it.
    said_by: Callable[[Uri], tuple[str, ...]] = lambda uri: ()
