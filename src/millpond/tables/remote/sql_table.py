"""What tables in databases share: their options, their mark in `millpond_commits`, their fence, and their errors."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from sqlglot import exp

from millpond.contracts.remote_table import Mark
from millpond.contracts.table import AggregateCall, TableSpec
from millpond.databases.address import address_of, completed
from millpond.databases.options import CONNECTION
from millpond.databases.pool import Pool
from millpond.errors import MillpondError, StateError, TableError
from millpond.options import BOOLEAN, INTERVAL, TEXT, Option
from millpond.registry import SCHEME_ALIASES
from millpond.tables.pushdown import Pushed, SqlRules, in_sql, whole_part
from millpond.tables.remote.version_reader import stored_schema
from millpond.uris import parse_uri

COMMITS = "millpond_commits"
# Of a table that others write too; what reads it again is in the app.
SHARED = (
    Option(
        "shared", BOOLEAN, "false", "Whether others write to the table too: then every read is a query of the server."
    ),
    Option(
        "poll.interval", INTERVAL, "30s", "How often views over a shared table are refreshed; never: at each start."
    ),
)
CAPTURED = Option("cdc", BOOLEAN, "false", "Whether views over a shared table are refreshed when somebody changes it.")
# The options of a table in a database beside its URL.
PLACE = (
    Option("table", TEXT, None, "The table in the database; by default the name of this table.", defines=True),
    *SHARED,
    CAPTURED,
    *(o for o in CONNECTION if o.name not in ("host", "port", "database") and not o.name.startswith("retry.")),
)


@dataclass(frozen=True)
class Held:
    """The mark of a table as it is stored: its owner, and whether that one has created the table."""

    owner: str = ""
    version: int = 0
    row: int = 0
    made: bool = False


def held_in(rows: Sequence[tuple[Any, ...]]) -> Held:
    """The mark in the rows of a query for it, of which there is one at most."""
    return Held(**json.loads(rows[0][0])) if rows else Held()


class SqlTable:
    """One table of a database; a subclass has the statements of its kind."""

    rules: SqlRules

    def __init__(self, spec: TableSpec, owner: str, scheme: str, port: int, quoted: Callable[[str], str]) -> None:
        given = {name: value for name, value in spec.values.items() if value is not None}
        self._spec, self._owner, self._quoted = spec, owner, quoted
        self._name = given.get("table") or spec.name
        uri = parse_uri(spec.values["url"])
        self._values = {**spec.values, **completed(scheme, uri, {**given, "table": self._name}, {})}
        self._schema = stored_schema(spec.schema)
        self.address = address_of(scheme, self._values, port)
        self.place = f"{self.address.identity}?{self.address.username}"
        parts = [given["schema"], self._name] if given.get("schema") else [self._name]
        self._table = ".".join(quoted(part) for part in parts)
        self._pool = Pool(self._values)
        self._fence: Any = None
        self._fence_lock = threading.Lock()
        self.is_made = True
        self.is_shared = bool(spec.values.get("shared"))
        # Others may add rows at any moment.
        self.is_exact = not self.is_shared

    def _read(self, text: str, values: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        """The rows of a statement, in a transaction of its own."""
        raise NotImplementedError

    def _lock_out(self) -> None:
        """Take the lock, which lasts as long as the connection that has it. MP801 if another has it."""
        raise NotImplementedError

    def _ask_fence(self) -> None:
        """Raise if the connection that has the lock is lost."""
        raise NotImplementedError

    def _require_fence(self) -> None:
        """Take the lock again after its connection was lost. MP801 if another app has it now."""
        with self._fence_lock:
            if self._fence is not None:
                with suppress(Exception):
                    self._ask_fence()
                    return
                self._lock_out()

    @property
    def flow(self) -> str:
        """The name of the table in millpond_commits; of a shared one, each app has its own."""
        return f"shared {self._table} {self._owner}" if self.is_shared else f"table {self._table}"

    def mark_text(self, mark: Mark) -> str:
        return json.dumps({"owner": self._owner, "version": mark.number, "row": mark.next_row, "made": self.is_made})

    def last_mark(self) -> Mark:
        held = held_in(self._read(f"SELECT mark FROM {COMMITS} WHERE flow = %s", [self.flow]))
        if held.owner != self._owner:
            raise self.taken_over()
        return Mark(held.version, held.row)

    def is_left_behind(self, held: Held, *, there: bool, known: bool) -> bool:
        """Whether an existing table is what a drop, or a creation that was not finished, has left behind. MP804 if a
        known table is missing, MP801 if it is another app's now."""
        if known and not there:
            message = f"The table {self._name} of '{self._spec.name}' is no longer in {self.address.shown}."
            raise StateError("MP804", message, hint="Restore it, or use another state directory.")
        if known and held.owner != self._owner:
            raise self.taken_over()
        return there and not known and held.owner == self._owner and held.made and not self.is_shared

    def require_next(self, held: Held, mark: Mark) -> None:
        """MP801 if a change is not the one after the stored mark."""
        if (held.owner, held.version) != (self._owner, mark.number - 1):
            raise self.taken_over()

    def in_use(self) -> StateError:
        message = f"The table {self._name} of '{self._spec.name}' in {self.address.shown} is in use."
        hint = "Another app, or another process of this one, writes to it: stop that one first."
        return StateError("MP801", message, hint=hint)

    def taken_over(self) -> StateError:
        message = f"Another app has taken over the table {self._name} of '{self._spec.name}' in {self.address.shown}."
        hint = "Use another table, or start with a new state directory to take it back."
        return StateError("MP801", message, hint=hint)

    def misfit(self, wrong: Sequence[str]) -> TableError:
        """MP409 with everything that differs."""
        message = (
            f"The table {self._name} in {self.address.shown} does not fit '{self._spec.name}': {'; '.join(wrong)}."
        )
        hint = "Declare the columns that it has, or write another name with 'table'."
        return TableError("MP409", message, hint=hint)

    @property
    def _listed(self) -> str:
        return ", ".join(self._quoted(column.name) for column in self._schema)

    def _of_rows(self, rows: list[tuple[Any, ...]], convert: Callable[[Sequence[Any], Any], pa.Array]) -> pa.Table:
        """Rows of the driver as a table."""
        schema = self._schema.arrow()
        columns: list[Any] = list(zip(*rows, strict=True)) if rows else [()] * len(schema)
        arrays = [convert(values, field.type) for values, field in zip(columns, schema, strict=True)]
        return pa.Table.from_arrays(arrays, schema=schema)

    def aggregated(self, calls: Sequence[AggregateCall], condition: exp.Expression | None) -> list[int | None] | None:
        part = None if condition is None else whole_part(condition, self._schema)
        if condition is not None and part is None:
            return None
        where = Pushed("", ()) if part is None else in_sql(part, self.rules)
        if any(isinstance(value, str) and "\0" in value for value in where.values):
            return None
        listed = ", ".join(f"{call.function}({self._called(call.column)})" for call in calls)
        text = f"SELECT {listed} FROM {self._table}" + (f" WHERE {where.sql}" if part is not None else "")
        (row,) = self._ask(text, where.values)
        found = [None if value is None else int(value) for value in row]
        # A sum that is no BIGINT is an error, which is raised here.
        return None if any(value is not None and not -(2**63) <= value < 2**63 for value in found) else found

    def _called(self, column: str | None) -> str:
        return "*" if column is None else self._quoted(self._schema[column].name)

    def _ask(self, text: str, values: Sequence[Any]) -> list[tuple[Any, ...]]:
        """The rows of a statement in which `rules` marks the values."""
        return self._read(text, values)

    def count(self) -> int:
        return int(self._read(f"SELECT count(*) FROM {self._table}")[0][0])

    def _next_row(self) -> int:
        """The number after the last row of a table without key."""
        if self._spec.schema.key:
            return 0
        found = self._read(f"SELECT max({self._quoted(self._schema.key[0])}) FROM {self._table}")[0][0]
        return 0 if found is None else int(found) + 1

    def close(self) -> None:
        self._pool.close()
        if self._fence is not None:
            with suppress(Exception):
                self._fence.close()
            self._fence = None

    def notes(self, server: str) -> tuple[str, ...]:
        """For `explain`: where the rows are, who evaluates conditions, and what others see."""
        others = "; others write to it too, and every read is a query of the server" if self.is_shared else ""
        return (
            f"rows in table {self._name} of {self.address.shown}; each commit is one transaction there{others}",
            f"keys, and whole numbers and texts in conditions, are compared by {server}, which also evaluates "
            "COUNT(*), and COUNT, SUM, MIN and MAX of whole numbers; the rest is evaluated here",
        )


def wrong_url(spec: TableSpec, scheme: str, example: str) -> str | None:
    """What is wrong with the URL of a table, as a sentence."""
    url = spec.values.get("url")
    if not url:
        return f"Table '{spec.name}' has the backend {scheme} but no 'url'."
    try:
        uri = parse_uri(url)
    except MillpondError:
        return f"The 'url' is not a URI: {example}."
    if SCHEME_ALIASES.get(uri.scheme, uri.scheme) != scheme:
        return f"The 'url' is for {uri.scheme}, not for {scheme}."
    if len([part for part in uri.path.split("/") if part]) != 1:
        return f"The 'url' names a database and nothing else: {scheme}://host/database; the table is in 'table'."
    return None
