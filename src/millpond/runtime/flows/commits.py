"""What a flow commits: a batch, windows of a silent stream that close, events that need not wait any longer."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pyarrow as pa

from millpond.faults import reach
from millpond.plan.model import FlowPlan, StepKind
from millpond.relational.memory import Memory
from millpond.runtime.aggregates.telling import tell_closed
from millpond.runtime.context import Context
from millpond.runtime.dead_letters import NAME as DEAD_LETTERS
from millpond.runtime.dead_letters import Letters
from millpond.runtime.flows.batch import Batch
from millpond.runtime.flows.batch_run import BatchRun
from millpond.runtime.flows.idle import closing
from millpond.runtime.flows.staging import stage_outputs
from millpond.runtime.flows.statements import Statements
from millpond.runtime.flows.waiting import BESIDE, RELEASED
from millpond.runtime.flows.watermark import Reached
from millpond.runtime.flows.work import Work
from millpond.runtime.keeping.ledger import FlowEntry, flow_entry, flow_key
from millpond.runtime.spark.access import Views
from millpond.runtime.views.announcing import Staged, announce, publish


class Commits:
    """Changes of tables, files for sinks and how far the flow is: each commit has all of them, or nothing. One commit
    at a time; sinks publish after it."""

    def __init__(self, plan: FlowPlan, context: Context, statements: Statements) -> None:
        self._plan, self._context, self._statements = plan, context, statements
        self._memory = Memory()
        self.locks = _tables_written(plan, context)

    @property
    def entry(self) -> FlowEntry:
        """How far the flow is."""
        return flow_entry(self._context.store, self._plan.id)

    def letters(self) -> Letters:
        """Where the flow's dead letters go."""
        return self._context.letters(self._plan.name, self._context.plan.source(self._plan.source), self._plan.id)

    def commit_batch(
        self,
        batch: Batch,
        reached: Reached,
        views: Views,
        originals: Callable[[pa.Table], list[bytes | None]],
        offsets: str = "",
    ) -> Staged:
        """A batch through all statements, in order; the commit also says that it is done. `offsets` is for the ledger.
        What is returned is to be published: the batch may be released first."""
        with self._context.store.begin(locks=self.locks) as tx:
            reach("flow.begun")
            work = Work(self._context, tx, views, self._memory)
            run = BatchRun(self._plan, batch, work, self.letters(), reached, originals=originals)
            self._statements.run(run, self._plan.steps)
            staged = settle(work, self._plan.id, FlowEntry(batch.id, tuple(run.staged), reached.after, offsets))
            reach("flow.worked")
            tx.commit()
        return staged

    def close_windows(self, reached: int) -> None:
        """A commit without a batch: nothing is read, the watermark has gone on."""
        entry = self.entry
        with self._context.store.begin(locks=self.locks) as tx:
            work = Work(self._context, tx, self._views("mp_idle"), self._memory)
            batch = Batch.of(entry.batch, pa.table({}), pa.table({}))
            watermark = Reached(entry.watermark, reached)
            run = BatchRun(self._plan, batch, work, self.letters(), watermark, part=f"idle-{reached}")
            closed = [tell_closed(run, step) for step in closing(self._plan)]
            if not any(closed):
                return
            stage_outputs(run)
            staged = settle(work, self._plan.id, replace(entry, sinks=tuple(run.staged), watermark=reached))
            tx.commit()
        publish(self._context, staged)

    def release_waiting(self) -> None:
        """A commit without a batch: only events that waited go through the statements they waited in."""
        store, entry = self._context.store, self.entry
        number = store.get(RELEASED + self._plan.id) or 0
        outputs: Staged = []
        with store.begin(locks=self.locks) as tx:
            work = Work(self._context, tx, self._views("mp_waited"), self._memory)
            for step in self._plan.steps:
                if step.waiting:
                    held = work.table(step.waiting).to_arrow().slice(0, 0).drop_columns([c.name for c in BESIDE])
                    batch = Batch.of(entry.batch, held, pa.table({}))
                    watermark = Reached(entry.watermark, entry.watermark)
                    run = BatchRun(self._plan, batch, work, self.letters(), watermark, outputs)
                    self._statements.run_steps(replace(run, part=f"released-{number}"), (step,))
            tx.put(RELEASED + self._plan.id, number + 1)
            staged = settle(work, self._plan.id, replace(entry, sinks=tuple(outputs)))
            tx.commit()
        publish(self._context, staged)

    def _views(self, prefix: str) -> Views:
        return Views(self._context.spark, self._context.exchange, prefix)


def settle(work: Work, flow_id: str, entry: FlowEntry) -> Staged:
    """The end of a flow's transaction: views, what CHANGES statements tell, and how far the flow is. What is returned
    is to be published after the commit."""
    work.refresh()
    told = announce(work, flow_id)
    work.tx.put(flow_key(flow_id), entry.as_json())
    return [*entry.sinks, *told]


def _tables_written(plan: FlowPlan, context: Context) -> tuple[str, ...]:
    outside = (StepKind.SINK, StepKind.RELAY)
    written = {s.target for s in plan.steps if s.kind not in outside}
    companions = {c for s in plan.steps if s.aggregate for c in s.aggregate.companions}
    companions |= {s.waiting for s in plan.steps if s.waiting}
    views = {v.name for v in context.views_of(written)}
    return tuple(sorted(n.lower() for n in written | companions | views | {DEAD_LETTERS}))
