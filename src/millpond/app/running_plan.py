"""A running plan: creates and loads tables, runs statements, lets flows catch up and keeps them running."""

from __future__ import annotations

import itertools
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TextIO

import pyarrow as pa
from pyspark.sql import SparkSession
from sqlglot import exp

from millpond.app.edits import EditKind, difference
from millpond.app.one_shots import OneShots
from millpond.app.open_sinks import end_sinks, open_sinks, recover_sinks
from millpond.app.poller import Poller
from millpond.app.prepare_tables import Preparation
from millpond.app.show import ask
from millpond.app.start import Replan, Start
from millpond.app.statistics import progress_of, remember, with_last_known
from millpond.app.user_transaction import refuse_defined
from millpond.contracts.evaluator import Engine
from millpond.contracts.table import Ending, Store, Transaction
from millpond.engine.app_context import Context
from millpond.engine.flow import Flow
from millpond.engine.joined_streams import relay_sinks
from millpond.engine.ledger import IDENTITY_ENTRY, finish_edit
from millpond.engine.progress import FAILED, RETRYING, RUNNING, WAITING, AppProgress
from millpond.engine.spark.evaluate import spark_fallback
from millpond.engine.spark.java import CONNECTORS, session_conf
from millpond.engine.spark.session import adopt_session, build_session, end_session
from millpond.engine.spark.spark_errors import translate
from millpond.engine.spark.transfer import Exchange, Views
from millpond.engine.state_directory import identity_of, open_state
from millpond.engine.supervision import Supervisor
from millpond.engine.table_changes import announce, publish
from millpond.engine.work import Work
from millpond.errors import MillpondError, RunError, TableError
from millpond.plan.model import Plan
from millpond.plan.statement_routes import routes
from millpond.registry import find
from millpond.sql.statements import Select, Statement
from millpond.tables.delta.backend import FOLDER as DELTA
from millpond.tables.store import open_store

LOOK_S = 0.01
# The interval of retries of what could not start; missing sources are polled at their own intervals.
ROUND_S = 0.1


