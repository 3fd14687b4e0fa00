"""Which rows of a batch make a statement fail, found by halves; they step aside and the rest goes through."""

from __future__ import annotations

from dataclasses import replace

import pyarrow as pa

from millpond.errors import FlowError, MillpondError, TableError
from millpond.plan.model import Step
from millpond.runtime.flows.aside import put_aside
from millpond.runtime.flows.batch import Batch
from millpond.runtime.flows.batch_run import BatchRun
from millpond.runtime.flows.staging import drop_outputs
from millpond.runtime.flows.steps import run_step
from millpond.runtime.spark.errors import translate

# Errors that a row can be blamed for; a full disk or a bug is nobody's.
BLAMED = ("MP401", "MP402", "MP403", "MP408", "MP413", "MP701", "MP702", "MP704")
# Of these an event goes to the dead letters whatever 'on.error' says: it would break a rule of the table.
BREAKS_RULE = ("MP401", "MP402", "MP403", "MP413")


def run_without_the_guilty(run: BatchRun, step: Step, error: MillpondError) -> None:
    """Run a statement that failed again without the rows to blame, which become dead letters; raises what no row can
    be blamed for."""
    if error.code not in BLAMED:
        raise error
    rows = run.batch.to_arrow()
    guilty: dict[int, MillpondError] = {}
    _search(run, step, rows, list(range(rows.num_rows)), guilty)
    innocent = [i for i in range(rows.num_rows) if i not in guilty]
    if not guilty:
        raise error
    _attempt(run, step, rows.take(pa.array(innocent, pa.int64())), keep=True)
    bad = rows.take(sorted(guilty))
    errors = [guilty[i].problems[0] for i in sorted(guilty)]
    put_aside(run, bad, [e.code for e in errors], [e.message for e in errors], applied=bad.slice(0, 0))


def _search(run: BatchRun, step: Step, rows: pa.Table, positions: list[int], guilty: dict[int, MillpondError]) -> None:
    """Halve the rows until each part either goes through or is one row."""
    if not positions:
        return
    error = _attempt(run, step, rows.take(positions), keep=False)
    if error is None:
        return
    if len(positions) == 1:
        guilty[positions[0]] = error
        return
    middle = len(positions) // 2
    _search(run, step, rows, positions[:middle], guilty)
    _search(run, step, rows, positions[middle:], guilty)


def _attempt(run: BatchRun, step: Step, rows: pa.Table, *, keep: bool) -> MillpondError | None:
    """Run the statement on some rows; what it did is undone unless it is to be kept."""
    savepoint, outputs = run.work.savepoint(), len(run.outputs)
    batch = Batch.of(run.batch.id, rows, run.batch.bad)
    part = replace(run, batch=batch)
    try:
        run_step(part, step)
        failure = None
    except Exception as error:
        failure = translate(error, step.place, run.work.memory.several)
        if not isinstance(failure, FlowError | TableError) or failure.code not in BLAMED or keep:
            raise failure from error
    if not keep or failure is not None:
        run.work.rollback_to(savepoint)
        drop_outputs(run, outputs)
    return failure
