"""The start of an app, in rounds: each round does what is possible now, in a fixed order, and leaves the rest."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Container, Mapping

from millpond.app.one_shots import OneShots
from millpond.app.planning import discover_local, recall, remember
from millpond.app.prepare_tables import Preparation, is_held
from millpond.app.shared_views import SharedViews
from millpond.contracts.change_stream import stream_columns, streams_changes
from millpond.contracts.source import Found, Mode
from millpond.engine.app_context import Context
from millpond.engine.capture import CapturedLoader, capture_loaders, is_captured
from millpond.engine.feeds.feed_reader import FeedReader
from millpond.engine.flow import Flow
from millpond.engine.ledger import CHANGES, VIEW
from millpond.engine.load import Loader
from millpond.engine.progress import FINISHED, MISSING, RETRYING, WAITING
from millpond.engine.readiness import Readiness, not_run
from millpond.engine.spark.transfer import Views
from millpond.engine.table_changes import announce, publish
from millpond.engine.work import Work
from millpond.errors import MillpondError
from millpond.plan.flow_plans import writes
from millpond.plan.model import FlowPlan, Plan, SourcePlan, TableKind
from millpond.registry import find

# The interval at which an empty source is polled for its first records.
REVISIT_S = 1.0

Replan = Callable[[Mapping[str, Found]], Plan]


class Start:
    """Loads tables, runs one-shot statements and lets flows catch up one after another. What depends on a missing
    source is started in a later round. Used by one thread at a time."""

    def __init__(
        self, context: Context, one_shots: OneShots, views: Views, replan: Replan, own_views: Callable[[], Views]
    ) -> None:
        self.flows = [Flow(flow, context) for flow in context.plan.flows]
        self.loaders = _loaders(context)
        self.readiness = Readiness(context, self._comes_again)
        self._context = context
        self._one_shots = one_shots
        self._views = views
        self.replan = replan
        self.shared = SharedViews(context, own_views)
        # The discovered columns of sources on the network, by their ids.
        self.found: dict[str, Found] = {}
        self._looked = 0.0
        # Sources whose catalog was asked in this run.
        self._asked: set[str] = set()
        self._begun = False
        # With `--once`, a failed table is not loaded again.
        self._drain = False

    def load(self) -> None:
        """Load the tables, fill their views and run the one-shot statements."""
        self._look()
        for loader in self.loaders:
            if not loader.looks_begun or loader.is_pending:
                loader.load()
        self._begun = True
        self.fill_views()
        if self.shared.is_due:
            self.shared.refresh()
        self._emit_initial_changes()
        self._run_shots(late=False)

    def catch_up(self, *, drain: bool) -> None:
        """Let the flows that can start catch up, one after another."""
        self._drain = drain
        for flow in list(self.flows):
            stopped = self._context.stopping.is_set() or any(other.stops_app for other in self.flows)
            if flow.state in (WAITING, RETRYING) and not stopped:
                self._catch_up(flow)

    def end_waiting(self) -> None:
        """Stop waiting for missing sources: the next round uses what exists, and no statement waits any longer."""
        self._looked = -math.inf
        self.readiness.end_waiting()

    def finish(self) -> None:
        """Run the statements that come after the flows."""
        if not self._context.stopping.is_set():
            self._run_shots(late=True)

    @property
    def is_looking(self) -> bool:
        """Whether a missing source is still being waited for."""
        users: list[Flow | Loader] = [*self.flows, *self.loaders]
        return any(user.is_pending for user in users)

    @property
    def is_pending(self) -> bool:
        """Whether something may still be started."""
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
        """Discover the columns of sources without declared ones, and plan again with them."""
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
        """Sources without known columns that something waits for, except missing ones that are still waited for."""
        if not self._begun:
            return [s for s in self._context.plan.sources if s.columns is None or self._is_asked(s)]
        flows = [f.source for f in self.flows if f.state == WAITING and not f.is_pending]
        loaders = [loader.source for loader in self.loaders if not loader.is_pending]
        return list({s.id: s for s in (*flows, *loaders) if s.columns is None}.values())

    def _is_asked(self, source: SourcePlan) -> bool:
        """Whether a catalog is asked for columns that are known from an earlier start."""
        asked = find("source", source.type).has_catalog and not source.declared and source.id not in self._asked
        self._asked.add(source.id)
        return bool(asked)

    def _sees(self, source: SourcePlan) -> bool:
        """Whether columns of a source that the plan does not have can be discovered now."""
        plugin = find("source", source.type)
        known = recall(self._context.state.path, source.id)
        if plugin.receives_records:
            readers = [f.reader for f in self.flows if f.source.id == source.id and isinstance(f.reader, FeedReader)]
            found = known or (readers[0].found() if readers else Found())
        elif plugin.sample is not None:
            discovers = known is None or plugin.has_catalog
            found = plugin.sample(source.spec, self._context.spark) if discovers else Found()
            for loader in self.loaders:
                if loader.source.id == source.id and found.error is not None:
                    loader.cannot_be_read(found.error)
            if source.mode is Mode.APPEND and streams_changes(plugin, source.spec.values):
                found = stream_columns(found, source.spec.values)
            found = known if known is not None and found.columns is None else found
        else:
            # The columns of existing files are discovered again by the planner, so there is nothing to store here.
            found = discover_local(plugin, source.spec)
            if found.columns is not None or known is None:
                return found.columns is not None
            found = known
        if found.columns is not None:
            self.found[source.spec.id] = found
            if known is None or known.columns != found.columns:
                remember(self._context.state.path, source.id, found)
        return found.columns is not None and found.columns != source.columns

    def _keep_columns(self) -> None:
        """Store the columns that were discovered in files: a stream keeps those of its first start, and a table that is
        loaded from files keeps them when these are removed or empty."""
        for source in self._context.plan.sources:
            if source.columns is None or source.declared or find("source", source.type).discover is None:
                continue
            known = recall(self._context.state.path, source.id)
            if known is None or (known.columns != source.columns and source.mode is not Mode.APPEND):
                remember(self._context.state.path, source.id, Found(source.columns))

    def _renew(self) -> None:
        """Create the flows and loaders of the new plan, replacing those that have not started."""
        before = {flow.plan.id: flow for flow in self.flows}
        if not self._begun:
            self.flows[:] = [self._in_place_of(before.get(plan.id), plan) for plan in self._context.plan.flows]
            self.loaders[:] = _loaders(self._context)
            return
        plans = {flow.id: flow for flow in self._context.plan.flows}
        for place, flow in enumerate(self.flows):
            if flow.state in (WAITING, RETRYING) and flow.plan.id in plans:
                self.flows[place] = self._in_place_of(flow, plans[flow.plan.id])
        made = {loader.plan.name: loader for loader in _loaders(self._context)}
        found = [x for x in self.loaders if x.source.columns is None and x.plan.name.lower() not in self._context.held]
        groups = {x.group for x in found if isinstance(x, CapturedLoader)}
        found += [x for x in self.loaders if isinstance(x, CapturedLoader) and x.group in groups and x not in found]
        for loader in found:
            loader.close()
            self.loaders[self.loaders.index(loader)] = made[loader.plan.name]
        for loader in found:
            made[loader.plan.name].load()

    def _in_place_of(self, before: Flow | None, plan: FlowPlan) -> Flow:
        """The flow of a new plan; it takes over the reader of a memory source, to which records may be sent at any
        moment, and the statistics."""
        flow = Flow(plan, self._context)
        if before is None:
            return flow
        flow.meter = before.meter
        reader = before.reader or before.kept_reader
        if isinstance(reader, FeedReader) and find("source", flow.source.type).receives_records:
            reader.redefine(flow.source.spec)
            flow.kept_reader = reader
        else:
            before.release()
        return flow

    def begin_again(self, flow: Flow) -> Flow:
        """Recreate a failed flow, to continue from its last committed batch; the next round starts it."""
        renewed = self._in_place_of(flow, flow.plan)
        self.flows[self.flows.index(flow)] = renewed
        return renewed

    def switch(self, replan: Replan, kept: Container[str]) -> None:
        """Create the flows and loaders of the context's new plan, replacing the previous ones, which are paused. `kept`
        are the unchanged tables, in lower case."""
        plan, self.replan = self._context.plan, replan
        self.readiness = Readiness(self._context, self._comes_again)
        flows = {flow.plan.id: flow for flow in self.flows}
        loaders = {loader.plan.name.lower(): loader for loader in self.loaders}
        for id_, flow in flows.items():
            if id_ not in {found.id for found in plan.flows}:
                flow.release()
        self.flows[:] = [self._in_place_of(flows.get(found.id), found) for found in plan.flows]
        for place, made in enumerate(found := _loaders(self._context)):
            before = loaders.get(made.plan.name.lower())
            same = before is not None and before.source.spec == made.source.spec and before.error is None
            # A capture may have other tables now.
            same = same and not isinstance(before, CapturedLoader)
            if before is not None and same and made.plan.name.lower() in kept:
                found[place] = before.of(made.plan)
        for left in self.loaders:
            if left not in found:
                left.close()
        self.loaders[:] = found

    def fill_views(self) -> None:
        """Compute new views for the first time; the others were refreshed with every change."""
        views = [t for t in self._context.plan.tables if t.kind is TableKind.VIEW]
        new = [t for t in views if t.name.lower() in self._context.new_views]
        new = [t for t in new if not self._context.missing([t.name])]
        if not new:
            return
        # The tables they read are locked: a transaction that began before these views were known would not refresh
        # them.
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

    def _emit_initial_changes(self) -> None:
        """Emit the existing rows of a table as inserts to a new CHANGES statement."""
        if all(self._context.store.get(CHANGES + c.id) for c in self._context.plan.changes):
            return
        with self._context.store.begin() as tx:
            staged = announce(Work(self._context, tx, self._views), "start")
            tx.commit()
        publish(self._context, staged)

    def _catch_up(self, flow: Flow) -> None:
        try:
            if not flow.open():
                return
            if self._is_held(flow) or not self.readiness.may_begin(flow.plan) or self._comes_later(flow):
                flow.state = WAITING
                flow.set_table_states(MISSING)
                return
        except MillpondError as error:
            flow.fail(error)
            return
        flow.catch_up(drain=self._drain)

    def _is_held(self, flow: Flow) -> bool:
        """Whether it depends on a source whose columns are not known yet."""
        return is_held(self._context, flow.plan) or bool(writes(flow.plan) & self._context.held)

    def _comes_later(self, flow: Flow) -> bool:
        """With `--once`, a flow runs after those that feed it, even if the source of one of them is still waited
        for."""
        if not self._drain:
            return False
        needs = self._context.inputs_of(set(flow.plan.reads)) - writes(flow.plan)
        looking = [other.plan for other in self.flows if other.is_pending]
        feeding = any(needs & writes(other) for other in looking)
        return feeding or any(s.target.startswith(f"{flow.plan.id}:") for other in looking for s in other.steps)

    def _comes_again(self, table: str) -> bool:
        """Whether a failed table is loaded again while the app runs."""
        return not self._drain and any(x.plan.watch and x.plan.name.lower() == table for x in self.loaders)

    @property
    def failures(self) -> tuple[MillpondError, ...]:
        errors = [loader.error for loader in self.loaders] + [flow.error for flow in self.flows]
        return (*(e for e in errors if e is not None), *self._one_shots.errors)

    def started(self) -> list[Flow]:
        """The flows that have caught up and are not running yet."""
        return [flow for flow in self.flows if flow.state == FINISHED]


def _loaders(context: Context) -> list[Loader]:
    """In the order of the plan: tables that are compared with their source, and those that follow its changes."""
    tables = [t for t in context.plan.tables if t.source is not None and t.query is not None]
    captured = {t.plan.name: t for t in capture_loaders(context, [t for t in tables if is_captured(context, t)])}
    return [captured[t.name] if t.name in captured else Loader(t, context) for t in tables]
