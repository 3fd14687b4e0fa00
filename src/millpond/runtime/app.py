"""An app: a SQL file with its state directory, run from Python or the command line."""

from __future__ import annotations

import os
import random
import tempfile
import threading
import time
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import Any, TextIO, TypeVar

from pyspark.sql import SparkSession

from millpond.contracts.source import Found
from millpond.contracts.table import Table
from millpond.errors import (
    ConflictError,
    FlowError,
    InputError,
    MillpondError,
    NotYetError,
    RunError,
    SqlError,
    TableError,
)
from millpond.plan.model import Plan
from millpond.runtime.applying import apply, restart
from millpond.runtime.draining import drain
from millpond.runtime.figures.asking import ask
from millpond.runtime.figures.progress import AppProgress
from millpond.runtime.flows.work import Work
from millpond.runtime.keeping.defining import DEFINITIONS, define, portions
from millpond.runtime.keeping.edit_told import difference_json
from millpond.runtime.keeping.state import remove_temporary, state_of
from millpond.runtime.loading.columns_found import recalled
from millpond.runtime.loading.feeding import Feeder, receivers_of
from millpond.runtime.planning import AppText
from millpond.runtime.queries import Queries, bind_against, explain_beside, the_query
from millpond.runtime.replaying import Choice, Replayed, replay
from millpond.runtime.result import Result
from millpond.runtime.running import Running
from millpond.runtime.shown import shown
from millpond.runtime.socket import QuerySocket
from millpond.runtime.spark.errors import coded
from millpond.runtime.starting import Replan
from millpond.runtime.transaction import AppTransaction, refuse_defined
from millpond.runtime.views.announcing import announce, publish
from millpond.sql.parser import parse_script
from millpond.sql.statements import Describe, Explain, Show, Statement
from millpond.suggest import did_you_mean
from millpond.units import parse_duration

CHECK_S = 0.05
# How often a transaction that conflicts is tried, and the pauses between two tries.
TRIES = 10
PAUSE_S, PAUSE_S_MAX = 0.002, 0.5

T = TypeVar("T")


