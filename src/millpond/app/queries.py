"""Queries over the tables of a store: planning against the existing tables, evaluation, and `Result`."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from sqlglot import exp

from millpond.app.planning import QUERY, plan_text, without_lines
from millpond.app.show import explained
from millpond.app.table_definitions import declaration, quoted, views_of
from millpond.contracts.evaluator import Limits, TableInput
from millpond.contracts.table import Store, Transaction
from millpond.engine.dead_letters import NAME as DEAD_LETTERS
from millpond.engine.evaluator import Evaluator
from millpond.engine.spark.evaluate import cancellable, tables_of
from millpond.engine.spark.spark_errors import too_far, translate
from millpond.engine.spark.transfer import Views
from millpond.engine.table_history import require_held
from millpond.errors import InputError, RunError, SetupError, SqlError, TableError
from millpond.expressions.parameters import has_nested, with_literals, written_out
from millpond.plan.history import history_name
from millpond.plan.model import OneShot, Plan
from millpond.plan.routing import ways_on_driver
from millpond.relational.compiled import QueryCache
from millpond.settings import Settings
from millpond.sql.statements import Describe, Explain, Select, Show

if TYPE_CHECKING:
    import pandas

# The interval at which a query that waits for another one checks whether it was cancelled.
LOOK_S = 0.05


class Result:
    """The rows of a query, in memory; iterate over it for dicts."""

    def __init__(self, table: pa.Table) -> None:
        self._table = table

    def to_arrow(self) -> pa.Table:
        """The rows as a pyarrow.Table."""
        return self._table

    def to_pandas(self) -> pandas.DataFrame:
        """The rows as a pandas DataFrame, decimals as Decimal, times with their zone; MP309 where pandas is not
        installed."""
        try:
            return self._table.to_pandas()
        except ImportError as error:
            raise SetupError("MP309", "This requires pandas.", hint="Run: pip install 'millpond[pandas]'") from error

    def rows(self) -> list[dict[str, Any]]:
        """The rows as Python dicts, decimals as Decimal, times with their zone."""
        found: list[dict[str, Any]] = self._table.to_pylist()
        return found

    @property
    def columns(self) -> tuple[str, ...]:
        """The names of the columns, in order."""
        return tuple(self._table.column_names)

    def __iter__(self) -> Iterator[dict[str, Any]]:
        return iter(self.rows())

    def __len__(self) -> int:
        return int(self._table.num_rows)

    def __dir__(self) -> list[str]:
        return [name for name in super().__dir__() if not name.startswith("_")]

    def __repr__(self) -> str:
        return f"<Result of {len(self)} rows: {', '.join(self.columns)}>"


def bind_against(
    store: Store,
    sql: str,
    settings: Settings | None = None,
    *,
    without: str = "",
    variables: Mapping[str, str] | None = None,
) -> Plan:
    """The plan of a text whose relations are the tables of a store, except one that it may create; raises for its
    mistakes."""
    declared = declarations(store, (without,))
    plan = without_lines(
        plan_text(declared + sql, file=QUERY, settings=settings, variables=variables), declared.count("\n")
    )
    if plan.errors:
        raise InputError.of(plan.errors)
    return plan


def explain_beside(asked: Explain, app: Plan, store: Store, plan_with: Callable[[str], Plan]) -> pa.Table:
    """Explain a statement as if it were in the app's file, which `plan_with` plans with more statements at its end;
    tables that were created outside of the file are known too. Raises for the mistakes of the statement."""
    others = declarations(store, [*(table.name for table in app.tables), *(view.name for view in app.views)])
    plan = plan_with(others + asked.code)
    shot = plan.one_shots[-1]
    found = without_lines(plan, shot.place.line - 1)
    if found.errors:
        raise InputError.of(found.errors)
    return explained(shot)


def as_stored(shot: OneShot, store: Store) -> OneShot:
    """An EXPLAIN of `bind_against` with its tables as the store has them: backend, options and indexes too."""
    assert shot.explained is not None
    names = {name.lower() for name in store.names()}
    found = shot.explained.tables
    tables = [replace(t, spec=store.table(t.name).spec) if t.name.lower() in names else t for t in found]
    return replace(shot, explained=replace(shot.explained, tables=tuple(tables)))


def declarations(store: Store, without: Iterable[str] = ()) -> str:
    """One line of DDL for each table and view that a user may read, without those in `without`."""
    left_out = {DEAD_LETTERS, *(name.lower() for name in without)}
    tables = [store.table(name) for name in store.names() if name.lower() not in left_out]
    there = {name.lower() for name in store.names()}
    made = [
        declaration(t.name, t.schema, history=history_name(t.name).lower() in there)
        for t in tables
        if not t.spec.hidden
    ]
    views = [v for name, v in views_of(store).items() if name not in left_out]
    made += [f"CREATE VIEW {quoted(v['name'])} AS {v['text']}" for v in views]
    return "".join(f"{text};\n" for text in made)


def the_query(plan: Plan) -> OneShot:
    """The single query of a text; MP101 if there is none, or several."""
    asked = [s for s in plan.one_shots if isinstance(s.statement, Select | Show | Describe | Explain)]
    if len(plan.one_shots) != 1 or not asked or plan.flows:
        hint = "Write one SELECT over tables; to change tables, use the app's file or app.execute."
        raise SqlError("MP101", "This is not a single query over tables.", hint=hint)
    if plan.sources and not isinstance(asked[0].statement, Explain):
        source = plan.sources[0]
        hint = f"Declare it first: CREATE TABLE {source.name} AS SELECT * FROM {source.spec.uri.scheme}://..."
        raise SqlError("MP101", f"A query reads tables, and '{source.spec.shown}' is not one.", hint=hint)
    return plan.one_shots[0]


class Cancellation:
    """Ends a query from another thread: `cancel` may be called at any time, by any thread, more than once."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._reason: str | None = None
        self._stop: Callable[[], None] | None = None

    def cancel(self, reason: str) -> None:
        """Make the query raise MP714 with this message, as soon as possible."""
        with self._lock:
            if self._reason is not None:
                return
            self._reason, stop = reason, self._stop
        if stop is not None:
            stop()

    def require(self) -> None:
        """MP714 if the query was cancelled."""
        if self._reason is not None:
            hint = "Select fewer rows, allow more time, or try again."
            raise RunError("MP714", self._reason, hint=hint)

    @contextmanager
    def stopping(self, stop: Callable[[], None]) -> Iterator[None]:
        """Inside the block, `cancel` calls `stop`, which must end the work that is done there."""
        with self._lock:
            self.require()
            self._stop = stop
        try:
            yield
        finally:
            with self._lock:
                self._stop = None

    @contextmanager
    def holding(self, lock: threading.Lock) -> Iterator[None]:
        """Hold the lock inside the block; a cancelled query does not wait for it."""
        while not lock.acquire(timeout=LOOK_S):
            self.require()
        try:
            self.require()
            yield
        finally:
            lock.release()


