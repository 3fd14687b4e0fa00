"""CREATE and DROP statements of `app.execute`, and the named queries (CREATE VIEW) in the ledger."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from sqlglot import exp

from millpond.app.added_statements import Added
from millpond.contracts.source import without_identity
from millpond.contracts.table import Store, TableSpec, Transaction
from millpond.engine.ledger import MADE, NAMED
from millpond.errors import BindError, SqlError, TableError, did_you_mean
from millpond.plan.history_model import HISTORY
from millpond.plan.model import NamedQuery, Plan
from millpond.schema import Column, Schema, type_name
from millpond.sql.parser import parse_script
from millpond.sql.statements import Begin, Commit, CreateIndex, CreateTable, CreateView, Drop, Name, Rollback, Statement


def views_of(store: Store) -> dict[str, dict[str, Any]]:
    """Name, text and origin of each view, by name in lower case."""
    return {key.removeprefix(NAMED): found for key, found in store.items(NAMED).items()}


def put_views(tx: Transaction, store: Store, plan: Plan) -> None:
    """Called at the start: store the views of the file, replacing those that it had before."""
    wanted = {view.name.lower(): view for view in plan.views if view.text}
    for name, found in views_of(store).items():
        if found["file"] and name not in wanted:
            tx.put(NAMED + name, None)
    for view in wanted.values():
        put_view(tx, view, of_file=True)


def put_view(tx: Transaction, view: NamedQuery, *, of_file: bool) -> None:
    """Store a view in the ledger."""
    tx.put(NAMED + view.name.lower(), {"name": view.name, "text": view.text, "file": of_file})


DEFINITIONS = (CreateTable, CreateView, CreateIndex, Drop)


def portions(statements: Sequence[Statement]) -> list[list[Statement]]:
    """Statements that run together: BEGIN to COMMIT, and each other one alone. MP217 for a definition inside of a
    transaction, which could not be rolled back."""
    found: list[list[Statement]] = []
    inside = False
    for statement in statements:
        if inside and isinstance(statement, DEFINITIONS):
            message = "CREATE and DROP are not allowed in a transaction."
            raise SqlError("MP217", message, place=statement.place, hint="Write it before BEGIN, or after COMMIT.")
        if inside:
            found[-1].append(statement)
        else:
            found.append([statement])
        inside = isinstance(found[-1][0], Begin) and not isinstance(statement, Commit | Rollback)
    return found


@dataclass(frozen=True)
class Definitions:
    """Runs definitions; tables of the app's file can only be changed in the file. A declared table is created at once;
    one AS SELECT is planned together with the file, and so are the tables that it reads."""

    store: Store
    app: Plan
    bind: Callable[..., Plan]
    added: tuple[Added, ...]

    def run(self, statement: Statement) -> tuple[Added, ...] | None:
        """Run one; if the app must be planned again, return the statements to add to its file instead."""
        if isinstance(statement, CreateTable):
            return self._create_table(statement)
        if isinstance(statement, CreateView):
            return self._create_view(statement)
        if isinstance(statement, CreateIndex):
            self._require_table(statement.table)
            self.store.table(statement.table.text).create_index(*(column.text for column in statement.columns))
            return None
        assert isinstance(statement, Drop)
        return self._drop_view(statement) if statement.kind == "VIEW" else self._drop_table(statement)

    def _create_table(self, statement: CreateTable) -> tuple[Added, ...] | None:
        name = statement.name
        self._refuse_other_kind(name, views=True)
        if self._is_table(name):
            if statement.if_not_exists:
                return None
            self._refuse_of_file(name)
            if not statement.or_replace:
                raise _taken("table", name)
        if statement.query is not None or self._is_added(name):
            return self._with(name, statement.code)
        # Planned before anything is dropped: an error must not lose the old table.
        plan = self.bind(statement.code, without=self._spelled(name)).table(name.text)
        assert plan is not None
        if plan.options.get(HISTORY) is not None:
            return self._with(name, statement.code)
        self.store.drop(name.text)
        self.store.create(plan.spec)
        self._put(MADE + name.key, statement.code)
        return None

    def _create_view(self, statement: CreateView) -> tuple[Added, ...] | None:
        name, there = statement.name, views_of(self.store).get(statement.name.key)
        self._refuse_other_kind(name, views=False)
        if there is not None and statement.if_not_exists:
            return None
        self._refuse_view_of_file(name)
        if (there is not None and not statement.or_replace) or self._is_table(name):
            raise _taken("table or view", name)
        if self._is_added(name):
            return self._with(name, statement.code)
        view = next((v for v in self.bind(statement.code, without=name.text).views if v.name.lower() == name.key), None)
        if view is None or not view.text:
            message = "A view outside of the app's file can only read tables, not a stream or a URI."
            raise BindError("MP215", message, place=statement.place, hint="Add it to the app's file.")
        with self.store.begin() as tx:
            put_view(tx, view, of_file=False)
            tx.commit()
        return None

    def _drop_view(self, statement: Drop) -> tuple[Added, ...] | None:
        name, views = statement.name, views_of(self.store)
        if name.key not in views:
            if statement.if_exists:
                return None
            hint = did_you_mean(name.text, [v["name"] for v in views.values()])
            raise BindError("MP201", f"There is no view '{name}'.", place=name.place, hint=hint)
        self._refuse_view_of_file(name)
        if self._is_added(name):
            return self._without(name, "VIEW")
        self._put(NAMED + name.key, None)
        return None

    def _drop_table(self, statement: Drop) -> tuple[Added, ...] | None:
        name = statement.name
        if statement.if_exists and not self._is_table(name):
            return None
        self._require_table(name)
        self._refuse_of_file(name)
        if self._is_added(name):
            return self._without(name, "TABLE")
        self.store.drop(name.text)
        self._put(MADE + name.key, None)
        return None

    def _with(self, name: Name, code: str) -> tuple[Added, ...]:
        """The added statements with one more, or another of that name, and with those that define what it reads."""
        needed = {found.name: found for found in self._needed(_relations(code) - {name.key})}
        kept = [found for found in self.added if found.name != name.key]
        return (*kept, *needed.values(), Added(name.key, code))

    def _without(self, name: Name, kind: str) -> tuple[Added, ...]:
        """The added statements without one; MP409 when another reads what it defines."""
        kept = [found for found in self.added if found.name != name.key]
        readers = [found for found in kept if name.key in _relations(found.sql)]
        if readers:
            hint = f"Drop that first: {kind} '{name}' can be dropped when nothing reads it."
            raise TableError("MP409", f"'{readers[0].name}' reads '{name}'.", place=name.place, hint=hint)
        return (*kept, Added(name.key, f"DROP {kind} IF EXISTS {quoted(self._spelled(name))}"))

    def _needed(self, read: Iterable[str]) -> Iterator[Added]:
        """The tables and views among these names that were created at once, so that the plan does not have them."""
        views = views_of(self.store)
        known = {table.name.lower() for table in self.app.tables} | {view.name.lower() for view in self.app.views}
        for name in sorted(set(read) - known):
            if name in views:
                text = f"CREATE VIEW {quoted(views[name]['name'])} AS {views[name]['text']}"
                yield from self._needed(_relations(text) - {name})
                yield Added(name, text)
            elif name in {n.lower() for n in self.store.names()} and not self.store.table(name).spec.hidden:
                yield Added(name, self.store.get(MADE + name) or _whole_declaration(self.store.table(name).spec))

    def _put(self, key: str, value: Any) -> None:
        with self.store.begin() as tx:
            tx.put(key, value)
            tx.commit()

    def _is_table(self, name: Name) -> bool:
        return name.key in {n.lower() for n in self.store.names()} or self.app.table(name.text) is not None

    def _is_added(self, name: Name) -> bool:
        return any(found.name == name.key for found in self.added)

    def _spelled(self, name: Name) -> str:
        """The name of a table or view as it was declared; empty when there is none."""
        there = (*self.store.names(), *(view["name"] for view in views_of(self.store).values()))
        return next((found for found in there if found.lower() == name.key), "")

    def _require_table(self, name: Name) -> None:
        if name.key not in {n.lower() for n in self.store.names()}:
            hint = did_you_mean(name.text, self.store.names())
            raise BindError("MP201", f"There is no table '{name}'.", place=name.place, hint=hint)

    def _refuse_other_kind(self, name: Name, *, views: bool) -> None:
        """MP205 for the name of a stream, or, if `views`, of a view."""
        if name.key in {stream.name.lower() for stream in self.app.streams}:
            raise _taken("stream", name)
        if views and name.key in views_of(self.store):
            raise _taken("view", name)

    def _refuse_of_file(self, name: Name) -> None:
        if self.app.table(name.text) is not None and not self._is_added(name):
            raise _of_file("Table", name)

    def _refuse_view_of_file(self, name: Name) -> None:
        there = views_of(self.store).get(name.key)
        if there is not None and there["file"] and not self._is_added(name):
            raise _of_file("View", name)


def _relations(sql: str) -> set[str]:
    """The names that a definition reads from, in lower case."""
    queries = [s.query for s in parse_script(sql).statements if isinstance(s, CreateTable | CreateView) and s.query]
    return {table.name.lower() for query in queries for table in query.find_all(exp.Table)}


def _taken(what: str, name: Name) -> BindError:
    hint = "Write IF NOT EXISTS or OR REPLACE, or choose another name."
    if what in ("stream", "view"):
        hint = "Choose another name."
    return BindError("MP205", f"{what.capitalize()} '{name}' already exists.", place=name.place, hint=hint)


def _of_file(what: str, name: Name) -> TableError:
    hint = "Change it in the file, and apply the file: millpond apply FILE."
    return TableError("MP409", f"{what} '{name}' is defined in the app's file.", place=name.place, hint=hint)


def declaration(name: str, schema: Schema, *, history: bool = False) -> str:
    """The statement that declares a table of these columns; with any period for its old rows if it has them."""
    kept = " WITH ('history' = '1s')" if history and without_identity(schema).key else ""
    return f"CREATE TABLE {quoted(name)} ({', '.join(_parts(without_identity(schema)))}){kept}"


def _whole_declaration(spec: TableSpec) -> str:
    """The same with constraints, indexes and backend."""
    parts = [*_parts(spec.schema)]
    parts += [f"CONSTRAINT {quoted(check.name)} CHECK ({check.text})" for check in spec.schema.checks]
    parts += [f"INDEX ({', '.join(map(quoted, index))})" for index in spec.indexes]
    return f"CREATE TABLE {quoted(spec.name)} ({', '.join(parts)}) WITH ('backend' = '{spec.backend}')"


def _parts(schema: Schema) -> list[str]:
    key = [quoted(k) for k in schema.key]
    return [_column(c) for c in schema] + ([f"PRIMARY KEY ({', '.join(key)})"] if key else [])


def _column(column: Column) -> str:
    default = f" DEFAULT {column.default}" if column.default is not None else ""
    return f"{quoted(column.name)} {type_name(column.type)}{'' if column.nullable else ' NOT NULL'}{default}"


def quoted(name: str) -> str:
    """A name in backticks."""
    return "`" + name.replace("`", "``") + "`"
