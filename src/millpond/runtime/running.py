"""A plan at work: tables made and loaded, statements run, flows caught up and then kept going, in one fixed order."""

from __future__ import annotations

import itertools
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TextIO

import pyarrow as pa
from pyspark.sql import SparkSession
from sqlglot import exp

from millpond.contracts.table import Ending, Store, Transaction
from millpond.errors import MillpondError, RunError, TableError
from millpond.plan.model import Plan
from millpond.runtime.context import Context
from millpond.runtime.figures.asking import ask
from millpond.runtime.figures.last import remember, with_last_known
from millpond.runtime.figures.progress import FAILED, RETRYING, RUNNING, WAITING, AppProgress
from millpond.runtime.figures.reporting import progress_of
from millpond.runtime.flows.flow import Flow
from millpond.runtime.flows.joining import relay_sinks
from millpond.runtime.flows.work import Work
from millpond.runtime.keeping.editing import Change, difference
from millpond.runtime.keeping.ledger import IDENTITY_ENTRY, finish_edit
from millpond.runtime.keeping.state import identity_of, open_state
from millpond.runtime.loading.poller import Poller
from millpond.runtime.one_shots import OneShots
from millpond.runtime.preparing import Preparation
from millpond.runtime.sinks import open_sinks, recover_sinks
from millpond.runtime.spark.access import Exchange, Views
from millpond.runtime.spark.errors import translate
from millpond.runtime.spark.evaluate import spark_fallback
from millpond.runtime.spark.jars import session_conf
from millpond.runtime.spark.session import adopt_session, build_session, end_session
from millpond.runtime.starting import Replan, Start
from millpond.runtime.supervision import Supervisor
from millpond.runtime.transaction import refuse_defined
from millpond.runtime.views.announcing import announce, publish
from millpond.sql.statements import Select, Statement
from millpond.tables.store import open_store

LOOK_S = 0.01
# How often what could not begin is tried again; sources are looked for at their own pace.
ROUND_S = 0.1


