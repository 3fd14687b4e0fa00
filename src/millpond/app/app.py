"""The class App: a SQL file with its state directory, run and queried from Python or by the command line."""

from __future__ import annotations

import os
import tempfile
import threading
import time
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, TextIO, TypeVar

import pyarrow as pa
from pyspark.sql import SparkSession

from millpond.app.added_statements import Added, added_to, keep, settle
from millpond.app.apply import apply, extend, restart
from millpond.app.dead_letter_replay import Choice, Replayed, replay
from millpond.app.drain import drain
from millpond.app.edit_report import difference_json
from millpond.app.feeds import RecordFeed, hooked, receivers_of
from millpond.app.planning import QUERY, AppText, plan_app
from millpond.app.public_table import shown
from millpond.app.queries import Cancellation, Queries, Result, bind_against, explain_beside, the_query
from millpond.app.running_plan import Running
from millpond.app.show import ask
from millpond.app.start import Replan
from millpond.app.table_definitions import DEFINITIONS, Definitions, portions
from millpond.app.user_transaction import TRIES, AppTransaction, committed, transacted
from millpond.contracts import feeder
from millpond.contracts.server import Server
from millpond.contracts.source import Found, Hook
from millpond.contracts.table import Table
from millpond.engine.ledger import forget_table
from millpond.engine.progress import AppProgress
from millpond.engine.spark.session import require_classic
from millpond.engine.spark.spark_errors import coded
from millpond.engine.state_directory import remove_temporary, state_of
from millpond.errors import (
    FlowError,
    MillpondError,
    RunError,
    SqlError,
    TableError,
    did_you_mean,
)
from millpond.plan.model import Plan
from millpond.registry import find_server
from millpond.sql.parser import parse_script
from millpond.sql.statements import Describe, Explain, Show, Statement
from millpond.units import seconds_of

CHECK_S = 0.05

T = TypeVar("T")


