"""A backend of another package, as small as one can be: a "server" that is a file with all rows."""

from __future__ import annotations

import fcntl
import os
import pickle
import threading
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pyarrow as pa
from sqlglot import exp

from millpond.contracts.remote_table import Mark, RowChange
from millpond.contracts.table import BackendPlugin, Capabilities, Clock, TableSpec
from millpond.errors import StateError, TableError
from millpond.options import TEXT, Option
from millpond.tables.lookup_keys import among, key_columns
from millpond.tables.remote.rows import RemoteRows
from millpond.tables.remote.version_reader import stored_schema


@dataclass(frozen=True)
class Held:
    """A table in the file."""

    owner: str
    mark: Mark
    rows: pa.Table


class NinthTable:
    """One table; 'url' is the file."""

    is_exact = True

    def __init__(self, spec: TableSpec, owner: str) -> None:
        self._spec, self._owner = spec, owner
        self._schema = stored_schema(spec.schema)
        self.path = Path(spec.values["url"])
        self.place = str(self.path)
        self._guard = -1
        self._writing = threading.Lock()

    def held(self) -> dict[str, Held]:
        with suppress(FileNotFoundError):
            return dict(pickle.loads(self.path.read_bytes()))
        return {}

    def write(self, tables: dict[str, Held]) -> None:
        new = self.path.with_suffix(".new")
        new.write_bytes(pickle.dumps(tables))
        new.replace(self.path)

    def open(self, *, known: bool) -> tuple[Mark, int]:
        self._guard = os.open(self.path.with_suffix(f".{self._spec.name}.lock"), os.O_RDWR | os.O_CREAT, 0o600)
        try:
            fcntl.flock(self._guard, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise StateError("MP801", f"The file of '{self._spec.name}' is in use.") from None
        tables = self.held()
        found = tables.get(self._spec.name)
        if known and (found is None or found.owner != self._owner):
            raise StateError("MP801", f"Another app has taken over '{self._spec.name}'.")
        if found is None or (not known and found.owner == self._owner):
            found = Held(self._owner, Mark(0), self._schema.arrow().empty_table())
        if found.rows.schema != self._schema.arrow():
            raise TableError("MP409", f"The file has other columns than '{self._spec.name}'.")
        self.write({**tables, self._spec.name: replace(found, owner=self._owner)})
        return found.mark, found.rows.num_rows

    def create_index(self, columns: Sequence[str]) -> None:
        """Nothing to do."""

    def _own(self) -> Held:
        found = self.held()[self._spec.name]
        if found.owner != self._owner:
            raise StateError("MP801", f"Another app has taken over '{self._spec.name}'.")
        return found

    def last_mark(self) -> Mark:
        return self._own().mark

    def lookup(self, columns: Sequence[str], keys: Sequence[pa.Array]) -> pa.Table:
        return self.scan()

    def narrowed(self, condition: exp.Expression, parameters: Sequence[Any]) -> pa.Table | None:
        return None

    def aggregated(self, calls: Any, condition: Any) -> None:
        """None: rows are aggregated by Millpond."""

    def scan(self) -> pa.Table:
        return self._own().rows

    def count(self) -> int:
        return int(self.scan().num_rows)

    def begin(self) -> NinthPart:
        return NinthPart(self)

    def after(self, tables: dict[str, Held], change: RowChange) -> dict[str, Held]:
        """The tables of the file after a change."""
        found = tables[self._spec.name]
        if (found.owner, found.mark.number) != (self._owner, change.mark.number - 1):
            raise StateError("MP801", f"Another app has taken over '{self._spec.name}'.")
        rows = found.rows
        for gone in (change.deletes, change.upserts.select(list(self._schema.key))):
            if gone.num_rows and rows.num_rows:
                wanted = key_columns(self._schema, rows)
                keys = type(wanted)([gone.column(name) for name in self._schema.key])
                rows = rows.filter(pa.array(~among(wanted, keys)))
        rows = pa.concat_tables([rows, pa.Table.from_batches([change.upserts], schema=rows.schema)])
        return {**tables, self._spec.name: Held(self._owner, change.mark, rows.combine_chunks())}

    def drop(self) -> None:
        self.write({name: held for name, held in self.held().items() if name != self._spec.name})

    def close(self) -> None:
        if self._guard >= 0:
            os.close(self._guard)
            self._guard = -1


class NinthPart:
    """All changes of a commit, written at once."""

    def __init__(self, table: NinthTable) -> None:
        self._table, self._changes = table, list[tuple[NinthTable, RowChange]]()

    def apply(self, table: NinthTable, change: RowChange) -> None:
        self._changes.append((table, change))
        self._after()

    def _after(self) -> dict[str, Held]:
        tables = self._table.held()
        for table, change in self._changes:
            tables = table.after(tables, change)
        return tables

    def commit(self) -> None:
        self._table.write(self._after())

    def abort(self) -> None:
        """Nothing was written yet."""


def make(spec: TableSpec, clock: Clock, folder: Path | None) -> Any:
    return RemoteRows(NinthTable, spec, clock, folder)


PLUGIN = BackendPlugin(
    name="ninth",
    options=(Option("url", TEXT, None, "The file."),),
    capabilities=Capabilities(outside=True, remote=True),
    make=make,
)
