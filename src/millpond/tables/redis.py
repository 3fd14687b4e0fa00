"""The Redis backend: a hash per row, which others may read; NULL is a field that is missing.

A commit is one script: it checks the mark, then changes the rows of all tables of this server and writes the new mark,
so others see all of it or nothing. It runs after the commit was decided: if it cannot, it runs when the server is back,
and the mark shows whether it ran. The connection of the writer is named in the mark, so a second app is rejected as
long as the first is connected."""

from __future__ import annotations

import itertools
import math
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pyarrow as pa
from sqlglot import exp

from millpond.contracts.remote_table import Mark, RowChange
from millpond.contracts.table import AggregateCall, BackendPlugin, Capabilities, Clock, TableSpec
from millpond.errors import MillpondError, SetupError, SourceError, StateError, TableError
from millpond.options import NAMES, POSITIVE, SPAN, TEXT, Option
from millpond.schema import Schema
from millpond.tables.pushdown import Range, ranges
from millpond.tables.remote.column_record import differences, recorded
from millpond.tables.remote.driver_rows import from_texts, row_keys, texts_of
from millpond.tables.remote.rows import RemoteRows
from millpond.tables.remote.version_reader import stored_schema

SCHEME = "redis"
# How long the connection of a process that has just ended may last.
LOCK_S = 10.0
# Keys that one SCAN looks at, and rows that one script reads: some milliseconds, in which the server answers nobody.
PIPELINE_ROWS, SCRIPT_ROWS = 5_000, 1_000
FENCED = "MILLPOND_FENCED"
# The field of a group whose columns are all NULL: a hash without fields does not exist.
ALL_NULL = "millpond_null"

# ARGV: for each table its mark and its changes. All marks are checked before anything is changed.
SCRIPT = """
local at = 1
local function take() at = at + 1; return ARGV[at - 1] end
local tables, count = {}, tonumber(take())
for t = 1, count do
  local new = {mark = take(), owner = take(), before = take(), number = take(), row = take(), ttl = tonumber(take())}
  local held = redis.call('HMGET', new.mark, 'owner', 'version')
  if held[1] ~= new.owner or held[2] ~= new.before then return redis.error_reply('MILLPOND_FENCED ' .. new.mark) end
  tables[t] = new
end
for t = 1, count do
  local new, ranges = tables[t], {}
  for r = 1, tonumber(take()) do ranges[r] = take() end
  local whole, columns = {}, tonumber(take())
  for c = 1, columns do whole[2 * c - 1] = take() end
  for _ = 1, tonumber(take()) do
    local row = take()
    redis.call('DEL', row)
    for _, range in ipairs(ranges) do redis.call('ZREM', range, row) end
  end
  for _ = 1, tonumber(take()) do
    local row, fields = take(), tonumber(take())
    redis.call('DEL', row)
    if fields >= 0 then
      for c = 1, columns do whole[2 * c] = ARGV[at + c - 1] end
      redis.call('HSET', row, unpack(whole))
      at = at + columns
    else
      redis.call('HSET', row, unpack(ARGV, at, at - 2 * fields - 1))
      at = at - 2 * fields
    end
    if new.ttl > 0 then redis.call('PEXPIRE', row, new.ttl) end
    for _, range in ipairs(ranges) do
      local score = take()
      if score == '' then redis.call('ZREM', range, row) else redis.call('ZADD', range, score, row) end
    end
  end
  redis.call('HSET', new.mark, 'version', new.number, 'row', new.row)
end
return count
"""


# The values of some columns of many rows, in one answer: KEYS are the rows, ARGV the columns.
READ = """
local found = {}
for n, row in ipairs(KEYS) do found[n] = redis.call('HMGET', row, unpack(ARGV)) end
return found
"""


