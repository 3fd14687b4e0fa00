"""The rows of a batch on which a statement fails, found by halves; they become dead letters and the rest is applied."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

import pyarrow as pa

from millpond.engine.batch import Batch
from millpond.engine.batch_run import BatchRun
from millpond.engine.emit import drop_outputs
from millpond.engine.rejected_rows import add_dead_letters
from millpond.engine.spark.spark_errors import HINTS, MESSAGE_MAX, translate
from millpond.engine.steps import run_step
from millpond.engine.work import Work
from millpond.errors import FlowError, MillpondError, TableError
from millpond.expressions.failures import RowFailed
from millpond.plan.model import Step
from millpond.redact import redact

# Errors that a row can cause; a full disk or a bug, for example, is not caused by a row.
CAUSED_BY_ROWS = ("MP401", "MP402", "MP403", "MP408", "MP413", "MP701", "MP702", "MP704")
# Violations of constraints: such an event becomes a dead letter whatever 'on.error' is.
VIOLATES_CONSTRAINT = ("MP401", "MP402", "MP403", "MP413")


@contextmanager
def failures_by_arrow(work: Work) -> Iterator[None]:
    """A statement that fails on a row while Arrow evaluates it fails at once. Otherwise Spark evaluates it again, to
    describe the failure; the search for the failing rows needs no description."""
    work.cache.reports_failures = True
    try:
        yield
    finally:
        work.cache.reports_failures = False


def run_without_failing_rows(run: BatchRun, step: Step, error: MillpondError) -> None:
    """Run a failed statement again without the failing rows, which become dead letters; raises errors that are not
    caused by rows."""
    if error.code not in CAUSED_BY_ROWS:
        raise error
    rows = run.batch.to_arrow()
    failing: dict[int, MillpondError] = {}
    _search(run, step, rows, list(range(rows.num_rows)), failing)
    others = [i for i in range(rows.num_rows) if i not in failing]
    if not failing:
        # No row fails by itself; Spark describes how they fail together.
        raise (_attempt(run, step, rows, keep=False) or error) if isinstance(error, RowFailed) else error
    _attempt(run, step, rows.take(pa.array(others, pa.int64())), keep=True)
    bad = rows.take(sorted(failing))
    errors = [failing[i].problems[0] for i in sorted(failing)]
    add_dead_letters(run, bad, [e.code for e in errors], [e.message for e in errors], applied=bad.slice(0, 0))


def _search(run: BatchRun, step: Step, rows: pa.Table, positions: list[int], failing: dict[int, MillpondError]) -> None:
    """Halve the rows until each part either succeeds or is one row."""
    if not positions:
        return
    part = rows.take(positions)
    with failures_by_arrow(run.work):
        error = _attempt(run, step, part, keep=False)
    if error is not None and len(positions) == 1:
        error = _described(error) or _attempt(run, step, part, keep=False)
    if error is None:
        return
    if len(positions) == 1:
        failing[positions[0]] = error
        return
    middle = len(positions) // 2
    _search(run, step, rows, positions[:middle], failing)
    _search(run, step, rows, positions[middle:], failing)


def _described(error: MillpondError) -> MillpondError | None:
    """A failure as Spark describes it; None if only Spark can."""
    if not isinstance(error, RowFailed):
        return error
    message = redact(error.sentence)[:MESSAGE_MAX]
    return FlowError("MP701", message, place=error.place, hint=HINTS["MP701"]) if message else None


def _attempt(run: BatchRun, step: Step, rows: pa.Table, *, keep: bool) -> MillpondError | None:
    """Run the statement on some rows; its changes are rolled back unless `keep`."""
    savepoint, outputs = run.work.savepoint(), len(run.outputs)
    batch = Batch.of(run.batch.id, rows, run.batch.bad)
    part = replace(run, batch=batch)
    try:
        run_step(part, step)
        failure = None
    except Exception as error:
        failure = translate(error, step.place, run.work.cache.several)
        if not isinstance(failure, FlowError | TableError) or failure.code not in CAUSED_BY_ROWS or keep:
            raise failure from error
    if not keep or failure is not None:
        run.work.rollback_to(savepoint)
        drop_outputs(run, outputs)
    return failure
