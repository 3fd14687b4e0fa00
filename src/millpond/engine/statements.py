"""Runs the statements of a flow on one batch, in order, and handles bad records, missing tables and failing rows."""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import replace

from millpond.engine.app_context import Context
from millpond.engine.availability import UNREACHABLE
from millpond.engine.batch_run import BatchRun
from millpond.engine.emit import drop_outputs, stage_outputs
from millpond.engine.engine_use import timed
from millpond.engine.failing_rows import VIOLATES_CONSTRAINT, failures_by_arrow, run_without_failing_rows
from millpond.engine.over_streams import with_windows
from millpond.engine.readiness import waits
from millpond.engine.seen_versions import with_versions
from millpond.engine.spark.spark_errors import translate
from millpond.engine.statement_groups import PendingGroups
from millpond.engine.steps import run_step
from millpond.engine.waiting_events import hold_back
from millpond.errors import FlowError
from millpond.plan.missing import DEFAULTS, NULLS, SKIP, Absent
from millpond.plan.model import FlowPlan, Step


class Absence:
    """Missing tables of a started flow: statements are skipped or run without them, and skipped events are counted
    until they are reported."""

    def __init__(self, flow: FlowPlan, context: Context) -> None:
        self._flow = flow
        self._context = context
        self._skipped: dict[int, int] = {}

    def skips(self, run: BatchRun, step: Step) -> bool:
        """Whether a statement is skipped for this batch; otherwise `run.work.absent` is set to its missing tables."""
        absent = set(self._context.missing(a.table for a in step.reads))
        absent -= self._context.own_tables(self._flow) if absent else set()
        policy = step.options.get("on.table.missing", "")
        if absent and policy == SKIP:
            self._skipped[step.index] = self._skipped.get(step.index, 0) + run.batch.rows
            return True
        # A view over a missing table is missing too.
        names = frozenset(a.table.lower() for a in step.reads if absent & self._context.inputs_of({a.table}))
        done_without = policy in (NULLS, DEFAULTS)
        run.work.absent = Absent(names, names & self._context.held, policy) if done_without else Absent()
        self._report(step)
        return False

    def report(self) -> None:
        """Warn about skipped events."""
        for step in self._flow.steps:
            self._report(step)

    def _report(self, step: Step) -> None:
        count = self._skipped.pop(step.index, 0)
        if count:
            message = f"The statement was skipped for {count} event{'s' * (count != 1)}, because a table was missing."
            hint = "They are not processed again; with 'on.table.missing' = 'wait' the flow would wait instead."
            self._context.notices.append(waits(message, step.place, hint))


def _windowed(run: BatchRun, step: Step) -> BatchRun:
    try:
        return with_windows(with_versions(run, step), step)
    except Exception as error:
        raise translate(error, step.place, run.work.cache.several) from error


class Statements:
    """The statements of one flow; run inside a transaction, by one thread at a time."""

    def __init__(self, plan: FlowPlan, context: Context) -> None:
        self._plan, self._context = plan, context
        self._source = context.plan.source(plan.source)
        self._absence = Absence(plan, context)

    def run(self, run: BatchRun, steps: Sequence[Step]) -> None:
        """Add dead letters for bad records, and run the statements on the others, in order."""
        self._add_bad_records(run)
        self.run_steps(run, steps)
        # A batch in Spark learns of its last bad records only when it was read to the end.
        if run.batch.finish():
            self._add_bad_records(run)

    def run_steps(self, run: BatchRun, steps: Sequence[Step]) -> None:
        """Run statements in order; those that change a table together are applied event by event."""
        groups = PendingGroups(self._plan, steps, self._run_guarded)
        run = replace(run, groups=groups)
        for step in steps:
            started, asked = time.monotonic(), run.work.views.asked
            groups.before(run, step)
            self._run_step(run, step)
            groups.after(run, step)
            run.timed.append(timed(run, step, asked, time.monotonic() - started))

    def _run_step(self, run: BatchRun, step: Step) -> None:
        """Run one statement; with 'on.missing' = 'wait' it also gets the events whose wait has ended."""
        if step.waiting:
            run = hold_back(run, step)
        if not self._absence.skips(run, step):
            run = replace(run, letters=run.letters.of(self._plan, step))
            if step.over is not None:
                # Once for the whole batch: a row that fails later has been seen by the window functions nevertheless.
                run, step = _windowed(run, step), replace(step, over=None)
            self._run_guarded(run, step)

    def _run_guarded(self, run: BatchRun, step: Step) -> None:
        """Run one statement; its failing rows become dead letters if 'on.error' is set so."""
        savepoint = run.work.savepoint()
        rejects_rows = step.options.get("on.error") == "dead-letter"
        try:
            with failures_by_arrow(run.work) if rejects_rows else nullcontext():
                run_step(run, step)
        except Exception as error:
            failure = translate(error, step.place, run.work.cache.several)
            stays = not rejects_rows and failure.code not in VIOLATES_CONSTRAINT
            if stays or failure.code in UNREACHABLE or self._context.state.storage_failure() is not None:
                raise failure from error
            run.work.rollback_to(savepoint)
            drop_outputs(run)
            run_without_failing_rows(run, step, failure)
        try:
            stage_outputs(run)
        except Exception as error:
            raise translate(error, step.place, run.work.cache.several) from error

    def report_skipped(self) -> None:
        """Warn about events for which statements were skipped because a table was missing."""
        self._absence.report()

    def _add_bad_records(self, run: BatchRun) -> None:
        bad, policy = run.batch.bad, self._bad_record_policy()
        if not bad.num_rows or policy == "skip":
            return
        if policy == "fail":
            reason = bad["_mp_bad"][0].as_py()
            hint = "Correct the record, or set 'on.bad.record' to 'dead-letter' or 'skip'."
            raise FlowError("MP504", f"A record of {self._source.spec.shown} cannot be read: {reason}", hint=hint)
        run.letters.add_bad_records(run.work.tx, bad)

    def _bad_record_policy(self) -> str:
        """Records are read once for all statements, so the strictest of their policies applies."""
        wanted = {step.options.get("on.bad.record", "dead-letter") for step in self._plan.steps}
        return next((policy for policy in ("fail", "dead-letter", "skip") if policy in wanted), "dead-letter")
