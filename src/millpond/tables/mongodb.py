"""The MongoDB backend: a document per row, which others may read; `_id` is the key as a text.

A server with transactions (a replica set) makes all changes of a commit in one, with the mark. Others get the changes
after the commit was decided, in order and then the mark; each can be repeated, so what was interrupted is made again
from the log, and until then others may see a part of it. The writer renews a counter, by which a second app sees that
the first is alive. It is in a document of its own: a server may read a document and write it again without a lock, so
that the counter would restore an older mark."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pyarrow as pa
from sqlglot import exp

from millpond.contracts.remote_table import Mark, RowChange
from millpond.contracts.table import AggregateCall, BackendPlugin, Capabilities, Clock, TableSpec
from millpond.errors import ConstraintError, MillpondError, SetupError, SourceError, StateError, TableError
from millpond.options import POSITIVE, SPAN, TEXT, Option
from millpond.tables.pushdown import IsNull, Joined, Part, pushed_part, whole_part
from millpond.tables.remote.column_record import differences, recorded
from millpond.tables.remote.document_values import as_stored, column_of, document_ids, is_compared
from millpond.tables.remote.rows import RemoteRows
from millpond.tables.remote.sql_table import SHARED
from millpond.tables.remote.version_reader import stored_schema

SCHEME = "mongodb"
COMMITS = "millpond_commits"
# How long a writer may be silent before another takes over, and how often it renews its counter.
LEASE_S = 15.0
BEAT_S = 3.0
CLOSE_S = 2.0
# Keys of one query, and rows of one message.
KEYS_MAX = 10_000
PAIRS_MAX = 500
# What MongoDB stores as one document.
DOCUMENT_BYTES = 16 * 1024 * 1024
_OPERATORS = {"=": "$eq", "<>": "$ne", "<": "$lt", "<=": "$lte", ">": "$gt", ">=": "$gte"}


class MongoTable:
    """One collection."""

    def __init__(self, spec: TableSpec, owner: str) -> None:
        self._spec, self._owner, self._url = spec, owner, spec.values["url"]
        self._schema = stored_schema(spec.schema)
        self.name = spec.values.get("collection") or spec.name
        parts = urlsplit(self._url)
        user, _, hosts = parts.netloc.rpartition("@")
        self._database = parts.path.strip("/")
        self.shown = f"{parts.scheme}://{hosts}/{self._database}"
        self.place = f"{self.shown}?{user.partition(':')[0]}"
        self.client: Any = None
        self.has_transactions = False
        self.is_shared = bool(spec.values.get("shared"))
        # Others may add rows at any moment.
        self.is_exact = not self.is_shared
        self._stopping = threading.Event()
        self._beating: threading.Thread | None = None

    @contextmanager
    def translated(self) -> Iterator[None]:
        """Errors of the driver as ours."""
        import pymongo.errors as errors

        about = f"MongoDB at {self.shown}"
        try:
            yield
        except MillpondError:
            raise
        except (errors.ConnectionFailure, errors.WaitQueueTimeoutError, OSError) as error:
            hint = "Start it, or correct host and port in 'url'."
            raise SourceError("MP506", f"{about} cannot be reached: {_first(error)}.", hint=hint) from error
        except errors.OperationFailure as error:
            if error.code in (13, 18):
                hint = "Correct user and password in 'url', or grant the user the required privileges."
                raise SourceError("MP507", f"{about} rejects the login: {_first(error)}.", hint=hint) from error
            message = f"{about} cannot use table '{self._spec.name}': {_first(error)}."
            raise SourceError("MP502", message, hint="Correct the server's settings.") from error
        except errors.PyMongoError as error:
            message = f"{about} cannot be used as configured: {_first(error)}."
            raise SourceError("MP508", message, hint="Correct 'url'.") from error

    def rows_in(self, database: Any) -> Any:
        return database[self.name]

    @property
    def _rows(self) -> Any:
        return self.client[self._database][self.name]

    @property
    def _marks(self) -> Any:
        return self.client[self._database][COMMITS]

    @property
    def database(self) -> Any:
        return self.client[self._database]

    @property
    def mark(self) -> str:
        """The name of the collection among the marks; of a shared one, each app has its own."""
        return f"shared {self.name} {self._owner}" if self.is_shared else f"collection {self.name}"

    def _counter(self, writer: str) -> dict[str, str]:
        """The filter of the document with the counter of a writer."""
        return {"_id": f"writer {writer} of {self.mark}"}

    # The life of the table

    def open(self, *, known: bool) -> tuple[Mark, int]:
        try:
            import pymongo
        except ModuleNotFoundError as error:
            message = "MongoDB needs the package 'pymongo', which is not installed."
            raise SetupError("MP309", message, hint="Run: pip install 'millpond[mongodb]'") from error
        with self.translated():
            self.client = pymongo.MongoClient(self._url, **self._timeouts())
            hello = self.client.admin.command("hello")
            self.has_transactions = "setName" in hello or hello.get("msg") == "isdbgrid"
        held = self._locked_out()
        with self.translated():
            self._require_own(held, known=known)
            if not known and held.get("owner") == self._owner and not self.is_shared:
                # What a drop, or a creation that was not finished, has left behind.
                self._rows.drop()
                held = {}
            self._require_fit(held)
            mark = Mark(int(held.get("version", 0)), int(held.get("row", 0)))
            about = {
                "owner": self._owner,
                "version": mark.number,
                "row": mark.next_row,
                "columns": recorded(self._schema),
            }
            self._marks.update_one({"_id": self.mark}, {"$set": {**about, "writer": self._owner}}, upsert=True)
            if not self.is_shared:
                self._begin_to_beat(held.get("writer", ""))
            return mark, self.count()

    def _begin_to_beat(self, before: str) -> None:
        """Take over from the writer before."""
        if before != self._owner:
            self._marks.delete_one(self._counter(before))
        self._marks.replace_one(self._counter(self._owner), {"beat": 0}, upsert=True)
        self._beating = threading.Thread(target=self._beat, name=f"millpond-mongodb-{self.name}", daemon=True)
        self._beating.start()

    def _timeouts(self) -> dict[str, Any]:
        values = self._spec.values
        wait_ms = values.get("connect.timeout", 10_000_000) // 1000
        found = {"serverSelectionTimeoutMS": wait_ms, "connectTimeoutMS": wait_ms}
        if values.get("query.timeout") is not None:
            found["socketTimeoutMS"] = values["query.timeout"] // 1000
        if values.get("pool.size") is not None:
            found["maxPoolSize"] = values["pool.size"]
        return found

    def _locked_out(self) -> Mapping[str, Any]:
        """The mark, after waiting until no other app is alive that writes; MP801 if one is."""
        deadline, seen = time.monotonic() + LEASE_S, None
        while True:
            with self.translated():
                held: Mapping[str, Any] = self._marks.find_one({"_id": self.mark}) or {}
                counter = self._marks.find_one(self._counter(held.get("writer", ""))) or {}
            # A state directory is used by one process at a time: an earlier writer of this one has ended.
            if held.get("writer") in (None, "", self._owner):
                return held
            if seen is not None and counter.get("beat", 0) != seen:
                message = f"The collection {self.name} of '{self._spec.name}' in {self.shown} is in use."
                hint = "Another app writes to it: stop that one first."
                raise StateError("MP801", message, hint=hint)
            if time.monotonic() > deadline:
                return held
            seen = counter.get("beat", 0)
            time.sleep(0.05)

    def _beat(self) -> None:
        """Show others that this app is alive."""
        while not self._stopping.wait(BEAT_S):
            with suppress(SourceError), self.translated():
                self._marks.update_one(self._counter(self._owner), {"$inc": {"beat": 1}})

    def _require_own(self, held: Mapping[str, Any], *, known: bool) -> None:
        if known and "version" not in held:
            message = f"The rows of '{self._spec.name}' are no longer in {self.shown}."
            raise StateError("MP804", message, hint="Restore them, or use another state directory.")
        if known and held["owner"] != self._owner:
            raise self.taken_over()
        if "version" not in held and not self.is_shared and self._rows.find_one({}, {"_id": 1}) is not None:
            message = f"The collection {self.name} in {self.shown} has documents that were not written by Millpond."
            raise TableError("MP409", message, hint="Write another name with 'collection', or empty it.")

    def taken_over(self) -> StateError:
        message = f"Another app has taken over the collection {self.name} of '{self._spec.name}' in {self.shown}."
        hint = "Use another 'collection', or start with a new state directory to take it back."
        return StateError("MP801", message, hint=hint)

    def _require_fit(self, held: Mapping[str, Any]) -> None:
        """MP409 with everything that differs from the rows of another app."""
        wrong = differences(held, self._schema)
        if not wrong:
            return
        message = f"The collection {self.name} in {self.shown} does not fit '{self._spec.name}': {wrong}."
        raise TableError("MP409", message, hint="Declare the columns that it has, or write another 'collection'.")

    def create_index(self, columns: Sequence[str]) -> None:
        with self.translated():
            self._rows.create_index([(name, 1) for name in columns])

    def last_mark(self) -> Mark:
        with self.translated():
            held = self._marks.find_one({"_id": self.mark}) or {}
        if held.get("owner") != self._owner:
            raise self.taken_over()
        return Mark(int(held["version"]), int(held["row"]))

    def drop(self) -> None:
        # A server that cannot be reached keeps the rows; the next table of this name replaces them.
        with suppress(SourceError), self.translated():
            if not self.is_shared:
                self._rows.drop()
            self._marks.delete_one({"_id": self.mark})

    def close(self) -> None:
        self._stopping.set()
        if self._beating is not None:
            import pymongo

            # Closing does not wait for a server that cannot be reached.
            self._beating.join(CLOSE_S)
            with suppress(SourceError), self.translated(), pymongo.timeout(CLOSE_S):
                self._marks.update_one({"_id": self.mark, "writer": self._owner}, {"$set": {"writer": ""}})
                self._marks.delete_one(self._counter(self._owner))
        if self.client is not None:
            with suppress(Exception):
                self.client.close()

    # Reading

    def lookup(self, columns: Sequence[str], keys: Sequence[pa.Array]) -> pa.Table:
        if tuple(columns) == self._schema.key:
            ids = document_ids(keys)
            return self._found([{"_id": {"$in": ids[n : n + KEYS_MAX]}} for n in range(0, len(ids), KEYS_MAX)])
        if not all(is_compared(key.type) for key in keys):
            # The caller keeps the rows that it asked for.
            return self.scan()
        values = [as_stored(key) for key in keys]
        if len(columns) == 1:
            starts = range(0, len(values[0]), KEYS_MAX)
            return self._found([{columns[0]: {"$in": values[0][n : n + KEYS_MAX]}} for n in starts])
        pairs = [dict(zip(columns, row, strict=True)) for row in zip(*values, strict=True)]
        return self._found([{"$or": pairs[n : n + PAIRS_MAX]} for n in range(0, len(pairs), PAIRS_MAX)])

    def narrowed(self, condition: exp.Expression, parameters: Sequence[Any]) -> pa.Table | None:
        part = pushed_part(condition, self._schema, parameters)
        return None if part is None else self._found([filter_of(part)])

    def aggregated(self, calls: Sequence[AggregateCall], condition: exp.Expression | None) -> list[int | None] | None:
        part = None if condition is None else whole_part(condition, self._schema)
        # Others could write between two questions, and NULL satisfies <> there.
        if (self.is_shared and len(calls) > 1) or (condition is not None and (part is None or _has_unequal(part))):
            return None
        wanted = {} if part is None else filter_of(part)
        found = [self._aggregate(call, wanted) for call in calls if call.function != "SUM"]
        return found if len(found) == len(calls) else None

    def _aggregate(self, call: AggregateCall, wanted: Mapping[str, Any]) -> int | None:
        """COUNT by an aggregation pipeline; MIN and MAX by an index, if there is one."""
        with self.translated():
            if call.column is None:
                return int(self._rows.count_documents(wanted))
            name = self._schema[call.column].name
            present = {"$and": [wanted, {name: {"$ne": None}}]}
            if call.function == "COUNT":
                return int(self._rows.count_documents(present))
            first = list(self._rows.find(present).sort(name, 1 if call.function == "MIN" else -1).limit(1))
        return first[0][name] if first else None

    def scan(self) -> pa.Table:
        return self._found([{}])

    def count(self) -> int:
        with self.translated():
            return int(self._rows.count_documents({}))

    def _found(self, filters: Sequence[Mapping[str, Any]]) -> pa.Table:
        """The rows that one of some filters finds; no row is found by two of them."""
        schema, parts = self._schema.arrow(), []
        with self.translated():
            for wanted in filters:
                found = list(self._rows.find(wanted, batch_size=KEYS_MAX))
                columns = [column_of([row.get(f.name) for row in found], f.type) for f in schema]
                parts.append(pa.RecordBatch.from_arrays(columns, schema=schema))
        return pa.Table.from_batches(parts, schema=schema)

    # Writing

    def begin(self) -> MongoPart:
        return MongoPart(self)

    def documents(self, rows: pa.RecordBatch) -> list[dict[str, Any]]:
        """Rows as documents. MP404 for one that is too large."""
        import bson

        ids = document_ids([rows.column(self._schema.position(name)) for name in self._schema.key])
        columns = [as_stored(column) for column in rows.columns]
        names = rows.schema.names
        made = [
            {"_id": id_, **dict(zip(names, row, strict=True))}
            for id_, row in zip(ids, zip(*columns, strict=True), strict=True)
        ]
        large = rows.nbytes > DOCUMENT_BYTES // 4
        if large and any(len(bson.encode(document)) > DOCUMENT_BYTES for document in made):
            message = f"MongoDB cannot store a row of '{self._spec.name}' that has more than 16 MB."
            raise ConstraintError("MP404", message, hint="Nothing was changed.")
        return made

    def mark_after(self, mark: Mark) -> tuple[dict[str, Any], dict[str, Any]]:
        """The filter and the change that write a mark after the previous one."""
        before = {"_id": self.mark, "owner": self._owner, "version": mark.number - 1}
        return before, {"$set": {"version": mark.number, "row": mark.next_row}}


class MongoPart:
    """The part of a commit in one database: a transaction, or operations in order after the commit is decided."""

    def __init__(self, table: MongoTable) -> None:
        self._table = table
        self._changes: list[tuple[MongoTable, RowChange, list[dict[str, Any]]]] = []
        self._numbers: dict[str, int] = {}
        self._session: Any = None
        if table.has_transactions:
            with table.translated():
                self._session = table.client.start_session()
                self._session.start_transaction()

    def apply(self, table: MongoTable, change: RowChange) -> None:
        held = self._numbers.get(table.mark)
        if (table.last_mark().number if held is None else held) != change.mark.number - 1:
            raise table.taken_over()
        self._numbers[table.mark] = change.mark.number
        documents = table.documents(change.upserts)
        if self._session is None:
            self._changes.append((table, change, documents))
        else:
            with table.translated():
                self._make(table, change, documents)

    def _make(self, table: MongoTable, change: RowChange, documents: list[dict[str, Any]]) -> None:
        """Change the rows, then the mark; all of it can be made again."""
        from pymongo import ReplaceOne

        database = self._table.database
        rows, session = table.rows_in(database), self._session
        if change.deletes.num_rows:
            gone = document_ids(change.deletes.columns)
            for n in range(0, len(gone), KEYS_MAX):
                rows.delete_many({"_id": {"$in": gone[n : n + KEYS_MAX]}}, session=session)
        for n in range(0, len(documents), KEYS_MAX):
            some = documents[n : n + KEYS_MAX]
            wanted = {"_id": {"$in": [document["_id"] for document in some]}}
            there = {row["_id"] for row in rows.find(wanted, {"_id": 1}, session=session)}
            # New documents are written many times faster than those that replace others.
            new = [document for document in some if document["_id"] not in there]
            steps = [ReplaceOne({"_id": d["_id"]}, d, upsert=True) for d in some if d["_id"] in there]
            if new:
                rows.insert_many(new, ordered=False, session=session)
            if steps:
                rows.bulk_write(steps, ordered=False, session=session)
        before, after = table.mark_after(change.mark)
        if not database[COMMITS].update_one(before, after, session=self._session).matched_count:
            raise table.taken_over()

    def commit(self) -> None:
        with self._table.translated():
            if self._session is not None:
                self._session.commit_transaction()
                self._session.end_session()
                return
            for table, change, documents in self._changes:
                # An app that has taken the table over in between must not be overwritten.
                if table.last_mark().number != change.mark.number - 1:
                    raise table.taken_over()
                self._make(table, change, documents)

    def abort(self) -> None:
        if self._session is not None:
            with suppress(Exception):
                self._session.abort_transaction()
            with suppress(Exception):
                self._session.end_session()


def filter_of(part: Part) -> dict[str, Any]:
    """A condition as MongoDB writes it. NULL is not equal to anything here but satisfies `<>` there, so that more rows
    may be found."""
    if isinstance(part, IsNull):
        return {part.column: None}
    if isinstance(part, Joined):
        return {f"${part.word.lower()}": [filter_of(each) for each in part.parts]}
    return {part.column: {_OPERATORS[part.word]: part.value}}


def _has_unequal(part: Part) -> bool:
    if isinstance(part, Joined):
        return any(map(_has_unequal, part.parts))
    return not isinstance(part, IsNull) and part.word == "<>"


def _first(error: BaseException) -> str:
    """The first sentence of an error of the driver, which goes on with the state of its connections."""
    return str(error).partition(", full error")[0].partition(", Timeout")[0].partition("(configured")[0].strip(" .")


def validate(spec: TableSpec) -> str | None:
    """What is wrong with the options, as a sentence."""
    url = spec.values.get("url")
    if not url:
        return f"Table '{spec.name}' has the backend mongodb but no 'url'."
    parts = urlsplit(url)
    if parts.scheme not in ("mongodb", "mongodb+srv"):
        return f"The 'url' is for {parts.scheme or 'nothing'}, not for mongodb."
    if not parts.path.strip("/") or "/" in parts.path.strip("/"):
        return "The 'url' names a database and nothing else: mongodb://host/database; 'collection' is the collection."
    wrong = [c.name for c in spec.schema if "." in c.name or c.name.startswith("$") or c.name == "_id"]
    return f"MongoDB cannot store column '{wrong[0]}': its name contains a point or $, or is _id." if wrong else None


def notes(spec: TableSpec) -> Iterator[str]:
    """Where the rows are, how they are read, and what others see."""
    table = MongoTable(spec, "")
    others = "; others write to it too, and every read asks the server" if table.is_shared else ""
    yield (
        f"rows in collection {table.name} of {table.shown}; a replica set makes each commit in one transaction, others "
        f"may see a part of it for a moment{others}"
    )
    yield "keys, and whole numbers and texts in conditions, are compared by MongoDB; the rest is evaluated here"


def make(spec: TableSpec, clock: Clock, folder: Path | None) -> Any:
    return RemoteRows(MongoTable, spec, clock, folder)


PLUGIN = BackendPlugin(
    name=SCHEME,
    options=(
        Option("url", TEXT, None, "The database: mongodb://user:password@localhost:27017/database.", secret=True),
        Option("collection", TEXT, None, "The collection; by default the name of the table.", defines=True),
        *SHARED,
        Option("connect.timeout", SPAN, "10s", "How long to wait for a connection."),
        Option("query.timeout", SPAN, None, "How long to wait for an answer."),
        Option("pool.size", POSITIVE, "4", "The most connections that are open at a time."),
    ),
    capabilities=Capabilities(outside=True, remote=True),
    make=make,
    validate=validate,
    notes=notes,
    help="Rows in MongoDB, a document for each; others may read them.",
)
