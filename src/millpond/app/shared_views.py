"""Views over tables that others write too: they are recomputed at each start, and again every 'poll.interval'."""

from __future__ import annotations

import time
from collections.abc import Callable

from millpond.engine.app_context import Context
from millpond.engine.progress import READY, STALE
from millpond.engine.spark.transfer import Views
from millpond.engine.table_changes import announce, publish
from millpond.engine.work import Work
from millpond.errors import MillpondError
from millpond.plan.model import TablePlan


class SharedViews:
    """The views of an app over shared tables. Used by one thread at a time."""

    def __init__(self, context: Context, own_views: Callable[[], Views], clock: Callable[[], float] = time.monotonic):
        self._context, self._own_views, self._clock = context, own_views, clock
        # When the views over each shared table are due, by its name in lower case.
        self._due: dict[str, float] = {}
        self.error: MillpondError | None = None

    def _due_tables(self) -> list[TablePlan]:
        now = self._clock()
        shared = [table for table in self._context.plan.tables if table.spec.values.get("shared")]
        return [table for table in shared if self._due.get(table.name.lower(), 0.0) <= now]

    @property
    def is_due(self) -> bool:
        return bool(self._due_tables())

    def refresh(self) -> None:
        """Recompute the views over the tables that are due; a failure is stored in `error`, never raised."""
        tables = self._due_tables()
        views = [v for v in self._context.views_of({t.name for t in tables}) if not self._context.missing([v.name])]
        try:
            if views:
                self._recompute(views)
            self._become(views, READY, None)
        except MillpondError as error:
            self._become(views, STALE, error)
        for table in tables:
            interval_us = table.spec.values.get("poll.interval")
            pause_s = float("inf") if interval_us is None else interval_us / 1_000_000
            self._due[table.name.lower()] = self._clock() + pause_s

    def _become(self, views: list[TablePlan], state: str, error: MillpondError | None) -> None:
        self.error = error
        for view in views:
            self._context.table_states[view.name.lower()] = state

    def _recompute(self, views: list[TablePlan]) -> None:
        """One commit with all views as they are now, and their CHANGES."""
        context, own = self._context, self._own_views()
        inputs = context.inputs_of({view.name for view in views})
        locked = [name for name in context.store.names() if name.lower() in inputs]
        writer = context.writers.take()
        try:
            with context.store.begin(locks=locked) as tx:
                tx.before_commit = None
                work = Work(context, tx, own)
                for view in views:
                    work.mark_view_stale(view.name)
                work.refresh()
                staged = announce(work, writer)
                tx.commit()
            publish(context, staged)
        finally:
            own.drop()
            context.writers.give_back(writer)
