"""Bringing an app up, in rounds: each does what can be done now, in one fixed order, and leaves the rest."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Container, Mapping

from pyspark.sql import SparkSession

from millpond.contracts.source import Found, Mode
from millpond.errors import MillpondError
from millpond.plan.flows import writes
from millpond.plan.model import FlowPlan, Plan, SourcePlan, TableKind
from millpond.registry import find
from millpond.runtime.context import Context
from millpond.runtime.figures.progress import FINISHED, MISSING, RETRYING, WAITING
from millpond.runtime.flows.flow import Flow
from millpond.runtime.flows.work import Work
from millpond.runtime.keeping.ledger import CHANGES, VIEW
from millpond.runtime.loading.columns_found import recall, remember
from millpond.runtime.loading.load import Loader
from millpond.runtime.one_shots import OneShots
from millpond.runtime.planning import discover_local
from millpond.runtime.preparing import Preparation, is_held
from millpond.runtime.readiness import Readiness, not_run
from millpond.runtime.spark.access import Views
from millpond.runtime.views.announcing import announce, publish

# How often a source that was empty is looked at for its first records.
REVISIT_S = 1.0

Replan = Callable[[Mapping[str, Found]], Plan]


class Start:
    """Tables load, one-shot statements run, flows catch up one after another. What hangs on a source that is not there
    yet is taken up in a later round; used by one thread at a time."""

    def __init__(self, context: Context, one_shots: OneShots, views: Views, replan: Replan) -> None:
        self.flows = [Flow(flow, context) for flow in context.plan.flows]
        self.loaders = _loaders(context)
        self.readiness = Readiness(context, self._comes_again)
        self._context = context
        self._one_shots = one_shots
        self._views = views
        self.replan = replan
        # What was seen of sources on the network, by their ids.
        self.found: dict[str, Found] = {}
        self._looked = 0.0
        self._begun = False
        # Under `--once` a table that has failed is not loaded again.
        self._drain = False

    def load(self) -> None:
        """The tables, their views, and the one-shot statements."""
        self._look()
        for loader in self.loaders:
            if not loader.looks_begun or loader.is_pending:
                loader.load()
        self._begun = True
        self._fill_views()
        self._tell_changes()
        self._run_shots(late=False)

    def catch_up(self, *, drain: bool) -> None:
        """The flows that can begin, one after another."""
        self._drain = drain
        for flow in list(self.flows):
            stopped = self._context.stopping.is_set() or any(other.stops_app for other in self.flows)
            if flow.state in (WAITING, RETRYING) and not stopped:
                self._catch_up(flow)

    def end_waiting(self) -> None:
        """No source is looked for any more: the next round looks at what has come, and no statement waits longer."""
        self._looked = -math.inf
        self.readiness.end_waiting()

    def finish(self) -> None:
        """The statements that come after the flows."""
        if not self._context.stopping.is_set():
            self._run_shots(late=True)

    @property
    def is_looking(self) -> bool:
        """Whether a source that is not there is still looked for."""
        users: list[Flow | Loader] = [*self.flows, *self.loaders]
        return any(user.is_pending for user in users)

    @property
    def is_pending(self) -> bool:
        """Whether something may still begin."""
        flows = any(f.state in (WAITING, RETRYING) for f in self.flows)
        held = any(loader.source.columns is None and loader.error is None for loader in self.loaders)
        return self.is_looking or flows or held or self._one_shots.is_pending

    def _run_shots(self, *, late: bool) -> None:
        try:
            self._one_shots.run(self._context.plan, self.readiness, late=late)
        except MillpondError as error:
            waiting = [] if late else [f.plan.name for f in self.flows if f.state in (WAITING, RETRYING)]
            raise not_run(error, self._one_shots.left(self._context.plan), waiting) from error

    def _look(self) -> None:
        """Find the columns of sources that nobody declared, and plan with them."""
        if self._begun and time.monotonic() - self._looked < REVISIT_S:
            return
        self._looked = time.monotonic()
        self._keep_columns()
        seen = [self._sees(source) for source in self._unknown()]
        if not any(seen):
            return
        try:
            self._context.plan = self.replan(self.found)
        except MillpondError as error:
            if not self._begun:
                raise
            for flow in self.flows:
                if flow.state == WAITING:
                    flow.fail(error)
            return
        Preparation(self._context).prepare()
        self._renew()

    def _unknown(self) -> list[SourcePlan]:
        """Sources without columns that something waits for; not those that are still looked for."""
        if not self._begun:
            return [s for s in self._context.plan.sources if s.columns is None]
        flows = [f.source for f in self.flows if f.state == WAITING and not f.is_pending]
        loaders = [loader.source for loader in self.loaders if not loader.is_pending]
        return list({s.id: s for s in (*flows, *loaders) if s.columns is None}.values())

    def _sees(self, source: SourcePlan) -> bool:
        """Whether the columns of a source can be seen now."""
        plugin = find("source", source.type)
        known = recall(self._context.state.path, source.id)
        if plugin.found_in is not None:
            readers = [f.reader for f in self.flows if f.source.id == source.id and f.reader is not None]
            found = known or (plugin.found_in(readers[0]) if readers else Found())
        elif plugin.sample is not None:
            found = known or plugin.sample(source.spec, self._spark())
        else:
            # Files that are there tell their columns again, so that a plan made now has them.
            found = discover_local(plugin, source.spec)
            if found.columns is not None or known is None:
                return found.columns is not None
            found = known
        if found.columns is not None:
            self.found[source.spec.id] = found
            if known is None:
                remember(self._context.state.path, source.id, found)
        return found.columns is not None

    def _keep_columns(self) -> None:
        """Remember the columns that were found in files: a stream keeps those of its first start, a table that is
        loaded from them has them when they are gone or empty."""
        for source in self._context.plan.sources:
            if source.columns is None or source.declared or find("source", source.type).discover is None:
                continue
            known = recall(self._context.state.path, source.id)
            if known is None or (known.columns != source.columns and source.mode is not Mode.APPEND):
                remember(self._context.state.path, source.id, Found(source.columns))

    def _spark(self) -> SparkSession:
        return self._context.spark()

    def _renew(self) -> None:
        """Flows and loaders of the new plan, in place of those that have not begun."""
        before = {flow.plan.id: flow for flow in self.flows}
        if not self._begun:
            self.flows[:] = [self._in_place_of(before.get(plan.id), plan) for plan in self._context.plan.flows]
            self.loaders[:] = _loaders(self._context)
            return
        plans = {flow.id: flow for flow in self._context.plan.flows}
        for place, flow in enumerate(self.flows):
            if flow.state in (WAITING, RETRYING) and flow.plan.id in plans:
                self.flows[place] = self._in_place_of(flow, plans[flow.plan.id])
        for place, loader in enumerate(self.loaders):
            table = self._context.plan.table(loader.plan.name)
            if loader.source.columns is None and table is not None and table.name.lower() not in self._context.held:
                self.loaders[place] = Loader(table, self._context)
                self.loaders[place].load()

    def _in_place_of(self, before: Flow | None, plan: FlowPlan) -> Flow:
        """The flow of a new plan; a reader that records are handed to goes over to it, and so do its figures."""
        flow = Flow(plan, self._context)
        if before is None:
            return flow
        flow.meter = before.meter
        make_known = find("source", flow.source.type).make_known
        reader = before.reader or before.handed
        if reader is not None and make_known is not None:
            make_known(reader, flow.source.spec)
            flow.handed = reader
        return flow

    def begin_again(self, flow: Flow) -> Flow:
        """A flow that has failed, from its last finished batch; what comes of it is up to the next round."""
        renewed = self._in_place_of(flow, flow.plan)
        self.flows[self.flows.index(flow)] = renewed
        return renewed

    def switch(self, replan: Replan, kept: Container[str]) -> None:
        """The flows and loaders of the context's plan, which is another now, in place of those before, which are
        paused. `kept` are the tables that are as they were, in lower case."""
        plan, self.replan = self._context.plan, replan
        self.readiness = Readiness(self._context, self._comes_again)
        flows = {flow.plan.id: flow for flow in self.flows}
        loaders = {loader.plan.name.lower(): loader for loader in self.loaders}
        self.flows[:] = [self._in_place_of(flows.get(found.id), found) for found in plan.flows]
        for place, made in enumerate(found := _loaders(self._context)):
            before = loaders.get(made.plan.name.lower())
            same = before is not None and before.source.spec == made.source.spec and before.error is None
            if before is not None and same and made.plan.name.lower() in kept:
                found[place] = before.of(made.plan)
        self.loaders[:] = found

    def _fill_views(self) -> None:
        """Views that are new are computed for the first time; the others followed every change."""
        views = [t for t in self._context.plan.tables if t.kind is TableKind.VIEW]
        new = [t for t in views if t.name.lower() in self._context.new_views]
        new = [t for t in new if not self._context.missing([t.name])]
        if not new:
            return
        # Nobody changes what they read meanwhile: who began before these views were known would not refresh them.
        inputs = self._context.inputs_of({view.name for view in new})
        there = [name for name in self._context.store.names() if name.lower() in inputs]
        with self._context.store.begin(locks=there) as tx:
            work = Work(self._context, tx, self._views)
            for view in new:
                work.mark_view_stale(view.name)
            work.refresh()
            for view in new:
                tx.put(VIEW + view.name.lower(), True)
            tx.commit()
        self._context.new_views -= {view.name.lower() for view in new}

    def _tell_changes(self) -> None:
        """What a new CHANGES statement finds in its table counts as inserted."""
        if all(self._context.store.get(CHANGES + c.id) for c in self._context.plan.changes):
            return
        with self._context.store.begin() as tx:
            told = announce(Work(self._context, tx, self._views), "start")
            tx.commit()
        publish(self._context, told)

    def _catch_up(self, flow: Flow) -> None:
        try:
            if not flow.open():
                return
            if self._is_held(flow) or not self.readiness.may_begin(flow.plan) or self._comes_later(flow):
                flow.state = WAITING
                flow.tell_tables(MISSING)
                return
        except MillpondError as error:
            flow.fail(error)
            return
        flow.catch_up(drain=self._drain)

    def _is_held(self, flow: Flow) -> bool:
        """Whether it hangs on a source whose columns are not known yet."""
        return is_held(self._context, flow.plan) or bool(writes(flow.plan) & self._context.held)

    def _comes_later(self, flow: Flow) -> bool:
        """Under `--once` a flow comes after those that feed it, also when the source of one is looked for."""
        if not self._drain:
            return False
        needs = self._context.inputs_of(set(flow.plan.reads)) - writes(flow.plan)
        looking = [other.plan for other in self.flows if other.is_pending]
        feeding = any(needs & writes(other) for other in looking)
        return feeding or any(s.target.startswith(f"{flow.plan.id}:") for other in looking for s in other.steps)

    def _comes_again(self, table: str) -> bool:
        """Whether a table that has failed is loaded again while the app runs."""
        return not self._drain and any(x.plan.watch and x.plan.name.lower() == table for x in self.loaders)

    @property
    def failures(self) -> tuple[MillpondError, ...]:
        errors = [loader.error for loader in self.loaders] + [flow.error for flow in self.flows]
        return (*(e for e in errors if e is not None), *self._one_shots.errors)

    def started(self) -> list[Flow]:
        """The flows that have caught up and do not run yet."""
        return [flow for flow in self.flows if flow.state == FINISHED]


def _loaders(context: Context) -> list[Loader]:
    tables = [t for t in context.plan.tables if t.source is not None and t.query is not None]
    return [Loader(table, context) for table in tables]
