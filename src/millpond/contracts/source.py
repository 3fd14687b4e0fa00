"""What a source promises: how it is named, what it yields, and how its records reach a flow or a table."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import pyarrow as pa

from millpond.errors import MillpondError, Problem
from millpond.options import Option
from millpond.redact import declare_public_parameter
from millpond.schema import TIMESTAMP, Column, Schema
from millpond.uris import Uri

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

# Columns that a batch carries besides the declared ones. A flow orders by the first two: they are the stream order.
ORDER_MAJOR = "_mp_major"  # BIGINT: file arrival number, Kafka partition, 0 for a generator
ORDER_MINOR = "_mp_minor"  # BIGINT: byte position, Kafka offset, sequence number
BAD = "_mp_bad"  # STRING: why the record cannot be read or cast; NULL for a good one
RAW = "_mp_raw"  # BINARY: the record as it came; NULL for a good one
# Two more of a source whose messages have keys: only tables kept by those keys see the records that delete.
DELETED = "_mp_deleted"  # BOOLEAN: the record says that its key is gone
IDENTITY = "_mp_key"  # BINARY: the message key, or, for a message without one, a name that no other has

# Columns that a user may name but that `*` never yields; a source lists those it has.
HIDDEN_SOURCE = Column("_source", pa.string())
HIDDEN_PARTITION = Column("_partition", pa.string())
HIDDEN_OFFSET = Column("_offset", pa.int64())
HIDDEN_TIMESTAMP = Column("_timestamp", TIMESTAMP)
HIDDEN_KEY = Column("_key", pa.binary())
HIDDEN_HEADERS = Column("_headers", pa.map_(pa.string(), pa.binary()))


def without_identity(schema: Schema) -> Schema:
    """A table's columns as users see them: the message key that a table is kept by is none of them."""
    columns = [c for c in schema if c.name != IDENTITY]
    return Schema.of(columns, (k for k in schema.key if k != IDENTITY))


class Mode(StrEnum):
    """What a source yields."""

    APPEND = "append"  # events; order matters, nothing is ever taken back
    CHANGES = "changes"  # upserts and deletes by key
    SNAPSHOT = "snapshot"  # the whole content again, to be compared with what we hold


@dataclass(frozen=True)
class SourceSpec:
    """Everything needed to open a source; plain data, made by the planner. `values` has every option, with defaults;
    `declared`: the user wrote the columns, so that each must be there."""

    id: str
    uri: Uri
    values: Mapping[str, Any] = field(repr=False)
    columns: Schema | None
    base: Path
    declared: bool = True

    @property
    def shown(self) -> str:
        """How the source is named in messages."""
        return self.uri.shown


@dataclass(frozen=True)
class Found:
    """What discovery found: the columns, or None when the source is there but empty; `missing` when it is not there."""

    columns: Schema | None = None
    missing: bool = False
    detail: str = ""


@dataclass(frozen=True)
class Patience:
    """How a source that is not there is looked for: for how long in all, and how long between two looks."""

    limit_s: float
    delays_s: Iterator[float]


@dataclass(frozen=True)
class Progress:
    """How far loading is, in `unit`, and the rows read so far; `total` is None where it cannot be known."""

    done: int = 0
    total: int | None = None
    unit: str = "rows"
    rows: int = 0


class Given(Protocol):
    """The batches that a source has put into feed files, counted from the first; but for `batches` asked while no query
    of it runs."""

    @property
    def batches(self) -> int:
        """How many it has given so far; callable from any thread."""

    def has(self, batches: int) -> bool:
        """Whether it remembers to have given this many, and still has what comes after them: False when its folder, or
        the rest of the state directory, was removed or restored alone."""

    def verify(self, batch: int) -> None:
        """Called before a batch, counted from 0, is read; MP804 unless its file is what was written."""

    def forget(self, batches: int) -> None:
        """This many are done for good and must never come again."""


