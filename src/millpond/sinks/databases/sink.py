"""A table of a database as a sink; what differs between databases is its `Target`.

Guarantee: exactly once. Rows are stored in the outbox before our commit, and applied after it in one transaction of the
database, which also writes the mark of the output into `millpond_commits`. An output whose mark exists is not applied
again.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import pyarrow as pa

from millpond.contracts.sink import Mark, SinkSpec
from millpond.contracts.stored_json import JsonObject, StoredJson
from millpond.errors import SinkError, did_you_mean
from millpond.faults import reach
from millpond.schema import Column, Schema, type_name
from millpond.sinks.outbox import Outbox, Parcel

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

COMMITS = "millpond_commits"
# The column of CHANGES that is the operation, and its value for a row that is gone.
OPERATION, DELETE = "_op", "delete"
# Rows with the reasons why the database rejects them.
Rejected = list[tuple[pa.Table, str]]
# Writes rows, all or none; raises the driver's error where the database rejects one.
Write = Callable[[pa.Table], None]


class Target:
    """A table of a database that is written. Opening it connects; errors are SinkError MP601 and MP602."""

    # The columns of the table, None if it does not exist; and its key.
    columns: Schema | None
    # Columns that must be given: not NULL, and without a default.
    required: tuple[str, ...] = ()

    def create(self, columns: Schema) -> None:
        """Make the table, with this key."""
        raise NotImplementedError

    def has_unique(self, key: Sequence[str]) -> bool:
        """Whether these columns identify a row, by an index."""
        raise NotImplementedError

    def accepts(self, type_: pa.DataType, column: Column) -> bool:
        """Whether values of a type can be written to a column."""
        raise NotImplementedError

    def apply(self, parcel: Parcel, key: tuple[str, ...], owner: str, reject: Callable[[Rejected], None]) -> int:
        """Apply rows in one transaction with their mark; rows that are rejected are passed to `reject` before the
        commit. Returns how many rows were written; 0 if they were applied before."""
        raise NotImplementedError

    def close(self) -> None:
        raise NotImplementedError


class DatabaseSink:
    """A Sink that is a table of a database; see the contract."""

    marks_rows = False

    def __init__(self, spec: SinkSpec, open_: Callable[[SinkSpec], Target]) -> None:
        assert spec.folder is not None, "the app has a state directory"
        self._spec, self._open = spec, open_
        self._outbox = Outbox(spec.folder)
        self._target: Target | None = None
        self._checked: set[tuple[tuple[str, pa.DataType | None], ...]] = set()
        self._rows = 0
        # Several flows may write here.
        self._turn = threading.Lock()

    def require(self, spark: Callable[[], SparkSession]) -> None:
        with self._turn:
            target = self._opened()
            for columns in self._spec.columns:
                self._check(target, columns)
            self._apply_ready()

    def _opened(self) -> Target:
        if self._target is None:
            self._target = self._open(self._spec)
            self._checked.clear()
        return self._target

    def _let_go(self) -> None:
        if self._target is not None:
            self._target.close()
        self._target = None

    def prepare(self, rows: pa.Table) -> pa.Table:
        return rows

    def takes_arrow(self, rows: pa.Table) -> bool:
        return True

    def stage(self, rows: DataFrame | pa.Table, mark: Mark) -> JsonObject | None:
        found = rows if isinstance(rows, pa.Table) else rows.toArrow()
        if not found.num_rows:
            return None
        name = self._outbox.stage(found, mark, self._spec.values["batch.size"])
        return {"staged": name, "rows": found.num_rows}

    def publish(self, staged: dict[str, StoredJson]) -> None:
        with self._turn:
            self._outbox.ready(staged["staged"])
            reach("sink.ready")
            self._apply_ready()

    def _apply_ready(self) -> None:
        """Apply what is ready. A connection that was lost is opened once more: it may have been idle for long."""
        parcels = self._outbox.parcels()
        for attempt in (1, 2):
            fresh = self._target is None
            try:
                while parcels:
                    self._apply(self._opened(), parcels[0])
                    self._outbox.remove(parcels.pop(0))
                return
            except SinkError as error:
                self._let_go()
                if error.code != "MP602" or fresh or attempt == 2:
                    raise

    def _apply(self, target: Target, parcel: Parcel) -> None:
        self._check(target, Schema.from_arrow(parcel.schema))
        owner = f"{self._spec.writer}/{self._spec.id}/{parcel.flow}"

        def reject(rejected: Rejected) -> None:
            for rows, reason in rejected:
                self._spec.reject(rows, reason, parcel.flow, parcel.statement)

        self._rows += target.apply(parcel, self._key(target), owner, reject)
        reach("sink.applied")

    def _key(self, target: Target) -> tuple[str, ...]:
        """The columns by which rows are upserted; none: they are appended."""
        given: tuple[str, ...] | None = self._spec.values.get("key")
        assert target.columns is not None
        if given is None:
            return target.columns.key
        return tuple(column.name if (column := target.columns.get(name)) else name for name in given)

    def _check(self, target: Target, columns: Schema) -> None:
        """MP601 unless the table has the columns of the rows, in types that take their values."""
        shape = tuple((c.name, c.type) for c in columns)
        if shape in self._checked:
            return
        own = [c for c in columns if c.name != OPERATION]
        if target.columns is None:
            if not all(c.type is not None for c in own):
                # Types that are known only when rows come.
                return
            self._create(target, own)
        assert target.columns is not None
        there = target.columns
        for column in own:
            found = there.get(column.name)
            if found is None:
                hint = did_you_mean(column.name, there.names) or f"There are: {', '.join(there.names)}."
                raise self._wrong(f"has no column '{column.name}'", hint)
            if column.type is not None and not target.accepts(column.type, found):
                wrong = f"cannot store {type_name(column.type)} in its column '{found.name}', {type_name(found.type)}"
                raise self._wrong(wrong, f"CAST the column to {type_name(found.type)}.")
        self._check_key(target, own, has_operation=len(own) < len(columns))
        self._checked.add(shape)

    def _check_key(self, target: Target, own: list[Column], *, has_operation: bool) -> None:
        key, names = self._key(target), {c.name.lower() for c in own}
        absent = [name for name in (*key, *target.required) if name.lower() not in names]
        if absent:
            why = "is part of its key" if absent[0] in key else "is NOT NULL and has no default"
            raise self._wrong(f"needs the column '{absent[0]}', which {why}", f"Select it: ... AS {absent[0]}.")
        if key and not target.has_unique(key):
            hint = f"Make one: CREATE UNIQUE INDEX ON {self._spec.values['table']} ({', '.join(key)});"
            raise self._wrong(f"has no unique index on ({', '.join(key)}), by which rows are upserted", hint)
        if has_operation and not key:
            raise self._wrong("has no key, by which rows are deleted", "Give the table a primary key.")

    def _create(self, target: Target, own: list[Column]) -> None:
        if not self._spec.values["create"]:
            hint = "Create it, or write WITH ('create' = 'true')."
            raise SinkError("MP601", f"There is no table for '{self._spec.shown}'.", hint=hint)
        key = self._spec.values.get("key") or ()
        absent = [name for name in key if name.lower() not in {c.name.lower() for c in own}]
        if absent:
            raise SinkError("MP601", f"'{self._spec.shown}' needs the column '{absent[0]}', which is part of its key.")
        target.create(Schema.of(own, key))

    def _wrong(self, what: str, hint: str) -> SinkError:
        return SinkError("MP601", f"The table of '{self._spec.shown}' {what}.", hint=hint)

    def discard(self) -> None:
        with self._turn:
            self._outbox.discard()

    def rows_written(self) -> int:
        return self._rows


def written_by_halves(
    rows: pa.Table, write: Write, rejection: Callable[[Exception], str | None], rejected: Rejected
) -> int:
    """Write rows; where the database rejects some, they are found by halves and added to `rejected`. `rejection` is the
    reason that an error gives, None for an error of another kind. Returns how many rows were written."""
    try:
        write(rows)
        return int(rows.num_rows)
    except Exception as error:
        reported = rejection(error)
        if reported is None:
            raise
        if rows.num_rows == 1:
            rejected.append((rows, reported))
            return 0
    middle = rows.num_rows // 2
    parts = (rows.slice(0, middle), rows.slice(middle))
    return sum(written_by_halves(part, write, rejection, rejected) for part in parts)