class App:
    """`App("app.sql")` for a file, `App(sql="...")` for text, `App(spark=session)` to use an existing session, or one
    that a function returns when it is needed. Without `state`, a text has a temporary state directory, which `stop`
    removes. Spark is started only when needed. `http` is the address of the page and the HTTP API, unless the setting
    `http` is given: HOST:PORT, `auto` or `off`. `clock` returns the time of commits, in seconds since the epoch, for
    tests.

    Raises InputError, with all its problems, for a file that `check` would reject."""

    def __init__(
        self,
        file: str | Path | None = None,
        *,
        sql: str | None = None,
        state: str | Path | None = None,
        variables: Mapping[str, str] | None = None,
        spark: SparkSession | Callable[[], SparkSession] | None = None,
        settings: Mapping[str, str] | None = None,
        accept: bool = False,
        output: TextIO | None = None,
        http: str = "off",
        clock: Callable[[], float] | None = None,
    ) -> None:
        self._given = dict(variables or {})
        self._settings = _with_master(settings, spark)
        self._place = (file, state)
        self._text = AppText.of(file, sql)
        self._temporary: Path | None = None
        self._replan = self._planner(self._text, self._given)
        self.plan = self._replan({})
        self._state_path = _state_path(file, state, self.plan)
        self._session, self._accept, self._output = spark, accept, output
        self._lock = threading.RLock()
        self._running: Running | None = None
        self._queries: Queries | None = None
        self._failures: tuple[MillpondError, ...] = ()
        self._http = http
        self._clock = clock or time.time
        self._server: Server | None = None
        self._stop_asked = threading.Event()
        self._stopped = False
        # The progress of an app that is not running: before the first start, and after the last stop.
        self._idle = AppProgress(self.plan.name, "starting", 0.0)

    def _planned_with(self, running: Running, more: str) -> Plan:
        """The plan of the app with more statements at its end, and the columns that were discovered while it runs."""
        found = {s.id: Found(s.columns) for s in running.plan.sources if s.columns is not None}
        added = added_to(running.context.state.path)
        text = self._text.followed_by(more)
        return text.plan(variables=self._given, settings=self._settings, found=found, added=added)

    def _planner(self, text: AppText, variables: Mapping[str, str], added: Sequence[Added] | None = None) -> Replan:
        """How a text is planned, with what was added to it: these statements, or those of the state directory."""
        make = partial(text.plan, variables=variables, settings=self._settings)
        return partial(plan_app, make, lambda plan: _state_path(*self._place, plan) or self._temporary, added)

    @property
    def _variables(self) -> dict[str, str]:
        return {**os.environ, **self._given}

    # Running

    def run_once(self) -> None:
        """Load tables, run every flow until it has processed what its source contained at the start, and stop. Failures
        are raised after the rest has run."""
        with coded():
            running = self._open(again=True)
            try:
                running.start_up(drain=True)
            finally:
                self._halt()
        self._raise_failures()

    def start(self) -> None:
        """Start the app in the background; returns when every flow has caught up."""
        with coded():
            running = self._open(again=True)
            running.start_up(drain=False)
            if not running.context.stopping.is_set():
                running.go_on()

    def wait(self) -> None:
        """Block until the app is stopped, a stop is requested, or everything in it has failed."""
        while (running := self._running) is not None and running.state == "running" and not running.ended:
            if self._stop_asked.wait(CHECK_S):
                return

    @property
    def is_ready(self) -> bool:
        """Whether tables are loaded and flows run; callable from any thread."""
        running = self._running
        return running is not None and running.ready

    def wait_ready(self, timeout: str | float = "60s") -> None:
        """Block until tables are loaded and flows run; MP703 after the timeout."""
        deadline = time.monotonic() + seconds_of(timeout)
        while not self._open().ready:
            self._raise_failures()
            if time.monotonic() > deadline:
                raise FlowError(
                    "MP703", f"The app was not ready in {timeout}.", hint="app.stats() shows what it is waiting for."
                )
            time.sleep(CHECK_S)

    def stop(self) -> None:
        """Finish the current batches, stop, and release the state directory; does nothing if the app is not running.
        Queries and changes raise MP710 afterwards, until the app is started again."""
        self._halt()
        self._stopped = True
        if self._temporary is not None:
            remove_temporary(self._temporary)
            self._temporary = None

    def _halt(self) -> None:
        """Stop, but keep a temporary state directory, so that the tables can be queried after `run_once`."""
        running = self._running
        if running is None:
            return
        with coded():
            running.stop()
        # Not while the lock is held: answers that wait for it would open the app again.
        self._end_serving()
        with self._lock, coded():
            if self._running is running:
                self._failures = running.failures
                # With the columns that were discovered while it ran.
                self.plan = running.plan
                self._idle = replace(running.progress(), state="stopped")
                self._running, self._queries = None, None
                running.close(stop_spark=self._session is None)
                self._stop_asked.clear()

    def request_stop(self) -> None:
        """Request a stop from another thread, at any time, also before the start: no further flow is started, and
        `run_once` and `wait` return soon."""
        self._stop_asked.set()
        if (running := self._running) is not None:
            running.context.stopping.set()

    def __enter__(self) -> App:
        self.start()
        return self

    def __exit__(self, *error: object) -> None:
        self.stop()

    @property
    def failures(self) -> tuple[MillpondError, ...]:
        """The failures, in the order of the plan."""
        return self._running.failures if self._running is not None else self._failures

    def _raise_failures(self) -> None:
        if self.failures:
            problems = [p for failure in self.failures for p in failure.problems]
            raise type(self.failures[0]).of(problems)

    # Queries and changes

    def progress(self) -> AppProgress:
        """The current state and statistics; callable from any thread."""
        running = self._running
        return replace(running.progress(), url=self.http_url) if running is not None else self._idle

    @property
    def state(self) -> str:
        """starting | loading | catching up | running | stopping | stopped | failed."""
        running = self._running
        if running is None:
            return self._idle.state
        return "failed" if running.context.supervisor.failure is not None else running.state

    def stats(self) -> dict[str, Any]:
        """The same as `progress`, as dicts and lists."""
        return self.progress().as_json()

    def feed(self, uri: str) -> RecordFeed:
        """Send records to a memory:// source from Python: `app.feed("memory://ticks").send(rows)`."""
        flows = self._open().flows
        receivers_of(flows, uri)
        return RecordFeed(uri, flows)

    def hook(self, name: str) -> tuple[Hook, list[feeder.Feeder]] | None:
        """The receiver of `POST /hooks/<name>`; None if no statement reads it."""
        return hooked(self._open().flows, name)

    def restart(self, flow: str) -> None:
        """Restart a failed flow, by its name, from its last committed batch; raises its error if it fails again."""
        restart(self._open(), flow)

    def apply(
        self,
        file: str | Path | None = None,
        *,
        sql: str | None = None,
        variables: Mapping[str, str] | None = None,
        accept: bool = False,
    ) -> dict[str, object]:
        """Apply an edited file, or text, to the running app: flows whose statements are the same continue; what is new,
        changed or failed is started as at a start with that file; what was removed is dropped. Raises InputError for
        what `check` would reject, and MP806 if rows would be lost, unless `accept`; then nothing is changed. Without
        file and text, the app's own file is read again. `variables` are added to those of the app. Returns what
        changed."""
        named = file if file is not None or sql is not None else self._place[0]
        own = self._text if sql is None else replace(self._text, text=sql, file="<text>")
        text = AppText.of(named, sql) if named is not None else own
        return self.apply_text(text, variables or {}, accept=accept)

    def apply_text(self, text: AppText, variables: Mapping[str, str], *, accept: bool) -> dict[str, object]:
        """The same, for a text that was read elsewhere."""
        running, given = self._open(), {**self._given, **variables}
        replan = self._planner(text, given)
        plan = replan(running.start.found)
        try:
            found = apply(running, plan, replan, accept=accept)
        finally:
            with self._lock:
                if self._follow(running) and running.replan is replan:
                    self._replan, self._given, self._text = replan, given, text
                    settle(running.context.state.path, self._text.text, self._variables)
        return difference_json(found, running.context.state.path)

    def _follow(self, running: Running) -> bool:
        """Take over the plan of the running app; returns whether it has changed."""
        other = running.plan is not self.plan and self._running is running
        if other:
            self.plan, self._queries = running.plan, None
        return other

    def _extend(self, running: Running, added: tuple[Added, ...]) -> None:
        """Continue with other statements added to the file; if that fails, without them."""
        path = running.context.state.path
        before, plan = added_to(path), self._planner(self._text, self._given, added)(running.start.found)
        keep(path, added)
        for name in running.context.store.names():
            if (table := plan.table(name)) is not None and table.replaces and self.plan.table(name) is None:
                forget_table(running.context.store, name)
        try:
            extend(running, plan, self._replan, accept=self._accept)
        finally:
            with self._lock:
                self._follow(running)
                if running.plan is not plan:
                    keep(path, before)
                else:
                    settle(running.context.state.path, self._text.text, self._variables)

    def drain(self, timeout: str | float = "60s") -> None:
        """Wait until everything that was sent to memory:// sources before this call, and that the files of streams and
        watched tables contained, is in the tables, views and sinks. Records that are sent meanwhile are not waited for,
        nor are events that wait for a joined row, open windows and Kafka topics. MP712 after the timeout; raises the
        error of a flow as soon as one fails."""
        drain(self._open(), seconds_of(timeout))

    def replay_dead_letters(self, where: str | None = None, *, repair: str | None = None) -> Replayed:
        """Replay dead letters, all or those for which a condition is true, through the statements that rejected them;
        those that succeed are removed from `dead_letters` in the same commit. `repair` is an expression for the
        corrected value of `raw`, such as "replace(CAST(raw AS STRING), 'many', '5')"."""
        running = self._open()
        choice = Choice(where)
        if repair is not None:
            # The condition may not be true any more for a letter that was repaired.
            choice = choice.now(running.context.store.table("dead_letters"))
            chosen = f" WHERE {where}" if where is not None else ""
            self.execute(f"UPDATE dead_letters SET raw = CAST({repair} AS BINARY){chosen}")
        return replay(running.context, running.flows, choice)

    def tables(self) -> tuple[str, ...]:
        """The names of the tables."""
        store = self._open().context.store
        return tuple(n for n in store.names() if not store.table(n).spec.hidden)

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and name.lower() in {n.lower() for n in self.tables()}

    def table(self, name: str) -> Table:
        """A table by name, in upper or lower case."""
        store = self._open().context.store
        try:
            return shown(store.table(name))
        except KeyError:
            message = f"There is no table '{name}'."
            raise TableError("MP201", message, hint=did_you_mean(name, self.tables())) from None

    def query(self, sql: str, parameters: Sequence[Any] | None = None) -> Result:
        """Rows of a SELECT over tables, or of SHOW, DESCRIBE, EXPLAIN."""
        return Result(self.answer(sql, parameters or ()))

    def answer(
        self,
        sql: str,
        parameters: Sequence[Any] = (),
        *,
        limit: int | None = None,
        cancellation: Cancellation | None = None,
    ) -> pa.Table:
        """The same as Arrow: at most `limit` rows, and MP714 when it is cancelled."""
        running = self._open()
        store = running.context.store
        asked = parse_script(sql, file=QUERY, variables=self._variables).statements
        if len(asked) == 1 and isinstance(asked[0], Show | Describe):
            return ask(asked[0], self.plan, store, running.progress())
        running.require_made(asked)
        if len(asked) == 1 and isinstance(asked[0], Explain):
            return explain_beside(asked[0], running.plan, store, partial(self._planned_with, running))
        shot = the_query(bind_against(store, sql, self.plan.settings, variables=self._variables))
        assert shot.query is not None
        with self._lock:
            if self._queries is None:
                self._queries = Queries(running.context.store, running.views, running.context.limits)
            queries = self._queries
        return queries.answer(shot.query, parameters, limit=limit, cancellation=cancellation)

    def execute(self, sql: str) -> int:
        """Run statements that change tables, each in its own transaction (BEGIN ... COMMIT in one); returns the number
        of changed rows."""
        script = parse_script(sql, file="<sql>", variables=self._variables)
        if script.problems:
            raise SqlError.of(script.problems)
        if any(isinstance(statement, DEFINITIONS) for statement in script.statements):
            return sum(self._execute_some(together) for together in portions(script.statements))
        with self._transaction(script.statements) as tx:
            return tx.execute(sql)

    def _execute_some(self, statements: Sequence[Statement]) -> int:
        """Run a part of a text that contains definitions."""
        first = statements[0]
        if not isinstance(first, DEFINITIONS):
            with self._transaction(statements) as tx:
                return tx.execute(";\n".join(statement.code for statement in statements))
        running = self._open()
        store, added = running.context.store, added_to(running.context.state.path)
        bind = partial(bind_against, store, settings=self.plan.settings, variables=self._variables)
        to_plan = Definitions(store, self.plan, bind, added).run(first)
        if to_plan is not None:
            self._extend(running, to_plan)
        return 0

    def transaction(self) -> AbstractContextManager[AppTransaction]:
        """Several changes that become visible together, or not at all if the block raises. MP405 at the end if another
        transaction changed the same rows first, or rows that a view over them reads: then retry, or use `transact`,
        which does so."""
        return self._transaction(())

    @contextmanager
    def _transaction(self, known: Sequence[Statement]) -> Iterator[AppTransaction]:
        """A transaction. If all statements are known in advance, it locks their tables from the start and cannot
        conflict."""
        running = self._open()
        context, variables = running.context, self._variables
        bind = partial(bind_against, context.store, settings=self.plan.settings, variables=variables)
        with committed(context, running.own_views(), bind, variables, known) as tx:
            yield tx

    def transact(self, change: Callable[[AppTransaction], T], *, tries: int = TRIES) -> T:
        """Run `change(tx)` in a transaction, commit, and return its result. If another transaction changed the same
        rows first (MP405), it is run again after an increasing pause, at most `tries` times; so it must not have side
        effects outside of the transaction that may not happen twice."""
        return transacted(self.transaction, change, tries)

    def __dir__(self) -> list[str]:
        return [name for name in super().__dir__() if not name.startswith("_")]

    def _open(self, *, again: bool = False) -> Running:
        with self._lock:
            if self._stopped and not again:
                hint = "Use it before app.stop(), or start it again with app.start() or app.run_once()."
                raise RunError("MP710", "The app was stopped.", hint=hint)
            if self._running is None:
                self._stopped = False
                state = self._state_path or self._temporary_state()
                running = Running(self.plan, state, self._session, self._output, self._replan, self._clock)
                # Assigned before it is ready, so that its progress is visible and queries can wait for it.
                self._running = running
                try:
                    self._serve(running)
                    running.prepare(accept=self._accept)
                    settle(running.context.state.path, self._text.text, self._variables)
                    if not again:
                        running.fill_views()
                except BaseException:
                    self._running = None
                    self._end_serving()
                    running.close(stop_spark=self._session is None)
                    raise
                if self._stop_asked.is_set():
                    running.context.stopping.set()
            return self._running

    def _temporary_state(self) -> Path:
        if self._temporary is None:
            self._temporary = Path(tempfile.mkdtemp(prefix="millpond-"))
            # Removes the directory of an app that is never stopped.
            weakref.finalize(self, remove_temporary, self._temporary)
        return self._temporary

    def _serve(self, running: Running) -> None:
        """Respond to `millpond query` of the same user, and to HTTP, while the state directory is locked."""
        socket = running.context.state.socket if self._temporary is None else None
        address = self.plan.settings["http"] or self._http
        if socket is None and address == "off" and self.plan.settings["pg"] == "off":
            return
        thread = running.context.supervisor.thread
        server = find_server(App)(self, socket, address, lambda name, work: thread(name, work).start())
        server.start()
        self._server = server

    def _end_serving(self) -> None:
        server, self._server = self._server, None
        if server is not None:
            server.stop()

    @property
    def http_url(self) -> str | None:
        """The address of the page and the HTTP API; None if they are off or the app is not running."""
        server = self._server
        return server.url if server is not None else None


def _with_master(
    settings: Mapping[str, str] | None, spark: SparkSession | Callable[[], SparkSession] | None
) -> Mapping[str, str] | None:
    """The settings, with the master of a session that the user passed: what is checked and planned depends on it."""
    if spark is None or (callable(spark) and not isinstance(spark, SparkSession)):
        return settings
    require_classic(spark)
    return {**(settings or {}), "master": spark.sparkContext.master}


def _state_path(file: str | Path | None, state: str | Path | None, plan: Plan) -> Path | None:
    return state_of(Path(file), state, plan.settings) if file else Path(state) if state else None
