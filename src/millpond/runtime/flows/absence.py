"""Statements of a flow whose tables are not there yet: skipped and counted, or run with NULLs or defaults."""

from __future__ import annotations

from millpond.plan.absent import DEFAULTS, NULLS, SKIP, Absent
from millpond.plan.model import FlowPlan, Step
from millpond.runtime.context import Context
from millpond.runtime.flows.batch_run import BatchRun
from millpond.runtime.readiness import waits


class Absence:
    """Of one flow that was let begin: no statement of it waits. Counts live until they are told."""

    def __init__(self, flow: FlowPlan, context: Context) -> None:
        self._flow = flow
        self._context = context
        self._skipped: dict[int, int] = {}

    def skips(self, run: BatchRun, step: Step) -> bool:
        """Whether a statement is to be skipped for this batch; one that is not is told which tables are absent."""
        absent = set(self._context.missing(a.table for a in step.reads))
        absent -= self._context.own_tables(self._flow) if absent else set()
        policy = step.options.get("on.table.missing", "")
        if absent and policy == SKIP:
            self._skipped[step.index] = self._skipped.get(step.index, 0) + run.batch.rows
            return True
        # A view over an absent table is absent itself.
        names = frozenset(a.table.lower() for a in step.reads if absent & self._context.inputs_of({a.table}))
        done_without = policy in (NULLS, DEFAULTS)
        run.work.absent = Absent(names, names & self._context.held, policy) if done_without else Absent()
        self._tell(step)
        return False

    def tell(self) -> None:
        """Warn of the events that were skipped."""
        for step in self._flow.steps:
            self._tell(step)

    def _tell(self, step: Step) -> None:
        count = self._skipped.pop(step.index, 0)
        if count:
            message = f"The statement was skipped for {count} event{'s' * (count != 1)}: a table of it was not there."
            hint = "They are not read again; 'on.table.missing' = 'wait' would hold the flow back instead."
            self._context.notices.append(waits(message, step.place, hint))
