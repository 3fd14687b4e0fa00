"""The contract of a source: how it is declared, what it returns, and how its records reach a flow or a table."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

import pyarrow as pa

from millpond.contracts.stored_json import StoredJson
from millpond.errors import MillpondError, SourceError
from millpond.options import DURATION, INTEGER, Option, OptionValues
from millpond.redact import declare_public_parameter
from millpond.schema import TIMESTAMP, Column, Schema
from millpond.uris import Uri

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from millpond.contracts.changes import Capture, ChangeSource
    from millpond.contracts.feeder import Feeder, Polled, RowForm, TableReader
    from millpond.contracts.lookup import KeyReader
    from millpond.contracts.native_stream import NativeStream

# Columns of a batch in addition to the declared ones. The first two are the stream order, by which a flow sorts.
ORDER_MAJOR = "_mp_major"  # BIGINT: file arrival number, Kafka partition, 0 for a generator
ORDER_MINOR = "_mp_minor"  # BIGINT: byte position, Kafka offset, sequence number
BAD = "_mp_bad"  # STRING: why the record cannot be read or cast; NULL for a good one
RAW = "_mp_raw"  # BINARY: the record as received; NULL for a good one
# Two more columns of a source whose messages have keys: only tables that are kept by those keys read the records that
# delete.
DELETED = "_mp_deleted"  # BOOLEAN: the record deletes its key
IDENTITY = "_mp_key"  # BINARY: the message key, or, for a message without one, a unique value

# Columns that can be selected by name but are not part of `*`; a source lists those it has.
HIDDEN_SOURCE = Column("_source", pa.string())
HIDDEN_PARTITION = Column("_partition", pa.string())
HIDDEN_OFFSET = Column("_offset", pa.int64())
HIDDEN_TIMESTAMP = Column("_timestamp", TIMESTAMP)
HIDDEN_KEY = Column("_key", pa.binary())
HIDDEN_HEADERS = Column("_headers", pa.map_(pa.string(), pa.binary()))


def without_identity(schema: Schema) -> Schema:
    """A table's columns as users see them: without the message key by which a table is kept."""
    columns = [c for c in schema if c.name != IDENTITY]
    return Schema.of(columns, (k for k in schema.key if k != IDENTITY))


# Limits on loading a table, which the engine enforces for every source.
BULK_LIMITS = (
    Option("bulk.max.rows", INTEGER, None, "The maximal number of rows when a table is loaded."),
    Option("bulk.timeout", DURATION, None, "The time limit of loading a table."),
)


class Mode(StrEnum):
    """The kind of data that a source yields."""

    APPEND = "append"  # events; the order matters, and nothing is ever changed or removed
    CHANGES = "changes"  # upserts and deletes by key
    SNAPSHOT = "snapshot"  # the whole content again, to be compared with the table


@dataclass(frozen=True)
class Predicate:
    """A condition on one column: `operator` is one of =, <>, <, <=, >, >=, in, like, is null, is not null."""

    column: str
    operator: str
    values: tuple[object, ...] = ()


@dataclass(frozen=True)
class Wanted:
    """What a table's query needs of its source: `columns`, None for all, and `predicates` that hold for all rows it
    uses. A source may omit everything else; the query is evaluated over what it returns."""

    columns: tuple[str, ...] | None = None
    predicates: tuple[Predicate, ...] = ()


@dataclass(frozen=True)
class SourceSpec:
    """Everything needed to open a source; plain data, created by the planner. `values` has every option, with defaults;
    `declared`: the user wrote the columns, so the source must have all of them."""

    id: str
    uri: Uri
    values: OptionValues = field(repr=False)
    columns: Schema | None
    base: Path
    declared: bool = True
    wanted: Wanted = Wanted()

    @property
    def shown(self) -> str:
        """The name of the source in messages."""
        return self.uri.shown


@dataclass(frozen=True)
class Found:
    """The result of discovery: the columns, or None if the source exists but is empty; `missing` if it does not
    exist. `error` is the failure to read a source that can be opened, which nothing else would report."""

    columns: Schema | None = None
    missing: bool = False
    detail: str = ""
    error: SourceError | None = None


@dataclass(frozen=True)
class Patience:
    """How a missing source is polled: for how long in total, and the interval."""

    limit_s: float
    delays_s: Iterator[float]

    @classmethod
    def with_a_server(cls, spec: SourceSpec) -> Patience:
        """The patience with a server that does not respond, by its 'connect.wait.timeout' and 'retry.*'."""
        return cls(spec.values["connect.wait.timeout"] / 1e6, retry_delays(spec.values))