class Running:
    """Locks the state directory from construction until `close`. `start_up` and `go_on` are called from one thread;
    `stop`, `progress` and queries from any."""

    def __init__(
        self,
        plan: Plan,
        state: Path,
        session: SparkSession | Callable[[], SparkSession] | None,
        output: TextIO | None,
        replan: Replan,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.state = "starting"
        # An app may be opened only to query or change its tables.
        self._begun = False
        self._started_at = time.monotonic()
        self._session: SparkSession | None = None
        # Returns the session that the user passed, until it is used for the first time.
        self._brought = partial(_itself, session) if isinstance(session, SparkSession) else session
        self._is_brought = session is not None
        self._session_lock = threading.Lock()
        self._spark_starter: threading.Thread | None = None
        folder = open_state(state, plan.name)
        try:
            if plan.settings["storage"] is not None:
                folder.use_storage(Path(plan.settings["storage"]))
                # Tables in Delta are read by executors too.
                folder.share(folder.store, [DELTA])
            store = open_store(folder.store, fallback=spark_fallback(self.spark), clock=clock)
            folder.begin()
            finish_edit(store)
            _copy_identity(store, folder.path)
        except BaseException:
            folder.close()
            raise
        self.context = Context(
            plan,
            store,
            folder,
            Exchange(folder.exchange),
            self.spark,
            table_states=store.states,
            supervisor=Supervisor(self._end),
            now_us=lambda: int(clock() * 1_000_000),
        )
        store.on_failure = self.context.supervisor.report
        self.context.notices.extend(store.problems)
        store.before_commit = self._follow_user
        store.followers = lambda name: [view.name for view in self.context.views_of({name})]
        self.views = Views(self.spark, self.context.exchange, "mp_app")
        self._one_shots = OneShots(self.context, self.views, self._answer)
        self.start = Start(self.context, self._one_shots, self.views, replan, self.own_views)
        self.flows, self.loaders = self.start.flows, self.start.loaders
        self._output = output or sys.stdout
        self._poller: Poller | None = None
        self._prepared = False
        self._starter: threading.Thread | None = None
        # Locked while flows are started or replaced.
        self._rounds = threading.RLock()
        self._rounds_ended = 0
        # Whether a caller waits for the next round, and the error of that round.
        self._is_waited_for = False
        self._failure: MillpondError | None = None
        self._numbers = itertools.count()

    @property
    def plan(self) -> Plan:
        """The plan, with the columns that were discovered while it ran."""
        return self.context.plan

    def flow(self, id_: str) -> Flow | None:
        """The flow with an id; a new object after it was restarted."""
        return next((flow for flow in self.flows if flow.plan.id == id_), None)

    def spark(self) -> SparkSession:
        """The session, started at the first call."""
        with self._session_lock:
            if self._brought is not None:
                self._session = adopt_session(self._brought(), self.context.plan.settings["storage"])
                self._brought = None
            elif self._session is None:
                settings = self.context.plan.settings
                self._session = build_session(
                    master=settings["master"],
                    ui=settings["spark.ui"],
                    time_zone=settings["time.zone"],
                    log_file=self.context.state.spark_log,
                    files=self.context.state.spark_files,
                    extra={**session_conf(self.context.plan), **settings.starting("spark.conf.")},
                )
            self.context.supervisor.watch_java()
            return self._session

    def start_spark(self) -> None:
        """Start Spark in the background, unless the user passed a session, so that the first use waits less for it. If
        it does not start, the app ends."""
        if not self._is_brought and self._session is None and self._spark_starter is None:
            self._spark_starter = self.context.supervisor.thread("spark", self._start_spark)
            self._spark_starter.start()

    def _start_spark(self) -> None:
        if not self.context.stopping.is_set():
            self.spark()

    @property
    def replan(self) -> Replan:
        """The function that plans again when the columns of a source are discovered."""
        return self.start.replan

    @property
    def has_own_session(self) -> bool:
        """Whether Spark was started by this app."""
        return self._session is not None and not self._is_brought

    def own_views(self) -> Views:
        """Temporary views for one caller, so that transactions of several threads do not interfere."""
        return Views(self.spark, self.context.exchange, f"mp_tx_{next(self._numbers)}")

    def require_made(self, statements: Sequence[Statement]) -> None:
        """MP703 for a query over a table that cannot be created yet."""
        named = {t.name.lower() for s in statements if isinstance(s, Select) for t in s.query.find_all(exp.Table)}
        for name in sorted(named & self.context.held):
            hint = "It depends on a source that is empty or missing; SHOW TABLES shows its state."
            raise TableError("MP703", f"Table '{name}' does not exist yet.", hint=hint)

    def prepare(self, *, accept: bool) -> None:
        """Create the tables and open the sinks; called once."""
        if self._prepared:
            return
        self.context.accept = accept
        Preparation(self.context).prepare()
        self._open_sinks()
        recover_sinks(self.context.store, self.context.sinks)
        self._prepared = True

    def start_up(self, *, drain: bool) -> None:
        """Load tables, run one-shot statements, let flows catch up one after another, then run the late statements.
        With `drain`, wait for what depends on a missing source, as long as that source is polled."""
        self.state, self._begun = "loading", True
        if _needs_spark(self.plan):
            self.start_spark()
        self.start.load()
        if _needs_spark(self.plan):
            # The columns of catalogs are known now.
            self.start_spark()
        self.state = "catching up"
        self.start.catch_up(drain=drain)
        while drain and self.start.is_looking and not self.context.stopping.wait(ROUND_S):
            self._round(drain=True)
        if drain:
            self.start.end_waiting()
            self._round(drain=True)
        for flow in self.flows if drain else ():
            flow.wait_out()
        self.start.finish()

    def _round(self, *, drain: bool) -> None:
        self.start.load()
        self.start.catch_up(drain=drain)

    def _follow_user(self, tx: Transaction) -> Ending | None:
        """Before the commit of a user's change to a table: refresh views and emit CHANGES in the same commit; MP214 for
        a table defined by a query."""
        if self._prepared:
            refuse_defined(tx, self.plan)
        changed = set(tx.changed())
        touched = {n.lower() for n in changed} | {v.name.lower() for v in self.context.views_of(changed)}
        announced = {c.table.lower() for c in self.plan.changes} if self._prepared else set()
        if len(touched) == len(changed) and not announced & touched:
            return None
        views = self.own_views()
        try:
            work = Work(self.context, tx, views)
            work.hold_views()
            work.follow(sorted(changed))
            work.refresh()
            return self._emit_user_changes(work) if announced & touched else None
        finally:
            views.drop()

    def _emit_user_changes(self, work: Work) -> Ending:
        writer = self.context.writers.take()
        try:
            staged = announce(work, writer)
        except BaseException:
            self.context.writers.give_back(writer)
            raise

        def end(done: bool) -> None:
            try:
                publish(self.context, staged if done else [])
            finally:
                self.context.writers.give_back(writer)

        return end

    def go_on(self) -> None:
        """Run all flows that have caught up concurrently from now on; the others when they can. Spark runs from now on
        too: a row that makes an expression fail is evaluated again by Spark, without waiting until it has started."""
        self.state = "running"
        if self.flows:
            self.start_spark()
        remember(self.context.store, self.progress(), [flow.commits.use for flow in self.flows])
        self._poller = Poller(self.flows, self.loaders, self.start.shared, self.context.supervisor)
        for flow in self.start.started():
            flow.start()
        self._poller.start()
        if self.start.is_pending:
            self._begin_rounds()

    def _begin_rounds(self) -> None:
        with self._rounds:
            if self._starter is None:
                self._starter = self.context.supervisor.thread("starter", self._bring_up)
                self._starter.start()

    def _bring_up(self) -> None:
        """Run in a thread: start what could not be started at first, or replaced something else."""
        while not self.context.stopping.wait(ROUND_S):
            with self._rounds:
                self._bring_up_some()
                self._is_waited_for = False
                self._rounds_ended += 1
                if self._failure is not None or not self.start.is_pending:
                    self._starter = None
                    return

    def _bring_up_some(self) -> None:
        """One round of starts. A failing one-shot statement ends the app, unless a caller waits for its error."""
        try:
            self._round(drain=False)
            if self.context.stopping.is_set():
                return
            for flow in self.start.started():
                flow.start()
            self.start.finish()
        except Exception as error:
            if not self._is_waited_for:
                raise
            self._failure = translate(error)

    @contextmanager
    def between_rounds(self) -> Iterator[None]:
        """Inside, no other thread starts a flow or polls a source. MP713 unless the app is running."""
        with self._rounds:
            if self.state != "running" or self._poller is None:
                hint = "Try again when it is running; start a stopped app with 'millpond run'."
                raise RunError("MP713", f"The app is {self.state}.", hint=hint)
            with self._poller.paused():
                yield

    def bring_up(self, limit_s: float) -> None:
        """Start what is pending: returns when everything was tried, or after this time, and continues in the
        background. Raises the error of a one-shot statement."""
        with self._rounds:
            self._failure, self._is_waited_for = None, True
            before = self._rounds_ended
            self._begin_rounds()
        until = time.monotonic() + limit_s
        while self._rounds_ended == before and time.monotonic() < until and not self.context.stopping.wait(LOOK_S):
            pass
        if self._failure is not None:
            raise self._failure

    def switch(self, plan: Plan, replan: Replan, *, accept: bool) -> None:
        """Create the tables and open the sinks of another plan, while flows are paused. On an error, the previous plan
        is restored and the error raised."""
        context, before = self.context, self.plan
        changes = difference(plan, context.store).tables
        try:
            context.plan, context.accept = plan, accept
            for table in changes:
                if table.change is not EditKind.KEPT:
                    context.table_states.pop(table.name.lower(), None)
            Preparation(context).prepare()
        except Exception as error:
            context.plan, context.accept = before, True
            Preparation(context).prepare()
            raise translate(error) from error
        self._open_sinks(before)
        self._one_shots.forget_others(plan)
        kept = {table.name.lower() for table in changes if table.change is EditKind.KEPT}
        self.start.switch(replan, kept)

    def _open_sinks(self, before: Plan | None = None) -> None:
        """Open the sinks of the plan; those that the previous plan had with the same options stay open."""
        same = {sink.id: sink.spec for sink in before.sinks} if before is not None else {}
        new = tuple(sink for sink in self.plan.sinks if same.get(sink.id) != sink.spec)
        opened = open_sinks(new, self.context, self._output, json=self.plan.settings["json"])
        self.context.sinks.update(opened)
        self.context.sinks.update(relay_sinks(self.context))

    def _end(self, failure: MillpondError) -> None:
        """Called by the supervisor for a failure that ends the app."""
        for flow in self.flows:
            if flow.state in (RUNNING, WAITING, RETRYING):
                flow.fail(type(failure).of(failure.problems))
        self.context.stopping.set()

    @property
    def failures(self) -> tuple[MillpondError, ...]:
        """All failures; one that ended the whole app is listed once, not for every flow."""
        ended = self.context.supervisor.failure
        if ended is None:
            return (*self.start.failures, *((self._failure,) if self._failure is not None else ()))
        return (*(e for e in self.start.failures if e.problems[0].message != ended.problems[0].message), ended)

    @property
    def ended(self) -> bool:
        """Whether nothing is running any more, or a failure ended the app."""
        if self.context.supervisor.failure is not None or any(flow.stops_app for flow in self.flows):
            return True
        watched = any(loader.plan.watch and loader.error is None for loader in self.loaders)
        going = watched or self._starter is not None
        return bool(self.failures) and not going and all(flow.state == FAILED for flow in self.flows)

    @property
    def is_begun(self) -> bool:
        """Whether it was started, and not only opened to query or change its tables."""
        return self._begun

    def fill_views(self) -> None:
        """Compute new views whose tables exist; for an app that is not started."""
        self.start.fill_views()

    @property
    def goes_on(self) -> bool:
        """Whether it was started and is not being stopped, so that its flows process new records now or soon."""
        return self._begun and not self.context.stopping.is_set()

    @property
    def ready(self) -> bool:
        begun = all(flow.goes_on or flow.state == FAILED for flow in self.flows)
        return self.state == "running" and begun and not self.start.is_pending

    def stop(self) -> None:
        """Finish the current batches, then stop; no further flow is started."""
        self.context.supervisor.stop()
        self.context.stopping.set()
        self.state = "stopping"
        if self._poller is not None:
            self._poller.stop()
        for flow in self.flows:
            flow.stop()
        # Flows that were started in the meantime, in a round or by `switch`, are stopped too.
        with self._rounds:
            for flow in self.flows:
                flow.stop()
            for loader in self.loaders:
                loader.close()
        self.start.shared.close()
        end_sinks(self.context)

    def close(self, *, stop_spark: bool) -> None:
        """Close the tables and release the state directory."""
        if self.state == "stopping" and self._begun:
            remember(self.context.store, self.progress(), [flow.commits.use for flow in self.flows])
        self.context.store.close()
        if self._spark_starter is not None:
            self._spark_starter.join()
        if stop_spark and self._session is not None:
            end_session(self._session)
        self.context.state.close()
        self.state = "stopped"

    def progress(self) -> AppProgress:
        """Current statistics; for flows and sources that were not started, those of the last run."""
        seconds = time.monotonic() - self._started_at
        found = progress_of(self.context, self.state, seconds, self.flows, self.loaders)
        found = replace(found, failures=tuple(p for error in self.failures for p in error.problems))
        return found if self._begun else with_last_known(found, self.context.store)

    def _answer(self, statement: Statement) -> pa.Table:
        return ask(statement, self.plan, self.context.store, self.progress())


def _needs_spark(plan: Plan) -> bool:
    """Whether Spark will be needed, as far as the plan shows it; what it does not show starts Spark when it is met."""
    if any(s.type in CONNECTORS for s in plan.sources):
        return True
    if any(find("sink", s.type).needs_spark(s.spec) for s in plan.sinks):
        return True
    if any(s.columns is None and find("source", s.type).has_catalog for s in plan.sources):
        return False
    if not all(table.spec.schema.settled for table in plan.tables):
        return True
    return any(route.engine is Engine.SPARK for route in routes(plan))


def _copy_identity(store: Store, path: Path) -> None:
    """Store the identity in the ledger too, so that a lost file can be rebuilt from there."""
    identity = identity_of(path)
    if store.get(IDENTITY_ENTRY) != identity:
        with store.begin() as tx:
            tx.put(IDENTITY_ENTRY, identity)
            tx.commit()


def _itself(session: SparkSession) -> SparkSession:
    return session
