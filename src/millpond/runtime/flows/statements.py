"""The statements of a flow over one batch, in order: what bad records, absent tables and failing rows do to them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from millpond.errors import FlowError
from millpond.plan.model import FlowPlan, Step
from millpond.runtime.context import Context
from millpond.runtime.flows.absence import Absence
from millpond.runtime.flows.batch_run import BatchRun
from millpond.runtime.flows.blame import BREAKS_RULE, run_without_the_guilty
from millpond.runtime.flows.groups import Groups
from millpond.runtime.flows.interruption import UNREACHABLE
from millpond.runtime.flows.staging import drop_outputs, stage_outputs
from millpond.runtime.flows.steps import run_step
from millpond.runtime.flows.waiting import hold_back
from millpond.runtime.spark.errors import translate


class Statements:
    """Of one flow; run inside a transaction, by one thread at a time."""

    def __init__(self, plan: FlowPlan, context: Context) -> None:
        self._plan = plan
        self._source = context.plan.source(plan.source)
        self._absence = Absence(plan, context)

    def run(self, run: BatchRun, steps: Sequence[Step]) -> None:
        """Bad records put aside, and the others sent through statements, in order."""
        self._put_bad_records_aside(run)
        self.run_steps(run, steps)
        if run.batch.finish():
            self._put_bad_records_aside(run)

    def run_steps(self, run: BatchRun, steps: Sequence[Step]) -> None:
        """Statements, in order; those that change a table together event by event."""
        groups = Groups(self._plan, steps, self._run_guarded)
        run = replace(run, groups=groups)
        for step in steps:
            groups.before(run, step)
            self._run_step(run, step)
            groups.after(run, step)

    def _run_step(self, run: BatchRun, step: Step) -> None:
        """One statement; one that waits for joined rows gets the events that need not wait any longer as well."""
        if step.waiting:
            run = hold_back(run, step)
        if not self._absence.skips(run, step):
            self._run_guarded(replace(run, letters=run.letters.of(self._plan, step)), step)

    def _run_guarded(self, run: BatchRun, step: Step) -> None:
        """One statement; its failing rows are put aside where that is asked for."""
        savepoint = run.work.savepoint()
        try:
            run_step(run, step)
        except Exception as error:
            failure = translate(error, step.place, run.work.memory.several)
            stays = step.options.get("on.error") != "dead-letter" and failure.code not in BREAKS_RULE
            if stays or failure.code in UNREACHABLE:
                raise failure from error
            run.work.rollback_to(savepoint)
            drop_outputs(run)
            run_without_the_guilty(run, step, failure)
        try:
            stage_outputs(run)
        except Exception as error:
            raise translate(error, step.place, run.work.memory.several) from error

    def tell_skipped(self) -> None:
        """Warn of the events for which statements were skipped because a table was not there."""
        self._absence.tell()

    def _put_bad_records_aside(self, run: BatchRun) -> None:
        bad, policy = run.batch.bad, self._bad_record_policy()
        if not bad.num_rows or policy == "skip":
            return
        if policy == "fail":
            reason = bad["_mp_bad"][0].as_py()
            hint = "Repair the record, or set 'on.bad.record' to 'dead-letter' or 'skip'."
            raise FlowError("MP504", f"A record of {self._source.spec.shown} cannot be read: {reason}", hint=hint)
        run.letters.add_bad_records(run.work.tx, bad)

    def _bad_record_policy(self) -> str:
        """Records are read once for all statements, so the most careful of their policies holds."""
        wanted = {step.options.get("on.bad.record", "dead-letter") for step in self._plan.steps}
        return next((policy for policy in ("fail", "dead-letter", "skip") if policy in wanted), "dead-letter")
