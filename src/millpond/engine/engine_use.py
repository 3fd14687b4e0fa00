"""Engine use: the batches, rows and seconds of each statement by the engine that evaluated them, kept over restarts."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pyspark.sql import DataFrame

from millpond.contracts.evaluator import Engine
from millpond.contracts.table import Store, Transaction
from millpond.engine.batch_run import BatchRun, Timed
from millpond.engine.ledger import ENGINES
from millpond.engine.progress import StatementProgress
from millpond.histogram import Histogram
from millpond.plan.definition import plain_text
from millpond.plan.model import FlowPlan, Step
from millpond.plan.source_catalog import short_hash

# The counts are statistics: they are not part of every commit, and a crash may lose those of the last seconds.
PUT_INTERVAL_S = 5.0


@dataclass
class Use:
    """What one engine has done."""

    batches: int = 0
    rows: int = 0
    seconds: float = 0.0

    def add(self, rows: int, seconds: float) -> None:
        self.batches += 1
        self.rows += rows
        self.seconds += seconds

    @property
    def batch_ms(self) -> float:
        return round(self.seconds * 1000 / self.batches, 1) if self.batches else 0.0


def none_used() -> dict[Engine, Use]:
    return {engine: Use() for engine in Engine}


class EngineUse:
    """The engine use of one flow. Written by the thread of its batches, read by any."""

    def __init__(
        self, plan: FlowPlan, targets: Mapping[str, str], store: Store, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._key = ENGINES + plan.id
        self._flow = plan.name
        self._targets = {step.index: targets.get(step.target, step.target) for step in plan.steps}
        self._steps = {step.index: step for step in plan.steps}
        self._clock = clock
        self._put_at = clock()
        found = {entry["name"]: entry["uses"] for entry in store.get(self._key) or ()}
        # Counts of statements that are no longer in the file are removed; the others are kept, wherever a statement is
        # now.
        self._statements = {step.index: _read(found.get(_name(step), {})) for step in plan.steps}
        # Batches of this run; a batch in which Spark evaluated any statement counts as Spark's.
        self.batches = none_used()
        self.durations = {engine: Histogram() for engine in Engine}
        # Events of this run that found no row because their time was before the history of a table.
        self.outside = 0

    def add(self, rows: int, seconds: float, timed: Sequence[Timed], outside: int = 0) -> None:
        """Count a committed batch."""
        self.outside += outside
        for done in timed:
            self._statements[done.index][done.engine].add(rows, done.seconds)
        engine = Engine.SPARK if any(done.engine is Engine.SPARK for done in timed) else Engine.ARROW
        self.batches[engine].add(rows, seconds)
        self.durations[engine].add(seconds)

    def put(self, tx: Transaction, *, now: bool = False) -> None:
        """Add the counts to a commit, if the interval has passed."""
        if now or self._clock() - self._put_at >= PUT_INTERVAL_S:
            self._put_at = self._clock()
            tx.put(self._key, self.as_json())

    def as_json(self) -> list[dict[str, Any]]:
        """The counts of each statement, as they are stored."""
        return [
            {
                "name": _name(step),
                "flow": self._flow,
                "line": step.place.line,
                "target": self._targets[index],
                "uses": {
                    str(engine): [use.batches, use.rows, round(use.seconds, 3)]
                    for engine, use in self._statements[index].items()
                },
            }
            for index, step in self._steps.items()
        ]


def statement_lines(entries: Sequence[Mapping[str, Any]]) -> Iterator[StatementProgress]:
    """Stored counts as shown by SHOW STATEMENTS: one line for each engine that was used."""
    for entry in entries:
        for engine, use in _read(entry["uses"]).items():
            if use.batches:
                where = entry["flow"], entry["line"], entry["target"]
                yield StatementProgress(*where, str(engine), use.batches, use.rows, use.batch_ms)


def timed(run: BatchRun, step: Step, asked: int, seconds: float) -> Timed:
    """The engine of a finished statement: Spark if its batch is in Spark, or if Spark was used since `asked`."""
    in_spark = isinstance(run.batch.relation, DataFrame) or run.work.views.asked > asked
    return Timed(step.index, Engine.SPARK if in_spark else Engine.ARROW, seconds)


def _name(step: Step) -> str:
    """The identity of a statement by its text, so that an edited file keeps the counts of the others."""
    return short_hash(plain_text(step.statement)) if step.statement is not None else step.target


def _read(found: Mapping[str, Sequence[Any]]) -> dict[Engine, Use]:
    return none_used() | {Engine(name): Use(int(b), int(r), float(s)) for name, (b, r, s) in found.items()}
