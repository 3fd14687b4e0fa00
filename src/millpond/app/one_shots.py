"""One-shot statements, which read no stream: each runs once per state directory, BEGIN ... COMMIT as one."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from itertools import groupby

import pyarrow as pa

from millpond.app.show import explained
from millpond.contracts.sink import Mark
from millpond.contracts.stored_json import Json, JsonObject
from millpond.engine.app_context import Context
from millpond.engine.batch_run import Output
from millpond.engine.emit import stage
from millpond.engine.ledger import ONCE, forget_table
from millpond.engine.one_shot_changes import RUNNERS as CHANGES
from millpond.engine.one_shot_changes import change
from millpond.engine.readiness import Readiness, not_ready
from millpond.engine.spark.spark_errors import translate
from millpond.engine.spark.transfer import Dataset, Views
from millpond.engine.table_changes import announce, publish
from millpond.engine.work import Work
from millpond.errors import MillpondError, Place, Severity
from millpond.plan.missing import SKIP
from millpond.plan.model import OneShot, Plan
from millpond.relational.compiled import QueryCache
from millpond.sql.statements import (
    CreateIndex,
    Delete,
    Describe,
    Drop,
    Explain,
    Insert,
    Merge,
    Name,
    Show,
    Statement,
    Update,
    Upsert,
)


class OneShots:
    """Runs the one-shot statements of a plan; `answer` evaluates SHOW and DESCRIBE."""

    def __init__(self, context: Context, views: Views, answer: Callable[[Statement], pa.Table]) -> None:
        self._context = context
        self._views = views
        self._answer = answer
        # Statements that have run since this start, and those that wait for a table, with an error once they cannot
        # run.
        self._done: set[str] = set()
        self._held: dict[str, MillpondError | None] = {}
        self._failed: set[str] = set()

    def run(self, plan: Plan, readiness: Readiness, *, late: bool = False) -> None:
        """Run the statements that have not run, in order. One that reads a table that is not ready is postponed, and so
        is every later statement that uses the same tables. The first failure is raised and ends the run."""
        held: set[str] = set()
        for group in _groups(shot for shot in plan.one_shots if shot.late is late and not shot.early):
            if all(self._is_done(shot) for shot in group):
                continue
            touched = {name for shot in group for name in _tables(shot)}
            missing = self._context.missing(a.table for shot in group for a in shot.reads)
            if missing or touched & (held | self._context.held):
                held |= touched
                self._hold(group, missing, readiness)
                continue
            self._run_group(group)
            for shot in group:
                self._done.add(shot.id)
                self._held.pop(shot.id, None)

    def forget_others(self, plan: Plan) -> None:
        """Called after a switch to another plan: statements that are not in it no longer wait."""
        known = {shot.id for shot in plan.one_shots}
        self._held = {id_: error for id_, error in self._held.items() if id_ in known}
        self._failed = set()

    def _is_done(self, shot: OneShot) -> bool:
        """Whether it has run: since this start, or ever where it runs once only."""
        return shot.id in self._done or (not shot.repeat and self._context.store.get(ONCE + shot.id) is not None)

    def _hold(self, group: tuple[OneShot, ...], missing: tuple[str, ...], readiness: Readiness) -> None:
        """Record why statements do not run yet: it is a failure if their table cannot become ready any more."""
        lost = [name for name in missing if readiness.is_lost(name)]
        for shot in group:
            error = not_ready("The statement reads", lost[0], readiness.state(lost[0]), shot.place) if lost else None
            if error is not None and self._skips and self._held.get(shot.id) is None:
                self._context.notices.append(replace(error.problems[0], severity=Severity.WARNING))
            self._held[shot.id] = error

    @property
    def _skips(self) -> bool:
        """Whether a statement whose table failed is skipped; it runs at a later start."""
        return bool(self._context.plan.settings["on.table.missing"] == SKIP)

    @property
    def is_pending(self) -> bool:
        """Whether a postponed statement may still run."""
        return any(error is None for error in self._held.values())

    @property
    def errors(self) -> tuple[MillpondError, ...]:
        """The errors of statements that cannot run any more."""
        return () if self._skips else tuple(e for e in self._held.values() if e is not None)

    def left(self, plan: Plan) -> tuple[Place, ...]:
        """The places of statements that have not run, without the one that failed."""
        return tuple(s.place for s in plan.one_shots if not self._is_done(s) and s.id not in self._failed)

    def _run_group(self, group: tuple[OneShot, ...]) -> None:
        """Run the statements of a transaction together; all of them fail when one does."""
        place, cache = group[0].place, QueryCache()
        try:
            with self._context.store.begin() as tx:
                published: list[tuple[str, JsonObject]] = []
                work = Work(self._context, tx, self._views, cache)
                for shot in (s for s in group if not self._is_done(s)):
                    place = shot.place
                    self._run(work, shot, published)
                    if not shot.repeat:
                        outputs: list[Json] = [{"sink": sink, "staged": what} for sink, what in published]
                        tx.put(ONCE + shot.id, {"sinks": outputs})
                work.refresh()
                staged = announce(work, "once")
                tx.commit()
        except Exception as error:
            self._failed = {shot.id for shot in group}
            raise translate(error, place, cache.several) from error
        for sink, what in published:
            self._context.sinks[sink].publish(what)
        publish(self._context, staged)

    def _run(self, work: Work, shot: OneShot, published: list[tuple[str, JsonObject]]) -> None:
        statement = shot.statement
        if isinstance(statement, CreateIndex):
            self._context.store.table(statement.table.text).create_index(*(c.text for c in statement.columns))
        elif isinstance(statement, Drop):
            forget_table(self._context.store, statement.name.text)
        elif shot.sink is not None:
            self._write(work, shot, published)
        elif type(statement) in CHANGES:
            change(work, shot)

    def _write(self, work: Work, shot: OneShot, published: list[tuple[str, JsonObject]]) -> None:
        """Write the rows of a query over tables, or of SHOW and DESCRIBE, to a sink."""
        assert shot.sink is not None
        if isinstance(shot.statement, Explain):
            rows: Dataset = explained(shot)
        elif isinstance(shot.statement, Show | Describe):
            rows = self._answer(shot.statement)
        else:
            assert shot.query is not None
            rows = work.result(shot.query)
        staged = stage(work, Output(shot.sink, rows, Mark(f"once-{shot.id}", 0, 0)))
        if staged is not None:
            published.append((shot.sink, staged))


def _tables(shot: OneShot) -> set[str]:
    """The tables that a statement reads or changes, in lower case."""
    found = {access.table.lower() for access in shot.reads}
    statement = shot.statement
    if isinstance(statement, Update | Delete | Merge | CreateIndex):
        found.add(statement.table.key)
    elif isinstance(statement, Insert | Upsert) and isinstance(statement.target, Name):
        found.add(statement.target.key)
    return found


def _groups(shots: Iterable[OneShot]) -> Iterator[tuple[OneShot, ...]]:
    """Statements of one transaction together, others alone."""
    for _, group in groupby(shots, lambda shot: shot.id if shot.transaction is None else shot.transaction):
        yield tuple(group)