class Queries:
    """Evaluates queries: several at a time by Arrow, one by Spark, because those share the names of temporary views."""

    def __init__(self, store: Store, views: Views, limits: Limits) -> None:
        self._store = store
        self._views = views
        self._limits = limits
        self._lock = threading.Lock()

    def answer(
        self,
        query: exp.Query,
        parameters: Sequence[Any] = (),
        *,
        limit: int | None = None,
        cancellation: Cancellation | None = None,
    ) -> pa.Table:
        """The rows, from one version of all tables, at most `limit` of them; MP411 unless there is a parameter for each
        `?`, MP714 if it is cancelled."""
        wanted = sum(1 for _ in query.find_all(exp.Placeholder))
        if wanted != len(parameters):
            message = f"The query has {wanted} parameters, but {len(parameters)} were given."
            raise TableError("MP411", message, hint="Pass one value for each ? in the query, in their order.")
        if has_nested(parameters):
            query, parameters = written_out(query, parameters)
        cancellation = cancellation or Cancellation()
        with self._store.begin() as tx:
            evaluator = Evaluator(self._views, QueryCache(), self._limits)
            require_held(query, tx)
            inputs = {name: self._input(tx, name) for name in tables_of(query)}
            ready = with_literals(query, parameters)
            found = None if ready is None else evaluator.on_driver(ready, inputs)
            if found is not None:
                return found.slice(0, limit)
            if evaluator.is_beyond_spark(query):
                raise too_far(query)
            with cancellation.holding(self._lock), cancellable(self._views.session) as cancel:
                try:
                    with cancellation.stopping(cancel):
                        frame = evaluator.in_spark(query, inputs, parameters)
                        found = (frame if limit is None else frame.limit(limit)).toArrow()
                    cancellation.require()
                    return found
                except Exception as error:
                    cancellation.require()
                    raise translate(error, several=evaluator.cache.several) from error

    def _input(self, tx: Transaction, name: str) -> TableInput:
        table = tx.table(name)
        spec = self._store.table(name).spec
        return TableInput(table, ways_on_driver(None, table.schema.key, spec.indexes), spec.is_volatile)
