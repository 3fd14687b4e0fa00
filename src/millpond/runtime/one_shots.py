"""Statements without a stream: each runs once per state directory, a BEGIN ... COMMIT as one."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import groupby

import pyarrow as pa

from millpond.contracts.sink import Mark
from millpond.plan.model import OneShot, Plan
from millpond.runtime.access import Views, arrow_frame
from millpond.runtime.announcing import announce, publish
from millpond.runtime.changes import RUNNERS as CHANGES
from millpond.runtime.changes import change
from millpond.runtime.context import Context
from millpond.runtime.ledger import ONCE
from millpond.runtime.work import Work
from millpond.sql.statements import CreateIndex, Describe, Drop, Explain, Show, Statement


class OneShots:
    """Runs the one-shot statements of a plan; `answer` is asked for SHOW, DESCRIBE and EXPLAIN."""

    def __init__(self, context: Context, views: Views, answer: Callable[[Statement], pa.Table]) -> None:
        self._context = context
        self._views = views
        self._answer = answer

    def run(self, plan: Plan, *, late: bool = False, early: bool = False) -> int:
        """Run those that have not run, in order; returns the rows changed. The first failure ends it and is raised."""
        due = [shot for shot in plan.one_shots if shot.late is late and shot.early is early]
        return sum(self._run_group(group) for group in _groups(due))

    def _run_group(self, group: tuple[OneShot, ...]) -> int:
        due = [s for s in group if s.repeat or self._context.store.get(ONCE + s.id) is None]
        if not due:
            return 0
        changed = 0
        with self._context.store.begin() as tx:
            work = Work(self._context, tx, self._views)
            published: list[tuple[str, dict[str, object]]] = []
            for shot in due:
                changed += self._run(work, shot, published)
                if not shot.repeat:
                    staged = [{"sink": sink, "staged": what} for sink, what in published]
                    tx.put(ONCE + shot.id, {"sinks": staged})
            work.refresh()
            told = announce(work, "once")
            tx.commit()
        for sink, what in published:
            self._context.sinks[sink].publish(what)
        publish(self._context, told)
        return changed

    def _run(self, work: Work, shot: OneShot, published: list[tuple[str, dict[str, object]]]) -> int:
        statement = shot.statement
        if isinstance(statement, CreateIndex):
            self._context.store.table(statement.table.text).create_index(*(c.text for c in statement.columns))
        elif isinstance(statement, Drop):
            self._context.store.drop(statement.name.text)
        elif shot.sink is not None:
            self._write(work, shot, published)
        elif type(statement) in CHANGES:
            return change(work, shot)
        return 0

    def _write(self, work: Work, shot: OneShot, published: list[tuple[str, dict[str, object]]]) -> None:
        """A query over tables, or an answer about them, into a sink."""
        assert shot.sink is not None
        if isinstance(shot.statement, Show | Describe | Explain):
            rows = arrow_frame(self._views.session, self._answer(shot.statement))
        else:
            assert shot.query is not None
            rows = work.query(shot.query)
        staged = self._context.sinks[shot.sink].stage(rows, Mark(f"once-{shot.id}", 0, 0))
        if staged is not None:
            published.append((shot.sink, staged))


def _groups(shots: Iterable[OneShot]) -> Iterator[tuple[OneShot, ...]]:
    """Statements of one transaction together, others alone."""
    for _, group in groupby(shots, lambda shot: shot.id if shot.transaction is None else shot.transaction):
        yield tuple(group)