def retry_delays(values: OptionValues) -> Iterator[float]:
    """The seconds between attempts, by the options 'retry.*'."""
    delay_s, most_s = values["retry.interval"] / 1e6, values["retry.max.delay"] / 1e6
    while True:
        yield min(delay_s, most_s)
        delay_s = min(delay_s * values["retry.multiplier"], most_s)


@dataclass(frozen=True)
class Progress:
    """How far loading is, in `unit`, and the rows read so far; `total` is None if it is unknown."""

    done: int = 0
    total: int | None = None
    unit: str = "rows"
    rows: int = 0


class FeedBatches(Protocol):
    """The batches of a source that are in feed files, numbered from the first: each file is one batch, and immutable.
    Used by the flow's thread, except `batches`."""

    @property
    def batches(self) -> int:
        """The number of batches so far; callable from any thread."""

    def has(self, batches: int) -> bool:
        """Whether its journal contains this many batches, and the following ones are available: False if its folder, or
        the rest of the state directory, was removed or restored separately."""

    def file(self, batch: int) -> Path | None:
        """The file of a batch, counted from 0; None if there is no such batch yet."""

    def verify(self, batch: int) -> None:
        """Called before a batch, counted from 0, is read; MP804 unless its file has the content that was written."""

    def forget(self, batches: int) -> None:
        """Called when this many batches are committed and must not be returned again."""

    def watch(self, given: Callable[[], None]) -> None:
        """Set the function that is called whenever there is another batch; it replaces the previous one."""


@dataclass(frozen=True)
class SourceStatus:
    """A source as SHOW SOURCES reports it. `rows` and `bytes` are those of this run; `lag`: the number of records that
    are not in the tables yet, and the seconds that the oldest of them has waited, None if unknown; `updated_at`: the
    time of the last record, in seconds since the epoch. Of captured changes: the bytes of the server's log that are not
    read yet (`log_unread`), and those that the server keeps for the app (`log_kept`)."""

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
    log_unread: int | None = None
    log_kept: int | None = None


@dataclass(frozen=True)
class Past:
    """The records that a stream has returned, to be read again: all records up to the position of its feed, except
    those that still wait there. `positions` are all stored ones, oldest first; `unread` reads columns of the waiting
    rows."""

    spec: SourceSpec
    positions: Sequence[StoredJson]
    unread: Callable[[Sequence[str]], Iterator[pa.Table]]

    def gone(self, why: str) -> SourceError:
        """MP815 with the reason: the records were removed or changed."""
        return past_gone(self.spec, why)


@dataclass(frozen=True)
class NativePast:
    """The same for a stream that Spark reads itself. `folder` is that of the stream, and is only read; `offsets` is
    Spark's offsets file of the last committed batch."""

    spec: SourceSpec
    folder: Path
    spark: Callable[[], SparkSession]
    offsets: str

    def gone(self, why: str) -> SourceError:
        """MP815 with the reason: the records were removed or changed."""
        return past_gone(self.spec, why)


def past_gone(spec: SourceSpec, why: str) -> SourceError:
    """MP815 for records that cannot be read again."""
    hint = "Remove 'backfill' to count from now on, or start again with another --state."
    return SourceError("MP815", f"'{spec.shown}' cannot be read again from its beginning: {why}.", hint=hint)


@dataclass(frozen=True)
class Posted:
    """A request to `POST /hooks/<name>` of the app's port; names of headers are in lower case."""

    headers: Mapping[str, str] = field(repr=False)
    body: bytes = field(repr=False)


@dataclass(frozen=True)
class Reply:
    """The response to it; `message` is for the log of the sender."""

    status: int = 200
    message: str = ""
    headers: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Hook:
    """The endpoint at which a source receives records: `name` is the last part of the path; requests above `bytes_max`
    get the status 413. `take` is called with the feeders of all flows that read this URI, by several threads at once;
    for a small request in the server's loop, so it must not wait. The response is sent when the records are durable. It
    verifies the token itself: that of the server is not required."""

    name: str
    bytes_max: int
    take: Callable[[Sequence[Feeder], Posted], Future[Reply]]