class StreamReader(Protocol):
    """A source read as a stream by one flow. One object per flow and run; used from the flow's thread, except `poll`.

    Offsets live in Spark's checkpoint alone. A source that Spark cannot read itself writes *feed files*: each is one
    batch, immutable once visible, and Spark's own file stream over the feed folder keeps the offset.
    """

    def stream(self, spark: SparkSession) -> DataFrame:
        """Called once per (re)start: the streaming DataFrame whose batches go to `records`."""

    def poll(self, *, final: bool = False) -> bool:
        """Look for new records and make them visible to `stream`; True when there were any. Called once before a flow
        catches up (after it, everything the source held then must be visible) and then every `interval_s` while it
        runs, never by two threads at once. Must not raise for a source that has gone away for a while: it says so in
        `status` and goes on. Native sources do nothing here. `final`: the app runs with `--once`, this is the only
        poll; a source that knows all it will ever hold (a generator with `rows`) makes all of it visible."""

    @property
    def interval_s(self) -> float:
        """How often `poll` wants to be called."""

    def records(self, batch: DataFrame) -> DataFrame:
        """A batch's records: the declared columns in order, the source's hidden columns, then ORDER_MAJOR,
        ORDER_MINOR, BAD and RAW, and of a keyed source DELETED and IDENTITY. Lazy; the same batch must give the same
        records whenever it is asked again. A bad record is a row with BAD set and NULL columns, never an exception."""

    def on_driver(self, batch: DataFrame, files: Sequence[Path] | None) -> pa.Table | None:
        """The records of a batch as `records` gives them, on the driver: read from its feed files without Spark, or, of
        a source that writes no feed, brought there by one plain job. Asked for batches that are small, or of bounded
        size. None where Spark must read them, and where files should be there and are not known."""

    def all_good(self, files: Sequence[Path]) -> int | None:
        """How many records these feed files hold, if it is certain without reading them that none is bad: spares
        looking for bad ones. None where it is not."""

    def size_hint(self, batch: DataFrame) -> int:
        """About how many rows `records` will give, without running a job of any size; only steers caching."""

    def originals(self, batch: DataFrame, records: pa.Table) -> list[bytes | None]:
        """The bytes of some records of a batch as they came, None where they cannot be had again. Called inside the
        batch, for good records that a statement refused; `records` are rows of `records(batch)`, in any order."""

    def again(self, spark: SparkSession, letters: pa.Table) -> DataFrame:
        """Dead letters as records, in the shape of `records`, each at the partition and position that it had; `raw`
        may have been repaired since. Called between batches. Raises SourceError MP512 when bytes alone do not make a
        record of this source."""

    def committed(self, batch_id: int) -> None:
        """The batch is in the tables for good: what was kept to replay it may go. May never be called after a crash."""

    def status(self) -> SourceStatus:
        """For SHOW SOURCES; callable from any thread."""

    @property
    def given(self) -> Given | None:
        """What it has put into feed files; None where Spark reads the source itself."""

    def problems(self) -> list[Problem]:
        """Warnings since the last call, such as MP510 for a rewritten file; called after `poll`, from its thread."""


class TableReader(Protocol):
    """A source read as a table: its whole content, again whenever `changed` says so. Used from one thread."""

    def fingerprint(self) -> str:
        """Changes when the content may have; cheap. Raises SourceError MP501 when the source is not there."""

    def read(self, spark: Callable[[], SparkSession]) -> pa.Table:
        """The whole content as of now, in the shape of StreamReader.records and in stream order. `spark` starts the
        session where records need it to be read. MP509 when it is more than 'bulk.max.rows' or takes longer than
        'bulk.timeout'."""

    def progress(self) -> Progress:
        """Callable from any thread while `read`'s result is being computed."""

    def status(self) -> SourceStatus:
        """For SHOW SOURCES; callable from any thread."""


@dataclass(frozen=True)
class SourceStatus:
    """A source as SHOW SOURCES tells it. `rows` and `bytes` read in this run; `lag`: records that are there but not in
    the tables yet, and for how many seconds the oldest of them, None where unknown; `updated_at`: when the last record
    came, in seconds since the epoch."""

    state: str = "ready"
    health: str = "healthy"
    rows: int = 0
    bad_records: int = 0
    retries: int = 0
    lag: int | None = None
    detail: str = ""
    bytes: int = 0
    lag_s: float | None = None
    updated_at: float | None = None