class RedisTable:
    """One table: the keys under its prefix."""

    def __init__(self, spec: TableSpec, owner: str) -> None:
        self._spec, self._owner, self._url = spec, owner, spec.values["url"]
        self._schema = stored_schema(spec.schema)
        self.prefix = spec.values.get("prefix") or spec.name
        ttl_us = spec.values.get("ttl")
        self.ttl_ms = 0 if ttl_us is None else max(1, ttl_us // 1000)
        self.is_exact = ttl_us is None
        names = spec.values.get("range.index") or ()
        self.ranges = tuple(self._schema[name].name for name in names)
        address = urlsplit(self._url)
        self.shown = f"{address.scheme}://{address.hostname or 'localhost'}:{address.port or 6379}{address.path}"
        self.place = self.shown
        self.client: Any = None
        self._reader: Any = None
        self._fence: Any = None
        self._lock = threading.Lock()

    @contextmanager
    def translated(self) -> Iterator[None]:
        """Errors of the driver as ours."""
        import redis

        try:
            yield
        except MillpondError:
            raise
        except (redis.AuthenticationError, redis.exceptions.NoPermissionError) as error:
            hint = "Correct user and password in 'url', or grant the user the required privileges."
            raise SourceError("MP507", f"Redis at {self.shown} rejects the login: {error}.", hint=hint) from error
        except redis.exceptions.ResponseError as error:
            if FENCED in str(error):
                raise self.taken_over() from error
            # A server without memory is retried like one that is away: rows may expire or be deleted.
            code = "MP506" if str(error).startswith(("OOM", "LOADING", "MISCONF", "READONLY")) else "MP502"
            message = f"Redis at {self.shown} cannot use table '{self._spec.name}': {error}."
            raise SourceError(code, message, hint="Correct the server's settings.") from error
        except (redis.RedisError, OSError) as error:
            hint = "Start it, or correct host and port in 'url'."
            raise SourceError("MP506", f"Redis at {self.shown} cannot be reached: {error}.", hint=hint) from error

    def taken_over(self) -> StateError:
        message = f"Another app has taken over the keys {self.prefix}:* of '{self._spec.name}' in {self.shown}."
        hint = "Use another 'prefix', or start with a new state directory to take them back."
        return StateError("MP801", message, hint=hint)

    # The life of the table

    @property
    def mark(self) -> str:
        return f"millpond:{self.prefix}"

    def range_key(self, column: str) -> str:
        return f"millpond:{self.prefix}:range:{column}"

    def open(self, *, known: bool) -> tuple[Mark, int]:
        try:
            import redis
        except ModuleNotFoundError as error:
            message = "Redis needs the package 'redis', which is not installed."
            raise SetupError("MP309", message, hint="Run: pip install 'millpond[redis]'") from error
        values = self._spec.values
        seconds = {"socket_connect_timeout": "connect.timeout", "socket_timeout": "query.timeout"}
        timeouts = {name: values[option] / 1e6 for name, option in seconds.items() if values.get(option) is not None}
        with self.translated():
            self.client = redis.Redis.from_url(self._url, decode_responses=True, **timeouts)
            self._reader = self.client.register_script(READ)
            self._require_kept_rows()
            self._lock_out()
            held = self.client.hgetall(self.mark)
            self._require_own(held, known=known)
            if not known and held.get("owner") == self._owner:
                # What a drop, or a creation that was not finished, has left behind.
                self._remove_all()
                held = {}
            self._require_fit(held)
            mark = Mark(int(held.get("version", 0)), int(held.get("row", 0)))
            about = {
                "owner": self._owner,
                "version": mark.number,
                "row": mark.next_row,
                "columns": recorded(self._schema),
            }
            self.client.hset(self.mark, mapping=about)
            return mark, self.count()

    def _require_kept_rows(self) -> None:
        """MP409 for a server that may evict rows that do not expire."""
        import redis

        try:
            held = self.client.config_get("maxmemory*")
        except redis.exceptions.ResponseError:
            # A server may forbid the question.
            return
        policy = held.get("maxmemory-policy", "noeviction")
        if int(held.get("maxmemory", 0)) and policy.startswith("allkeys") and not self.ttl_ms:
            message = f"Redis at {self.shown} evicts rows when its memory is full (maxmemory-policy {policy})."
            hint = "Set maxmemory-policy to noeviction or volatile-ttl, or give the rows a time: 'ttl' = '30m'."
            raise TableError("MP409", message, hint=hint)

    def _lock_out(self) -> None:
        """Register the connection of this process as the writer. MP801 while that of another is connected."""
        import redis

        fence = redis.Redis.from_url(self._url, decode_responses=True, single_connection_client=True)
        deadline = time.monotonic() + LOCK_S
        while self._is_connected(fence, fence.hget(self.mark, "client")):
            if time.monotonic() > deadline:
                fence.close()
                message = f"The keys {self.prefix}:* of '{self._spec.name}' in {self.shown} are in use."
                hint = "Another app, or another process of this one, writes to them: stop that one first."
                raise StateError("MP801", message, hint=hint)
            time.sleep(0.05)
        fence.client_setname(f"millpond-{self._owner}")
        fence.hset(self.mark, "client", f"{fence.client_id()}")
        self._fence = fence

    def _is_connected(self, fence: Any, client: str | None) -> bool:
        if not client:
            return False
        found = fence.client_list(client_id=[client])
        return any(str(entry.get("name", "")).startswith("millpond-") for entry in found)

    def require_fence(self) -> None:
        """Register again after the connection was lost. MP801 if another app has."""
        with self._lock:
            if self._fence is not None:
                with suppress(Exception):
                    self._fence.ping()
                    return
                self._lock_out()

    def _require_own(self, held: Mapping[str, str], *, known: bool) -> None:
        if known and "version" not in held:
            message = f"The rows of '{self._spec.name}' are no longer in {self.shown}."
            hint = "Restore them, make the server persistent, or use another state directory."
            raise StateError("MP804", message, hint=hint)
        if known and held["owner"] != self._owner:
            raise self.taken_over()

    def _require_fit(self, held: Mapping[str, str]) -> None:
        """MP409 with everything that differs from the rows of another app."""
        wrong = differences(held, self._schema)
        if not wrong:
            return
        message = f"The keys {self.prefix}:* in {self.shown} do not fit '{self._spec.name}': {wrong}."
        raise TableError("MP409", message, hint="Declare the columns that they have, or write another 'prefix'.")

    def create_index(self, columns: Sequence[str]) -> None:
        """Nothing to do: Redis finds rows by key, and by 'range.index'."""

    def last_mark(self) -> Mark:
        with self.translated():
            held = self.client.hgetall(self.mark)
        if held.get("owner") != self._owner:
            raise self.taken_over()
        return Mark(int(held["version"]), int(held["row"]))

    def drop(self) -> None:
        # A server that cannot be reached keeps the rows; the next table of this name replaces them.
        with suppress(SourceError), self.translated():
            self._remove_all()

    def _remove_all(self) -> None:
        for keys in self._scanned():
            self.client.unlink(*keys)
        self.client.unlink(self.mark, *map(self.range_key, self.ranges))

    def close(self) -> None:
        for client in (self._fence, self.client):
            if client is not None:
                with suppress(Exception):
                    client.close()
        self._fence = None

    # Reading

    def lookup(self, columns: Sequence[str], keys: Sequence[pa.Array]) -> pa.Table:
        if tuple(columns) != self._schema.key:
            # Redis has no index on values; the caller keeps the rows that it asked for.
            return self.scan()
        return self._rows(row_keys(self.prefix, keys))

    def narrowed(self, condition: exp.Expression, parameters: Sequence[Any]) -> pa.Table | None:
        found = next(iter(ranges(condition, self._schema, parameters, self.ranges)), None)
        if found is None:
            return None
        low, high = _bounds(found)
        with self.translated():
            keys = self.client.zrange(self.range_key(found.column), low, high, byscore=True)
        return self._rows(keys)

    def aggregated(self, calls: Sequence[AggregateCall], condition: exp.Expression | None) -> None:
        """None: rows are aggregated here."""

    def scan(self) -> pa.Table:
        parts = []
        with self.translated():
            for keys in self._scanned():
                parts.append(self._rows(keys))
        return pa.concat_tables([self._schema.arrow().empty_table(), *parts])

    def count(self) -> int:
        with self.translated():
            return sum(len(keys) for keys in self._scanned())

    def _scanned(self) -> Iterator[list[str]]:
        """The keys of all rows, in portions, each once."""
        pattern = "".join(f"\\{c}" if c in "*?[]\\^-" else c for c in self.prefix) + ":*"
        seen: set[str] = set()
        cursor = 0
        while True:
            cursor, keys = self.client.scan(cursor, match=pattern, count=PIPELINE_ROWS)
            new = [key for key in dict.fromkeys(keys) if key not in seen]
            seen.update(new)
            if new:
                yield new
            if not cursor:
                return

    def _rows(self, keys: Sequence[str]) -> pa.Table:
        found: list[list[str | None]] = []
        names = (*self._schema.names, ALL_NULL)
        with self.translated():
            for start in range(0, len(keys), SCRIPT_ROWS):
                some = keys[start : start + SCRIPT_ROWS]
                rows = self._reader(keys=some, args=names)
                found += [row for row in rows if any(value is not None for value in row)]
        columns: Sequence[Sequence[str | None]] = list(zip(*found, strict=True)) if found else [()] * len(names)
        arrays = [self._column(v, c.name, c.type) for v, c in zip(columns[:-1], self._schema, strict=True)]
        return pa.Table.from_arrays(arrays, schema=self._schema.arrow())

    def _column(self, texts: Sequence[str | None], name: str, type_: Any) -> pa.Array:
        try:
            return from_texts(texts, type_)
        except (pa.ArrowInvalid, ValueError) as error:
            message = (
                f"A row under {self.prefix}:* in {self.shown} has a value of '{name}' that is no {type_}: {error}."
            )
            raise TableError("MP407", message, hint="Correct or delete that key.") from error

    # Writing

    def begin(self) -> RedisPart:
        with self.translated():
            self.require_fence()
        return RedisPart(self)

    def arguments(self, change: RowChange) -> tuple[list[Any], list[Any]]:
        """What the script gets for a change: about the mark, and about the rows."""
        mark = change.mark
        about = [self.mark, self._owner, mark.number - 1, mark.number, mark.next_row, self.ttl_ms]
        gone = row_keys(self.prefix, change.deletes.columns)
        rows = change.upserts
        names = rows.schema.names
        keys = row_keys(self.prefix, [rows.column(self._schema.position(name)) for name in self._schema.key])
        scores = [_scores(rows.column(self._schema.position(name))) for name in self.ranges]
        changed: list[Any] = [len(keys)]
        for key, values, score in zip(
            keys, zip(*map(texts_of, rows.columns), strict=True), _rows_of(scores, len(keys)), strict=True
        ):
            changed += [key, *_fields(names, values), *score]
        ranges = [len(self.ranges), *map(self.range_key, self.ranges)]
        return about, [*ranges, len(names), *names, len(gone), *gone, *changed]


def _fields(names: Sequence[str], values: Sequence[str | None]) -> list[Any]:
    """The fields of a row: their number and all values, or minus their number and names and values, without NULL."""
    if None not in values:
        return [len(names), *values]
    pairs = [(name, value) for name, value in zip(names, values, strict=True) if value is not None] or [(ALL_NULL, "")]
    return [-len(pairs), *(part for pair in pairs for part in pair)]


def _rows_of(columns: Sequence[Sequence[str]], count: int) -> Iterable[tuple[str, ...]]:
    return zip(*columns, strict=True) if columns else itertools.repeat((), count)


class RedisPart:
    """The part of a commit on one server: one script."""

    def __init__(self, table: RedisTable) -> None:
        self._table = table
        self._changes: list[tuple[list[Any], list[Any]]] = []
        self._numbers: dict[str, int] = {}

    def apply(self, table: RedisTable, change: RowChange) -> None:
        held = self._numbers.get(table.mark)
        if (table.last_mark().number if held is None else held) != change.mark.number - 1:
            raise table.taken_over()
        self._numbers[table.mark] = change.mark.number
        self._changes.append(table.arguments(change))

    def commit(self) -> None:
        with self._table.translated():
            for changes in _in_order(self._changes):
                abouts, rows = zip(*changes, strict=True)
                arguments = [len(changes), *(part for about in abouts for part in about)]
                self._table.client.eval(SCRIPT, 0, *arguments, *(part for row in rows for part in row))

    def abort(self) -> None:
        """Nothing was sent yet."""


def _in_order(changes: list[tuple[list[Any], list[Any]]]) -> list[list[tuple[list[Any], list[Any]]]]:
    """The changes of a commit together; several of one table, which are redone, one after the other."""
    if len({about[0] for about, _ in changes}) == len(changes):
        return [changes] if changes else []
    return [[change] for change in changes]


def _scores(column: pa.Array) -> list[str]:
    return ["" if value is None else repr(value) for value in _numbers(column)]


def _numbers(column: pa.Array) -> list[float | None]:
    """Values as the scores of a sorted set; the order stays, though different values may become equal."""
    if pa.types.is_timestamp(column.type):
        column = column.cast(pa.int64())
    elif pa.types.is_date(column.type):
        column = column.cast(pa.int32())
    return [None if v is None else math.inf if v != v else float(v) for v in column.to_pylist()]


def _bounds(found: Range) -> tuple[str, str]:
    low, high = (_numbers(pa.array([value], found.type))[0] for value in (found.low, found.high))
    return "-inf" if low is None else repr(low), "+inf" if high is None else repr(high)


def validate(spec: TableSpec) -> str | None:
    """What is wrong with the options, as a sentence."""
    url = spec.values.get("url")
    if not url:
        return f"Table '{spec.name}' has the backend redis but no 'url'."
    if urlsplit(url).scheme not in ("redis", "rediss", "unix"):
        return f"The 'url' is for {urlsplit(url).scheme or 'nothing'}, not for redis."
    return next((_wrong_range(spec.schema, name) for name in spec.values.get("range.index") or ()), None)


def _wrong_range(schema: Schema, name: str) -> str | None:
    column = schema.get(name)
    if column is None:
        return f"'range.index' names '{name}', which is no column."
    type_ = column.type
    checks: tuple[Callable[[Any], bool], ...] = (
        pa.types.is_integer, pa.types.is_floating, pa.types.is_decimal, pa.types.is_timestamp, pa.types.is_date
    )  # fmt: skip
    if type_ is None or any(is_(type_) for is_ in checks):
        return None
    return f"'range.index' is for numbers and times, which '{name}' is not."


def notes(spec: TableSpec) -> Iterator[str]:
    """Where the rows are, how they are read, and what others see."""
    table = RedisTable(spec, "")
    yield f"rows in hashes {table.prefix}:* of {table.shown}; each commit is one script there, which others see at once"
    by = f", and ranges of {', '.join(table.ranges)} by a sorted set" if table.ranges else ""
    yield f"keys are looked up by pipeline{by}; other conditions read all rows"
    if table.ttl_ms:
        yield f"a row expires {table.ttl_ms / 1000:g} s after it was written; views are not refreshed by that"


def make(spec: TableSpec, clock: Clock, folder: Path | None) -> Any:
    return RemoteRows(RedisTable, spec, clock, folder)


PLUGIN = BackendPlugin(
    name=SCHEME,
    options=(
        Option("url", TEXT, None, "The server: redis://user:password@localhost:6379/0.", secret=True),
        Option("prefix", TEXT, None, "What the keys of the rows begin with; by default app:table.", defines=True),
        Option("ttl", SPAN, None, "How long a row is kept after it was last written."),
        Option("range.index", NAMES, None, "Columns with a sorted set, by which ranges are found.", defines=True),
        Option("connect.timeout", SPAN, "10s", "How long to wait for a connection."),
        Option("query.timeout", SPAN, None, "How long to wait for an answer."),
        Option("pool.size", POSITIVE, "4", "The most connections that are kept open."),
    ),
    capabilities=Capabilities(outside=True, remote=True),
    make=make,
    validate=validate,
    notes=notes,
    help="Rows in Redis, a hash for each; others may read them.",
)