@dataclass(frozen=True)
class SourcePlugin:
    """A source as its module declares it. The module must import neither pyspark nor pandas at its top: `check` reads
    options and discovers columns through it.

    `stream_mode` and `table_mode` are what it yields in the two places where a URI can be used, None where it cannot.
    `local`: discovery does not access a network, so that `check` may do it. `runnable` is False for a source that is
    parsed but not implemented. `discover` never raises for a missing or empty source; `open_native`, `open_feeder` and
    `open_table` raise SourceError MP501 for a missing one, MP506 for one that cannot be reached, and never wait for it:
    they are called again as determined by `patience`."""

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
    # Options that can be given as parameters of the URI (`generate://?rows=10`): parameter name -> option name.
    parameters: Mapping[str, str] = field(default_factory=dict)
    # Whether the URI's parameters are part of the address, and not options.
    sends_parameters: bool = False
    discover: Callable[[SourceSpec], Found] | None = None
    # Opens it as a stream that Spark reads, with a folder for what it must store; or as a feeder of records.
    open_native: Callable[[SourceSpec, Path], NativeStream] | None = None
    open_feeder: Callable[[SourceSpec], Feeder] | None = None
    open_table: Callable[[SourceSpec], TableReader] | None = None
    # As a source of changes: whether its options request it, which sources one capture follows together, and opening
    # it.
    captures: Callable[[OptionValues], bool] = lambda values: False
    capture_group: Callable[[SourceSpec], str] = lambda spec: spec.id
    open_changes: Callable[[Capture], ChangeSource] | None = None
    # What a capture has made on its server, a line for each; True: it is dropped. Nothing is made.
    left_behind: Callable[[Capture, bool], list[str]] | None = None
    # Opens it to be asked for the rows of keys, if its options request that instead of loading it.
    open_keys: Callable[[SourceSpec], KeyReader] | None = None
    looks_up: Callable[[OptionValues], bool] = lambda values: False
    # Whether a table of this source is checked again while the app runs, depending on its options.
    watched: Callable[[OptionValues], bool] = lambda values: False
    # Options that determine when and how fast it is read, not what: changing them does not make it another source. A
    # name that ends in `.*` includes every name with that prefix.
    pace: tuple[str, ...] = ()
    # How a missing source is polled; None: a missing source is an error.
    patience: Callable[[SourceSpec], Patience] | None = None
    # For a source on the network: discovers the columns when the app runs; may start the session, and never waits. A
    # source that cannot be reached is `missing`.
    sample: Callable[[SourceSpec, Callable[[], SparkSession]], Found] | None = None
    # Whether discovery reads a catalog, and is repeated at each start, because columns may have been added.
    has_catalog: bool = False
    # Whether its feeder is given its records: the feeder is kept when the app is planned again, and determines the
    # columns.
    receives_records: bool = False
    # For a source that receives its records over HTTP.
    hook: Callable[[SourceSpec], Hook] | None = None
    # Reads again what a stream has returned; None if that is not possible.
    past: Callable[[Past], tuple[RowForm, Iterable[Polled]]] | None = None
    native_past: Callable[[NativePast], Iterator[pa.Table]] | None = None
    # Translates an error of Spark for this source; None if Spark's message is sufficient.
    failure: Callable[[SourceSpec, BaseException], MillpondError | None] | None = None
    # Validates one URI and its values without any access: returns a sentence about what is wrong, or None.
    validate: Callable[[SourceSpec], str | None] | None = None
    # For a source whose records have a key in addition to their values: whether, depending on its options, that key can
    # be the key column of a table that the values lack.
    key_may_be_column: Callable[[OptionValues], bool] = lambda values: False
    # The options that follow from a URI, such as the format from the name of a file.
    implied: Callable[[Uri], OptionValues] = lambda uri: {}
    # The options that a URI sets, so that they must not be given in WITH as well.
    set_by: Callable[[Uri], tuple[str, ...]] = lambda uri: ()
    # The given values with those of the URI, and of the connection that it names; `connections` are texts by name.
    located: Callable[[Uri, OptionValues, Mapping[str, str]], OptionValues] = lambda uri, given, named: given
    # The text that is sent to a server for a query, as far as it is known without asking the server.
    sent: Callable[[SourceSpec], str] | None = None
    # What the options exclude, as a sentence, which `check` reports.
    unseen: Callable[[SourceSpec], str | None] = lambda spec: None
    # How the table is kept up to date, for `explain`.
    notes: Callable[[SourceSpec], tuple[str, ...]] = lambda spec: ()

    @property
    def has_past(self) -> bool:
        """Whether the records that a stream has returned can be read again."""
        return self.past is not None or self.native_past is not None

    @property
    def is_followed(self) -> bool:
        """Whether it can be read as a stream."""
        return self.open_native is not None or self.open_feeder is not None

    def __post_init__(self) -> None:
        for name in self.parameters:
            declare_public_parameter(name)