@dataclass(frozen=True)
class Past:
    """What a stream has given, to be read again: all records of its first `batches` batches and no others, in the shape
    of StreamReader.records and in stream order, in parts of bounded size. `folder` is the stream's, which is only read;
    `own` is for what must be written meanwhile. MP815 where the records are gone or are others now."""

    spec: SourceSpec
    folder: Path
    own: Path
    batches: int
    spark: Callable[[], SparkSession]


@dataclass(frozen=True)
class SourcePlugin:
    """A source as its module declares it. The module must import neither pyspark nor pandas at its top:
    `check` reads options and discovers columns through it.

    `stream_mode` and `table_mode` say what it yields in the two places a URI can stand, None where it cannot stand.
    `local` says that discovery touches no network, so that `check` may do it. `runnable` is False for a source that
    parses but cannot run yet. `discover` never raises for a missing or empty source; `open_stream` and `open_table`
    raise SourceError MP501 for a missing one, MP506 for one that cannot be reached, and never wait for it: they are
    called again as `patience` says. `folder` is the flow's or table's own, for whatever the source must remember.
    """

    name: str
    options: tuple[Option, ...]
    stream_mode: Mode | None
    table_mode: Mode | None
    hidden: tuple[Column, ...] = ()
    local: bool = False
    runnable: bool = True
    # Columns that need no discovery, such as the generator's.
    fixed: Schema | None = None
    # Whether an aggregate over this URI in a CTAS counts every record (kafka, memory, generate) or the table's rows.
    counts_every_record: bool = False
    # Options that a URI's own parameters may give (`generate://?rows=10`): parameter name -> option name.
    parameters: Mapping[str, str] = field(default_factory=dict)
    discover: Callable[[SourceSpec], Found] | None = None
    open_stream: Callable[[SourceSpec, Path], StreamReader] | None = None
    open_table: Callable[[SourceSpec, Path], TableReader] | None = None
    # Options that say when and how fast it is read, not what: a change of them is no new source. A name that ends in
    # `.*` stands for every name that starts so.
    pace: tuple[str, ...] = ()
    # How long a source that is not there is looked for; None: it is there, or it fails.
    patience: Callable[[SourceSpec], Patience] | None = None
    # For a source on the network: columns by looking at it when the app runs, and making sure of it before a flow
    # begins, with the errors of `open_stream`. Both may start the session; neither waits.
    sample: Callable[[SourceSpec, SparkSession], Found] | None = None
    require: Callable[[StreamReader, SparkSession], None] | None = None
    # For a source that is handed its records: the columns that those which a reader holds show, and giving that reader
    # a spec that has become another. It stays the same one, because records may be handed to it at any moment.
    found_in: Callable[[StreamReader], Found] | None = None
    make_known: Callable[[StreamReader, SourceSpec], None] | None = None
    # Reads again what a stream has given in its first batches; None where that cannot be had again.
    past: Callable[[Past], Iterator[pa.Table]] | None = None
    # What an error of Spark's means for this source, in its own words; None where Spark's are as good.
    failure: Callable[[SourceSpec, BaseException], MillpondError | None] | None = None
    # Checks one URI and its values without touching anything: returns a sentence for what is wrong, or nothing.
    validate: Callable[[SourceSpec], str | None] | None = None
    # For a source whose records have a key beside their values: whether, by its options, that key can be the column by
    # which a table is kept and which the values lack.
    key_may_be_column: Callable[[Mapping[str, Any]], bool] = lambda values: False
    # What a URI says of options that are not given, such as the format that a file's ending names.
    implied: Callable[[Uri], Mapping[str, Any]] = lambda uri: {}
    # The options that a URI gives by itself, so that they cannot be given beside it.
    said_by: Callable[[Uri], tuple[str, ...]] = lambda uri: ()

    def __post_init__(self) -> None:
        for name in self.parameters:
            declare_public_parameter(name)
