"""Views over tables that others write too: they are recomputed at each start, and then after changes.

That is every 'poll.interval', or, with 'cdc', when the server reports a change."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from millpond import registry
from millpond.contracts.table import ChangeWatch
from millpond.engine.app_context import Context
from millpond.engine.progress import READY, STALE
from millpond.engine.spark.transfer import Views
from millpond.engine.table_changes import announce, publish
from millpond.engine.work import Work
from millpond.errors import MillpondError
from millpond.plan.model import TablePlan

# A server may report a commit before it shows the rows to readers, so views are recomputed once more after this time.
SETTLE_S = 1.0


class SharedViews:
    """The views of an app over shared tables. `is_due` is asked by one thread, `refresh` is called by one at a time."""

    def __init__(self, context: Context, own_views: Callable[[], Views], clock: Callable[[], float] = time.monotonic):
        self._context, self._own_views, self._clock = context, own_views, clock
        # When the views over each shared table are due, by its name in lower case.
        self._due: dict[str, float] = {}
        self._watches: dict[str, ChangeWatch] = {}
        self._refreshing = threading.Lock()
        self.error: MillpondError | None = None

    def _due_tables(self) -> list[TablePlan]:
        now = self._clock()
        shared = [table for table in self._context.plan.tables if table.spec.values.get("shared")]
        return [table for table in shared if self._due.get(table.name.lower(), 0.0) <= now]

    @property
    def is_due(self) -> bool:
        if self._watches and self._refreshing.acquire(blocking=False):
            try:
                self._look()
            finally:
                self._refreshing.release()
        return bool(self._due_tables())

    def _look(self) -> None:
        """Note the tables of which the server reports changes."""
        followed = {t.name.lower() for t in self._context.plan.tables if t.spec.values.get("cdc")}
        for name, watch in list(self._watches.items()):
            if name not in followed:
                self._watches.pop(name).close()
                continue
            try:
                if watch.has_changes():
                    self._due[name] = 0.0
            except MillpondError:
                # It is opened again before the views are recomputed.
                self._watches.pop(name).close()
                self._due[name] = 0.0

    def refresh(self) -> None:
        """Recompute the views over the tables that are due; a failure is stored in `error`, never raised."""
        with self._refreshing:
            self._refresh(self._due_tables())

    def _refresh(self, tables: list[TablePlan]) -> None:
        views = [v for v in self._context.views_of({t.name for t in tables}) if not self._context.missing([v.name])]
        try:
            # Before the rows are read, so that no change is missed.
            opened = {table.name for table in tables if self._watched(table)}
            if views:
                self._recompute(views)
            self._become(views, READY, None)
        except MillpondError as error:
            opened = set()
            self._become(views, STALE, error)
        for table in tables:
            name = table.name.lower()
            is_second = self._due.get(name, 0.0) > 0.0
            if name in self._watches and self.error is None:
                settles = not is_second and table.name not in opened
                self._due[name] = self._clock() + SETTLE_S if settles else float("inf")
                continue
            interval_us = table.spec.values.get("poll.interval")
            pause_s = float("inf") if interval_us is None else interval_us / 1_000_000
            self._due[name] = self._clock() + pause_s

    def _watched(self, table: TablePlan) -> bool:
        """Follow the changes of a table with 'cdc'; whether that begins now."""
        name = table.name.lower()
        watch = registry.find("backend", table.spec.backend).watch
        if not table.spec.values.get("cdc") or watch is None or name in self._watches:
            return False
        self._watches[name] = watch(table.spec)
        return True

    def close(self) -> None:
        """Stop following changes."""
        with self._refreshing:
            while self._watches:
                self._watches.popitem()[1].close()

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