class Running:
    """Holds the state directory from its making until `close`. `start_up` and `go_on` come from one thread; `stop`,
    `progress` and queries from any."""

    def __init__(
        self,
        plan: Plan,
        state: Path,
        session: SparkSession | None,
        output: TextIO | None,
        replan: Replan,
    ) -> None:
        self.state = "starting"
        # An app may be opened only to ask or change its tables.
        self._begun = False
        self._started_at = time.monotonic()
        self._session = session
        self._brought = self._is_brought = session is not None
        self._session_lock = threading.Lock()
        folder = open_state(state, plan.name)
        try:
            store = open_store(folder.store, fallback=spark_fallback(self.spark))
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
        )
        store.on_failure = self.context.supervisor.report
        self.context.notices.extend(store.problems)
        store.before_commit = self._follow_user
        store.followers = lambda name: [view.name for view in self.context.views_of({name})]
        self.views = Views(self.spark, self.context.exchange, "mp_app")
        self._one_shots = OneShots(self.context, self.views, self._answer)
        self.start = Start(self.context, self._one_shots, self.views, replan)
        self.flows, self.loaders = self.start.flows, self.start.loaders
        self._output = output or sys.stdout
        self._poller: Poller | None = None
        self._prepared = False
        self._starter: threading.Thread | None = None
        # Held by whoever starts flows, or puts others in their place.
        self._rounds = threading.RLock()
        self._rounds_ended = 0
        # Whether somebody waits for the next round, and what went wrong in it.
        self._is_waited_for = False
        self._failure: MillpondError | None = None
        self._numbers = itertools.count()

    @property
    def plan(self) -> Plan:
        """The plan, with the columns that were found while it ran."""
        return self.context.plan

    def flow(self, id_: str) -> Flow | None:
        """The flow of an id; another object after it was restarted."""
        return next((flow for flow in self.flows if flow.plan.id == id_), None)

    def spark(self) -> SparkSession:
        """The session, started at the first call."""
        with self._session_lock:
            if self._session is None:
                settings = self.context.plan.settings
                self._session = build_session(
                    master=settings["master"],
                    ui=settings["spark.ui"],
                    time_zone=settings["time.zone"],
                    log_file=self.context.state.spark_log,
                    files=self.context.state.spark_files,
                    extra={**session_conf(self.context.plan), **settings.starting("spark.conf.")},
                )
            elif self._brought:
                self._session = adopt_session(self._session)
                self._brought = False
            self.context.supervisor.watch_java()
            return self._session

    @property
    def replan(self) -> Replan:
        """How its plan is made again when the columns of a source are found."""
        return self.start.replan

    @property
    def has_own_session(self) -> bool:
        """Whether Spark was started here, for this app."""
        return self._session is not None and not self._is_brought

    def own_views(self) -> Views:
        """Temporary views of one user, so that transactions of several threads do not disturb each other."""
        return Views(self.spark, self.context.exchange, f"mp_tx_{next(self._numbers)}")

    def require_made(self, statements: Sequence[Statement]) -> None:
        """MP703 for a query over a table that cannot be made yet."""
        named = {t.name.lower() for s in statements if isinstance(s, Select) for t in s.query.find_all(exp.Table)}
        for name in sorted(named & self.context.held):
            hint = "It hangs on a source that is empty or not there; SHOW TABLES tells its state."
            raise TableError("MP703", f"Table '{name}' is not there yet.", hint=hint)

    def prepare(self, *, accept: bool) -> None:
        """Make the tables and open the sinks; once."""
        if self._prepared:
            return
        self._one_shots.run(self.plan, self.start.readiness, early=True)
        self.context.accept = accept
        Preparation(self.context).prepare()
        self._open_sinks()
        recover_sinks(self.context.store, self.context.sinks)
        self._prepared = True

    def start_up(self, *, drain: bool) -> None:
        """Load tables, run one-shot statements, let flows catch up one after another, then the late statements. With
        `drain` what hangs on a source that is not there is waited for, as long as that source is looked for."""
        self.state, self._begun = "loading", True
        self.start.load()
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
        """Views follow what a user changes through a table, in the same commit, and CHANGES statements tell it; MP214
        for a table defined by a query."""
        if self._prepared:
            refuse_defined(tx, self.plan)
        changed = set(tx.changed())
        touched = {n.lower() for n in changed} | {v.name.lower() for v in self.context.views_of(changed)}
        told_of = {c.table.lower() for c in self.plan.changes} if self._prepared else set()
        if len(touched) == len(changed) and not told_of & touched:
            return None
        views = self.own_views()
        try:
            work = Work(self.context, tx, views)
            work.hold_views()
            work.follow(sorted(changed))
            work.refresh()
            return self._tell_user(work) if told_of & touched else None
        finally:
            views.drop()

    def _tell_user(self, work: Work) -> Ending:
        writer = self.context.writers.take()
        try:
            told = announce(work, writer)
        except BaseException:
            self.context.writers.give_back(writer)
            raise

        def end(done: bool) -> None:
            try:
                publish(self.context, told if done else [])
            finally:
                self.context.writers.give_back(writer)

        return end

    def go_on(self) -> None:
        """All flows that caught up run side by side from now on; the others when they can."""
        self.state = "running"
        remember(self.context.store, self.progress())
        self._poller = Poller(self.flows, self.loaders, self.context.supervisor)
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
        """In a thread of its own: start what could not be started at first, or was put in the place of another."""
        while not self.context.stopping.wait(ROUND_S):
            with self._rounds:
                self._bring_up_some()
                self._is_waited_for = False
                self._rounds_ended += 1
                if self._failure is not None or not self.start.is_pending:
                    self._starter = None
                    return

    def _bring_up_some(self) -> None:
        """One round. A statement that runs once and fails ends the app, unless somebody waits to hear of it."""
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
        """Inside, no flow is started and no source looked at by anybody else. MP713 unless the app runs."""
        with self._rounds:
            if self.state != "running" or self._poller is None:
                hint = "Try again when it runs; an app that is stopped is started with 'millpond run'."
                raise RunError("MP713", f"The app is {self.state}.", hint=hint)
            with self._poller.paused():
                yield

    def bring_up(self, limit_s: float) -> None:
        """Start what is to be started: returns when everything was tried, or after this time, and goes on then. Raises
        what is wrong with a statement that runs once."""
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
        """Make the tables and open the sinks of another plan, in place of the one before; flows are paused. What is
        wrong is raised, and the plan before is back then."""
        context, before = self.context, self.plan
        changes = difference(plan, context.store).tables
        try:
            context.plan, context.accept = plan, accept
            for table in changes:
                if table.change is not Change.KEPT:
                    context.table_states.pop(table.name.lower(), None)
            self._one_shots.run(plan, self.start.readiness, early=True)
            Preparation(context).prepare()
        except Exception as error:
            context.plan, context.accept = before, True
            Preparation(context).prepare()
            raise translate(error) from error
        self._open_sinks(before)
        self._one_shots.forget_others(plan)
        kept = {table.name.lower() for table in changes if table.change is Change.KEPT}
        self.start.switch(replan, kept)

    def _open_sinks(self, before: Plan | None = None) -> None:
        """Those of the plan; the ones that another plan had in the same way stay open."""
        same = {sink.id: sink.spec for sink in before.sinks} if before is not None else {}
        new = tuple(sink for sink in self.plan.sinks if same.get(sink.id) != sink.spec)
        opened = open_sinks(
            replace(self.plan, sinks=new), self.context.state.id, self._output, json=self.plan.settings["json"]
        )
        self.context.sinks.update(opened)
        self.context.sinks.update(relay_sinks(self.context))

    def _end(self, failure: MillpondError) -> None:
        """Called by the supervisor when something has failed without which the app cannot go on."""
        for flow in self.flows:
            if flow.state in (RUNNING, WAITING, RETRYING):
                flow.fail(type(failure).of(failure.problems))
        self.context.stopping.set()

    @property
    def failures(self) -> tuple[MillpondError, ...]:
        """What has failed; what ended the app as a whole is listed once, not again for every flow."""
        ended = self.context.supervisor.failure
        if ended is None:
            return (*self.start.failures, *((self._failure,) if self._failure is not None else ()))
        return (*(e for e in self.start.failures if e.problems[0].message != ended.problems[0].message), ended)

    @property
    def ended(self) -> bool:
        """Whether nothing is left that could go on, or a failure was to end the app."""
        if self.context.supervisor.failure is not None or any(flow.stops_app for flow in self.flows):
            return True
        watched = any(loader.plan.watch and loader.error is None for loader in self.loaders)
        going = watched or self._starter is not None
        return bool(self.failures) and not going and all(flow.state == FAILED for flow in self.flows)

    @property
    def goes_on(self) -> bool:
        """Whether it was started and is not being stopped: its flows take what comes, or will when they can."""
        return self._begun and not self.context.stopping.is_set()

    @property
    def ready(self) -> bool:
        begun = all(flow.goes_on or flow.state == FAILED for flow in self.flows)
        return self.state == "running" and begun and not self.start.is_pending

    def stop(self) -> None:
        """Let the batches under way end, then stop; a flow that has not begun is not begun."""
        self.context.supervisor.stop()
        self.context.stopping.set()
        self.state = "stopping"
        if self._poller is not None:
            self._poller.stop()
        for flow in self.flows:
            flow.stop()
        # One that was catching up has ended now; what was begun since, in a round or by `switch`, is stopped too.
        with self._rounds:
            for flow in self.flows:
                flow.stop()

    def close(self, *, stop_spark: bool) -> None:
        """Let go of tables and the state directory."""
        if self.state == "stopping" and self._begun:
            remember(self.context.store, self.progress())
        self.context.store.close()
        if stop_spark and self._session is not None:
            end_session(self._session)
        self.context.state.close()
        self.state = "stopped"

    def progress(self) -> AppProgress:
        """Figures of this moment; of flows and sources that were not begun, those of the last run."""
        seconds = time.monotonic() - self._started_at
        found = progress_of(self.context, self.state, seconds, self.flows, self.loaders)
        found = replace(found, failures=tuple(p for error in self.failures for p in error.problems))
        return found if self._begun else with_last_known(found, self.context.store)

    def _answer(self, statement: Statement) -> pa.Table:
        return ask(statement, self.plan, self.context.store, self.progress())


def _copy_identity(store: Store, path: Path) -> None:
    """Keep the identity in the ledger too, so that it can be made again from there."""
    identity = identity_of(path)
    if store.get(IDENTITY_ENTRY) != identity:
        with store.begin() as tx:
            tx.put(IDENTITY_ENTRY, identity)
            tx.commit()
