"""A plan at work: tables made and loaded, statements run, flows caught up and then kept going, in one fixed order."""

from __future__ import annotations

import itertools
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TextIO

import pyarrow as pa
from pyspark.sql import SparkSession
from sqlglot import exp

from millpond.contracts.source import Found
from millpond.contracts.table import Transaction
from millpond.errors import FlowError, MillpondError, TableError
from millpond.plan.model import FlowPlan, Plan, SourcePlan, TableKind
from millpond.registry import find
from millpond.runtime.access import Exchange, Views
from millpond.runtime.announcing import announce, publish
from millpond.runtime.asking import ask
from millpond.runtime.context import Context
from millpond.runtime.evaluate import spark_fallback
from millpond.runtime.flow import Flow
from millpond.runtime.jars import session_conf
from millpond.runtime.joining import relay_sinks
from millpond.runtime.ledger import CHANGES, VIEW
from millpond.runtime.load import Loader
from millpond.runtime.one_shots import OneShots
from millpond.runtime.planning import discover_local
from millpond.runtime.poller import Poller
from millpond.runtime.preparing import Preparation
from millpond.runtime.progress import FAILED, FINISHED, WAITING, AppProgress
from millpond.runtime.reporting import progress_of
from millpond.runtime.session import adopt_session, build_session
from millpond.runtime.sinks import open_sinks, recover_sinks
from millpond.runtime.state import open_state
from millpond.runtime.transaction import refuse_defined
from millpond.runtime.work import Work
from millpond.sql.statements import Select, Statement
from millpond.tables.store import open_store