class App:
    """`App("app.sql")` for a file, `App(sql="...")` for text, `App(spark=session)` to bring a session. Without `state`
    a text has a temporary state directory, gone at `stop`. Work on tables alone starts no Spark.

    Raises InputError, with all its problems, for a file that `check` would refuse."""

    def __init__(
        self,
        file: str | Path | None = None,
        *,
        sql: str | None = None,
        state: str | Path | None = None,
        variables: Mapping[str, str] | None = None,
        spark: SparkSession | None = None,
        settings: Mapping[str, str] | None = None,
        accept: bool = False,
        output: TextIO | None = None,
    ) -> None:
        self._given = dict(variables or {})
        self._settings = settings
        self._place = (file, state)
        self._text = _text(file, sql)
        self._replan = self._planner(self._text, self._given)
        self.plan = self._replan({})
        self._state_path = _state_path(file, state, self.plan)
        self._temporary: Path | None = None
        self._session = spark
        self._accept = accept
        self._output = output
        self._lock = threading.RLock()
        self._running: Running | None = None
        self._queries: Queries | None = None
        self._failures: tuple[MillpondError, ...] = ()
        self._socket: QuerySocket | None = None
        self._stop_asked = threading.Event()
        self._stopped = False
        # What is told while the app is not running: before the first start, and after the last stop.
        self._idle = AppProgress(self.plan.name, "starting", 0.0)

    def _planned_with(self, running: Running, more: str) -> Plan:
        """The plan of the app with more statements at its end, and the columns that were found while it runs."""
        found = {s.id: Found(s.columns) for s in running.plan.sources if s.columns is not None}
        return self._text.followed_by(more).plan(variables=self._given, settings=self._settings, found=found)

    def _planner(self, text: AppText, variables: Mapping[str, str]) -> Replan:
        make = partial(text.plan, variables=variables, settings=self._settings)
        return partial(_plan, make, partial(_state_path, *self._place))

    @property
    def _variables(self) -> dict[str, str]:
        return {**os.environ, **self._given}

    # Running

    def run_once(self) -> None:
        """Load tables, run every flow until it has taken what its source held at the start, and stop. Raises what
        failed, after the rest has run."""
        with coded():
            running = self._open(again=True)
            try:
                running.start_up(drain=True)
            finally:
                self._halt()
        self._raise_failures()

    def start(self) -> None:
        """Start up and go on in the background; returns when every flow has caught up."""
        with coded():
            running = self._open(again=True)
            running.start_up(drain=False)
            if not running.context.stopping.is_set():
                running.go_on()

    def wait(self) -> None:
        """Block until the app is stopped or asked to stop, or until everything in it has failed."""
        while (running := self._running) is not None and running.state == "running" and not running.ended:
            if self._stop_asked.wait(CHECK_S):
                return

    def wait_ready(self, timeout: str | float = "60s") -> None:
        """Block until tables are loaded and flows run; MP703 when that takes longer."""
        deadline = time.monotonic() + _seconds(timeout)
        while not self._open().ready:
            self._raise_failures()
            if time.monotonic() > deadline:
                raise FlowError(
                    "MP703", f"The app was not ready in {timeout}.", hint="See app.stats() for what it waits for."
                )
            time.sleep(CHECK_S)

    def stop(self) -> None:
        """Finish the batches under way, stop, and let go of the state directory; harmless when not running. Asked or
        changed afterwards it raises MP710, until it is started again."""
        self._halt()
        self._stopped = True
        if self._temporary is not None:
            remove_temporary(self._temporary)
            self._temporary = None

    def _halt(self) -> None:
        """Stop, and keep a temporary state directory: what `run_once` made can still be asked."""
        running = self._running
        if running is None:
            return
        with coded():
            running.stop()
        with self._lock, coded():
            if self._running is running:
                self._failures = running.failures
                # With the columns that were found while it ran.
                self.plan = running.plan
                self._idle = replace(running.progress(), state="stopped")
                self._running, self._queries = None, None
                if self._socket is not None:
                    self._socket.stop()
                running.close(stop_spark=self._session is None)
                self._stop_asked.clear()

    def request_stop(self) -> None:
        """Ask for a stop from another thread, at any time, before the start too: flows not begun do not begin,
        and `run_once` and `wait` return soon."""
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
        """What has failed, in the order of the plan."""
        return self._running.failures if self._running is not None else self._failures

    def _raise_failures(self) -> None:
        if self.failures:
            problems = [p for failure in self.failures for p in failure.problems]
            raise type(self.failures[0]).of(problems)

    # Asking and changing

    def progress(self) -> AppProgress:
        """Figures of this moment; callable from any thread."""
        running = self._running
        return running.progress() if running is not None else self._idle

    def stats(self) -> dict[str, object]:
        """The same, as plain data."""
        return self.progress().as_json()

    def feed(self, uri: str) -> Feeder:
        """Where Python hands records to a memory:// source: `app.feed("memory://ticks").send(rows)`."""
        flows = self._open().flows
        receivers_of(flows, uri)
        return Feeder(uri, flows)

    def restart(self, flow: str) -> None:
        """Let a flow that has failed, by its name, go on from its last finished batch; raises its error when it fails
        again."""
        restart(self._open(), flow)

    def apply(
        self,
        file: str | Path | None = None,
        *,
        sql: str | None = None,
        variables: Mapping[str, str] | None = None,
        accept: bool = False,
    ) -> dict[str, object]:
        """Take an edited file, or text, into the running app: flows whose statements are the same go on, what is new,
        changed or has failed is started as at a start with that file, what is gone is dropped. Raises InputError for
        what `check` would reject and MP806 for what would lose rows, unless `accept`; nothing is changed then. Without
        a file or text it is the app's own file again. `variables` are added to those of the app. Returns what has
        changed."""
        named = file if file is not None or sql is not None else self._place[0]
        own = self._text if sql is None else replace(self._text, text=sql, file="<text>")
        text = _text(named, sql) if named is not None else own
        return self._apply(text, variables or {}, accept=accept)

    def _apply(self, text: AppText, variables: Mapping[str, str], *, accept: bool) -> dict[str, object]:
        running, given = self._open(), {**self._given, **variables}
        replan = self._planner(text, given)
        plan = replan(running.start.found)
        try:
            found = apply(running, plan, replan, accept=accept)
        finally:
            with self._lock:
                if running.plan is not self.plan and self._running is running:
                    self.plan, self._queries = running.plan, None
                    if running.replan is replan:
                        self._replan, self._given, self._text = replan, given, text
        return difference_json(found, running.context.state.path)

    def drain(self, timeout: str | float = "60s") -> None:
        """Return when all that was sent to memory:// sources, and all that the files of streams and of watched tables
        held, before this call, is in the tables and views, and in the sinks; others may go on sending. MP712 when that
        takes longer, and what has failed as soon as a flow has. Events that wait for a joined row, windows that are
        open and Kafka topics are not waited for."""
        drain(self._open(), _seconds(timeout))

    def replay_dead_letters(self, where: str | None = None, *, repair: str | None = None) -> Replayed:
        """Send dead letters, all or those that a condition is true for, through the statements that refused them;
        those that go through leave `dead_letters` in the same commit. `repair` is an expression for what `raw` should
        have been, such as "replace(CAST(raw AS STRING), 'many', '5')"."""
        running = self._open()
        if repair is not None:
            chosen = f" WHERE {where}" if where is not None else ""
            self.execute(f"UPDATE dead_letters SET raw = CAST({repair} AS BINARY){chosen}")
        return replay(running.context, running.flows, Choice(where))

    def tables(self) -> tuple[str, ...]:
        """The names of the tables."""
        store = self._open().context.store
        return tuple(n for n in store.names() if not store.table(n).spec.hidden)

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and name.lower() in {n.lower() for n in self.tables()}

    def table(self, name: str) -> Table:
        """A table by name, in any case."""
        store = self._open().context.store
        try:
            return shown(store.table(name))
        except KeyError:
            message = f"There is no table '{name}'."
            raise TableError("MP201", message, hint=did_you_mean(name, self.tables())) from None

    def query(self, sql: str, parameters: Sequence[Any] | None = None) -> Result:
        """Rows of a SELECT over tables, or of SHOW, DESCRIBE, EXPLAIN."""
        running = self._open()
        store = running.context.store
        asked = parse_script(sql, file="<query>", variables=self._variables).statements
        if len(asked) == 1 and isinstance(asked[0], Show | Describe):
            return Result(ask(asked[0], self.plan, store, running.progress()))
        running.require_made(asked)
        if len(asked) == 1 and isinstance(asked[0], Explain):
            return Result(explain_beside(asked[0], running.plan, store, partial(self._planned_with, running)))
        plan = bind_against(store, sql, self.plan.settings, variables=self._variables)
        shot = the_query(plan)
        assert shot.query is not None
        with self._lock:
            if self._queries is None:
                self._queries = Queries(running.context.store, running.views)
        return Result(self._queries.answer(shot.query, parameters or ()))

    def execute(self, sql: str) -> int:
        """Run statements that change tables, each at once (BEGIN ... COMMIT as one); returns the rows changed."""
        script = parse_script(sql, file="<sql>", variables=self._variables)
        if script.problems:
            raise SqlError.of(script.problems)
        if any(isinstance(statement, DEFINITIONS) for statement in script.statements):
            return sum(self._execute_some(together) for together in portions(script.statements))
        with self._transaction(script.statements) as tx:
            return tx.execute(sql)

    def _execute_some(self, statements: Sequence[Statement]) -> int:
        """A portion of a text that has definitions in it."""
        first = statements[0]
        if not isinstance(first, DEFINITIONS):
            with self._transaction(statements) as tx:
                return tx.execute(";\n".join(statement.code for statement in statements))
        store = self._open().context.store
        define(first, store, self.plan, partial(bind_against, store, settings=self.plan.settings))
        return 0

    def transaction(self) -> AbstractContextManager[AppTransaction]:
        """Several changes that become visible together, or not at all when the block raises. MP405 at its end when
        another transaction changed the same rows first, or what a view over them reads: then try it again, or let
        `transact` do so."""
        return self._transaction(())

    @contextmanager
    def _transaction(self, known: Sequence[Statement]) -> Iterator[AppTransaction]:
        """A transaction; one whose statements are all known holds their tables from the start and never conflicts."""
        running = self._open()
        context = running.context
        views = running.own_views()
        try:
            locks = context.written_by(known)
            with context.writers.name() as writer, context.store.begin(locks=locks) as tx:
                work = Work(context, tx, views)
                bind = partial(bind_against, context.store, settings=self.plan.settings, variables=self._variables)
                user = AppTransaction(tx, work, bind, self._variables)
                yield user
                refuse_defined(tx, self.plan, kept=work.refreshed)
                work.hold_views()
                work.follow(tx.changed())
                work.refresh()
                told = announce(work, writer)
                tx.commit()
                publish(context, told)
        finally:
            views.drop()

    def transact(self, change: Callable[[AppTransaction], T], *, tries: int = TRIES) -> T:
        """Run `change(tx)` in a transaction, commit, and return what it returned. When another transaction changed the
        same rows first (MP405) it is run again, after a pause that grows, at most `tries` times; so it should do
        nothing beside its transaction that must not happen twice."""
        for attempt in range(1, tries):
            try:
                return self._transacted(change)
            except ConflictError:
                time.sleep(random.uniform(0.5, 1) * min(PAUSE_S * 2**attempt, PAUSE_S_MAX))
        return self._transacted(change)

    def _transacted(self, change: Callable[[AppTransaction], T]) -> T:
        with self.transaction() as tx:
            return change(tx)

    def __dir__(self) -> list[str]:
        return [name for name in super().__dir__() if not name.startswith("_")]

    def _open(self, *, again: bool = False) -> Running:
        with self._lock:
            if self._stopped and not again:
                hint = "Use it before app.stop(), or start it again: app.start(), app.run_once()."
                raise RunError("MP710", "The app was stopped.", hint=hint)
            if self._running is None:
                self._stopped = False
                state = self._state_path or self._temporary_state()
                running = Running(self.plan, state, self._session, self._output, self._replan)
                # Known before it is ready, so that its progress can be seen and queries can wait for it.
                self._running = running
                try:
                    self._listen(running)
                    running.prepare(accept=self._accept)
                except BaseException:
                    self._running = None
                    if self._socket is not None:
                        self._socket.stop()
                    running.close(stop_spark=self._session is None)
                    raise
                if self._stop_asked.is_set():
                    running.context.stopping.set()
            return self._running

    def _temporary_state(self) -> Path:
        if self._temporary is None:
            self._temporary = Path(tempfile.mkdtemp(prefix="millpond-"))
            # For an app that nobody stops.
            weakref.finalize(self, remove_temporary, self._temporary)
        return self._temporary

    def _listen(self, running: Running) -> None:
        """Answer `millpond query` of the same user for as long as the state directory is held."""
        folder = running.context.state
        if self._temporary is None:
            thread = running.context.supervisor.thread
            self._socket = QuerySocket(
                folder.socket,
                lambda sql: self.query(sql).to_arrow(),
                self._replay,
                lambda name, work: thread(name, work).start(),
                others={"restart": self._restart_asked, "apply": self._apply_asked},
            )
            self._socket.start()

    def _replay(self, where: str | None, repair: str | None) -> dict[str, object]:
        return asdict(self.replay_dead_letters(where, repair=repair))

    def _restart_asked(self, asked: Mapping[str, Any]) -> dict[str, object]:
        self.restart(asked["flow"])
        return {"flows": self._flow_states()}

    def _apply_asked(self, asked: Mapping[str, Any]) -> dict[str, object]:
        text = AppText(asked["text"], asked["file"], asked["name"], Path(asked["base"]))
        changes = self._apply(text, asked["variables"], accept=asked["accept"])
        return {"changes": changes, "flows": self._flow_states()}

    def _flow_states(self) -> dict[str, str]:
        return {flow.name: flow.state for flow in self.progress().flows}


def _text(file: str | Path | None, sql: str | None) -> AppText:
    if file is not None and sql is not None:
        raise SqlError("MP310", "An app is a file or a text, not both.", hint="Give one of file and sql.")
    return AppText.of_file(Path(file)) if file is not None else AppText(sql or "")


def _seconds(timeout: str | float) -> float:
    return parse_duration(timeout) / 1_000_000 if isinstance(timeout, str) else timeout


def _state_path(file: str | Path | None, state: str | Path | None, plan: Plan) -> Path | None:
    return state_of(Path(file), state, plan.settings) if file else Path(state) if state else None


def _plan(make: Callable[..., Plan], state_path: Callable[[Plan], Path | None], found: Mapping[str, Found]) -> Plan:
    """The plan with what is known of the columns of its sources; raises all that is wrong with it."""
    plan = make(found=found)
    path = state_path(plan)
    before = recalled(path, plan) if path is not None else {}
    if before.keys() - found.keys():
        plan = make(found={**before, **found})
    if plan.errors:
        only_later = all(problem.code == "MP901" for problem in plan.errors)
        raise (NotYetError if only_later else InputError).of(plan.errors)
    return plan