class Running:
    """Holds the state directory from its making until `close`. `start_up` and `go_on` come from one thread; `stop`,
    `progress` and queries from any."""

    def __init__(
        self,
        plan: Plan,
        state: Path | None,
        session: SparkSession | None,
        output: TextIO | None,
        replan: Callable[[Mapping[str, Found]], Plan],
    ) -> None:
        self.plan = plan
        self.state = "starting"
        self._started_at = time.monotonic()
        self._session = session
        self._brought = session is not None
        self._session_lock = threading.Lock()
        folder = open_state(state, plan.name)
        try:
            store = open_store(folder.store, fallback=spark_fallback(self.spark))
        except BaseException:
            folder.close()
            raise
        self.context = Context(plan, store, folder, Exchange(folder.exchange), self.spark, table_states=store.states)
        self.context.notices.extend(store.problems)
        store.before_commit = self._refresh_after
        self.views = Views(self.spark, self.context.exchange, "mp_app")
        self.flows = [Flow(flow, self.context) for flow in plan.flows]
        self.loaders = [Loader(t, self.context) for t in plan.tables if t.source is not None and t.query is not None]
        self._one_shots = OneShots(self.context, self.views, self._answer)
        self._output = output or sys.stdout
        self._poller: Poller | None = None
        self._prepared = False
        self._replan = replan
        # What was seen of sources on the network, by their ids.
        self._found: dict[str, Found] = {}
        self._numbers = itertools.count()

    def spark(self) -> SparkSession:
        """The session, started at the first call."""
        with self._session_lock:
            if self._session is None:
                settings = self.plan.settings
                self._session = build_session(
                    master=settings["master"],
                    ui=settings["spark.ui"],
                    time_zone=settings["time.zone"],
                    log_file=self.context.state.spark_log,
                    extra={**session_conf(self.plan), **settings.starting("spark.conf.")},
                )
            elif self._brought:
                self._session = adopt_session(self._session)
                self._brought = False
            return self._session

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
        self._one_shots.run(self.plan, early=True)
        Preparation(self.context, accept=accept).prepare()
        self.context.sinks.update(open_sinks(self.plan, self._output, json=self.plan.settings["json"]))
        self.context.sinks.update(relay_sinks(self.context))
        recover_sinks(self.context.store, self.context.sinks)
        self._prepared = True

    def start_up(self, *, drain: bool) -> None:
        """Load tables, run one-shot statements, let flows catch up one after another, then the late statements."""
        self.state = "loading"
        self._look_around()
        for loader in self.loaders:
            loader.load()
        self._fill_views()
        self._tell_tables()
        self._one_shots.run(self.plan)
        self.state = "catching up"
        for flow in self.flows:
            if not self.context.stopping.is_set() and not any(other.stops_app for other in self.flows):
                self._catch_up(flow, drain=drain)
        for flow in self.flows if drain else ():
            flow.wait_out()
        if not self.context.stopping.is_set():
            self._one_shots.run(self.plan, late=True)

    def _look_around(self) -> None:
        """Find the columns of sources on the network that nobody declared, and plan with them."""
        unknown = [s for s in self.plan.sources if s.columns is None]
        # Every one is looked at, not only the first that is seen.
        seen = [self._sees(s, wait=True) for s in unknown]
        if not any(seen):
            return
        self.plan = self.context.plan = self._replan(self._found)
        Preparation(self.context, accept=False).prepare()
        self.flows[:] = [Flow(flow, self.context) for flow in self.plan.flows]
        self.loaders[:] = [Loader(t, self.context) for t in self.plan.tables if t.source and t.query is not None]

    def _sees(self, source: SourcePlan, *, wait: bool) -> bool:
        """Whether the columns of a source can be seen now."""
        plugin = find("source", source.type)
        if plugin.sample is None:
            return discover_local(plugin, source.spec).columns is not None
        found = plugin.sample(source.spec, self.spark(), wait)
        if found.columns is not None:
            self._found[source.spec.id] = found
        return found.columns is not None

    def _refresh_after(self, tx: Transaction) -> None:
        """Views follow what a user changes through a table, in the same commit; MP214 for one defined by a query."""
        if self._prepared:
            refuse_defined(tx, self.plan)
        changed = set(tx.changed())
        if not self.context.views_of(changed):
            return
        views = self.own_views()
        try:
            work = Work(self.context, tx, views)
            for name in sorted(changed):
                work.mark_changed(name)
            work.refresh()
        finally:
            views.drop()

    def _fill_views(self) -> None:
        """Views that are new are computed for the first time; the others followed every change."""
        new = [t for t in self.plan.tables if t.kind is TableKind.VIEW and t.name.lower() in self.context.new_views]
        if not new:
            return
        with self.context.store.begin() as tx:
            work = Work(self.context, tx, self.views)
            for view in new:
                work.mark_view_stale(view.name)
            work.refresh()
            for view in new:
                tx.put(VIEW + view.name.lower(), True)
            tx.commit()
        self.context.new_views.clear()

    def _tell_tables(self) -> None:
        """What a new CHANGES statement finds in its table counts as inserted."""
        if all(self.context.store.get(CHANGES + c.id) for c in self.plan.changes):
            return
        with self.context.store.begin() as tx:
            told = announce(Work(self.context, tx, self.views), "start")
            tx.commit()
        publish(self.context, told)

    def _catch_up(self, flow: Flow, *, drain: bool) -> None:
        failed = [n for n in self.context.inputs_of(set(flow.plan.reads)) if self.context.table_states.get(n) == FAILED]
        if failed:
            flow.fail(_unready(flow.plan, failed[0]))
            return
        try:
            flow.open()
        except MillpondError as error:
            flow.fail(error)
            return
        if self._is_held(flow):
            return
        flow.catch_up(drain=drain)

    def _is_held(self, flow: Flow) -> bool:
        """Whether it hangs on a source whose columns are not known yet."""
        inputs = self.context.inputs_of(set(flow.plan.reads)) | {s.target.lower() for s in flow.plan.steps}
        sources = [self.plan.source(id_) for id_ in (flow.plan.source, *flow.plan.joined)]
        return any(s.columns is None for s in sources) or bool(inputs & self.context.held)

    def revisit(self) -> None:
        """Plan anew when a source that was empty has records now, and start what waited for its columns."""
        users: list[Flow | Loader] = [*self.flows, *self.loaders]
        waiting = [user.source for user in users if user.source.columns is None]
        seen = [self._sees(s, wait=False) for s in waiting]
        if not any(seen):
            return
        try:
            self.plan = self.context.plan = self._replan(self._found)
        except MillpondError as error:
            for flow in self.flows:
                if flow.state == WAITING:
                    flow.fail(error)
            return
        Preparation(self.context, accept=False).prepare()
        for loader in self._renewed_loaders():
            loader.load()
        for flow in self._renewed_flows():
            self._catch_up(flow, drain=False)
            if flow.state == FINISHED:
                flow.start()

    def _renewed_loaders(self) -> list[Loader]:
        """Loaders of tables that could not be made before, in place of the old ones."""
        found = []
        for place, loader in enumerate(self.loaders):
            table = self.plan.table(loader.plan.name)
            if loader.source.columns is None and table is not None and table.name.lower() not in self.context.held:
                self.loaders[place] = Loader(table, self.context)
                found.append(self.loaders[place])
        return found

    def _renewed_flows(self) -> list[Flow]:
        """Flows that waited and need not wait any longer, in place of the old ones."""
        found = []
        plans = {flow.id: flow for flow in self.plan.flows}
        for place, flow in enumerate(self.flows):
            renewed = Flow(plans[flow.plan.id], self.context) if flow.plan.id in plans else flow
            if flow.state == WAITING and not self._is_held(renewed):
                self.flows[place] = renewed
                found.append(renewed)
        return found

    def go_on(self) -> None:
        """All flows that caught up run side by side from now on."""
        self.state = "running"
        for flow in self.flows:
            if flow.state == FINISHED:
                flow.start()
        self._poller = Poller(self.flows, self.loaders, self.revisit)
        self._poller.start()

    @property
    def failures(self) -> tuple[MillpondError, ...]:
        errors = [loader.error for loader in self.loaders] + [flow.error for flow in self.flows]
        return tuple(e for e in errors if e is not None)

    @property
    def ended(self) -> bool:
        """Whether nothing is left that could go on, or a failure was to end the app."""
        if any(flow.stops_app for flow in self.flows):
            return True
        watched = any(loader.plan.watch and loader.error is None for loader in self.loaders)
        return bool(self.failures) and not watched and all(flow.state == FAILED for flow in self.flows)

    @property
    def ready(self) -> bool:
        return self.state == "running" and all(flow.state != WAITING for flow in self.flows)

    def stop(self) -> None:
        """Let the batches under way end, then stop; a flow that has not begun is not begun."""
        self.context.stopping.set()
        self.state = "stopping"
        if self._poller is not None:
            self._poller.stop()
        for flow in self.flows:
            flow.stop()

    def close(self, *, stop_spark: bool) -> None:
        """Let go of tables and the state directory."""
        self.context.store.close()
        if stop_spark and self._session is not None:
            self._session.stop()
        self.context.state.close()
        self.state = "stopped"

    def progress(self) -> AppProgress:
        """Figures of this moment."""
        seconds = time.monotonic() - self._started_at
        return progress_of(self.context, self.state, seconds, self.flows, self.loaders)

    def _answer(self, statement: Statement) -> pa.Table:
        return ask(statement, self.plan, self.context.store, self.progress())


def _unready(flow: FlowPlan, table: str) -> FlowError:
    place = next((s.place for s in flow.steps if table in {a.table.lower() for a in s.reads}), None)
    hint = f"See why '{table}' failed; the flow starts when it can be loaded."
    return FlowError(
        "MP703", f"The flow '{flow.name}' reads the table '{table}', which has failed.", place=place, hint=hint
    )
