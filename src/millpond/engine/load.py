"""Tables loaded from a source: read in parts, compared with the table, and applied."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa

from millpond.contracts.feeder import Content, RowForm, TableReader
from millpond.contracts.source import SourceStatus
from millpond.contracts.table import Transaction
from millpond.engine.app_context import Context
from millpond.engine.availability import UNREACHABLE, SourceOpening, health_of
from millpond.engine.dead_letters import NAME as DEAD_LETTERS
from millpond.engine.ledger import LOAD
from millpond.engine.progress import FAILED, LOADING, READY, RETRYING, STALE, LoadProgress, Meter
from millpond.engine.spark.spark_errors import translate
from millpond.engine.spark.transfer import Views
from millpond.engine.table_changes import announce, publish
from millpond.engine.table_content import ContentReader, LoadedRows, LoadLimits, Spool
from millpond.engine.work import Work
from millpond.errors import MillpondError
from millpond.faults import reach
from millpond.plan.model import SourcePlan, TablePlan
from millpond.registry import find

# How often a source is checked if it does not set an interval.
INTERVAL_S = 1.0


@dataclass(frozen=True)
class Loaded:
    """What is stored with a table's rows: the source's fingerprint, and its own mark."""

    fingerprint: str | None
    mark: Any = None

    @classmethod
    def of(cls, entry: Any) -> Loaded | None:
        """An entry of the ledger; a string is one of an earlier version."""
        if entry is None:
            return None
        return cls(entry) if isinstance(entry, str) else cls(entry["fingerprint"], entry["mark"])

    def as_json(self) -> dict[str, Any]:
        return {"fingerprint": self.fingerprint, "mark": self.mark}


class Loader:
    """Loads one table, again whenever its source has changed. States: missing -> retrying ->
    loading -> ready -> stale | failed."""

    def __init__(self, plan: TablePlan, context: Context, clock: Callable[[], float] = time.monotonic) -> None:
        assert plan.source is not None
        self.plan = plan
        self.source: SourcePlan = context.plan.source(plan.source)
        self.error: MillpondError | None = None
        self.meter = Meter()
        self.reader: TableReader | None = None
        self.opening = SourceOpening(self.source)
        self._plugin = find("source", self.source.type)
        self._context, self._clock = context, clock
        # When the last load started and ended.
        self._began: float | None = None
        self._ended: float | None = None
        self._rows_read = 0
        # The checks of the source that were started, and that have ended; and when the next is due.
        self.looks_begun = self.looks_ended = 0
        self._next_look = 0.0
        self._delays: Iterator[float] | None = None
        self._retries = 0

    def of(self, plan: TablePlan) -> Loader:
        """Use the same table of a new plan, which may have other places."""
        self.plan = plan
        return self

    @property
    def is_pending(self) -> bool:
        """Whether its missing source is still retried."""
        return self.opening.is_pending

    @property
    def state(self) -> str:
        return self._context.table_states.get(self.plan.name.lower(), "missing")

    @property
    def is_due(self) -> bool:
        """Whether a check of its source is due: if it is watched, or was unavailable."""
        wanted = self.plan.watch or self._is_away
        return wanted and not self.is_pending and self._clock() >= self._next_look

    @property
    def _is_away(self) -> bool:
        return self.error is not None and self.error.code in UNREACHABLE and self.state == STALE

    def load_progress(self) -> LoadProgress | None:
        """How far the current load is, or how the last one ended; None before the first. Callable from any thread."""
        if self.reader is None or self._began is None:
            return None
        read = self.reader.progress()
        seconds = max((self._ended or self._clock()) - self._began, 0.001)
        done = self._rows_read if read.unit == "rows" else read.done
        share = done / read.total if read.total else 0.0
        left = None if self._ended is not None or not share else seconds * max(1 - share, 0.0) / share
        return LoadProgress(done, read.total, read.unit, self._rows_read, self._rows_read / seconds, left)

    def status(self) -> SourceStatus:
        """For SHOW SOURCES; callable from any thread."""
        if self.reader is None:
            return self.opening.status()
        known = SourceStatus(
            rows=self._rows_read, updated_at=self.meter.updated_at, retries=self._retries + self.opening.retries
        )
        if self.error is not None and self.error.code.startswith("MP5"):
            detail = self.error.problems[0].message
            known = replace(known, state=self.state, health=health_of(self.error.code), detail=detail)
        return self.reader.status(known)

    def _become(self, state: str) -> None:
        self._context.table_states[self.plan.name.lower()] = state

    def load(self) -> None:
        """Load if the source has changed since the last load; a failure is stored in `error`, never raised."""
        self.looks_begun += 1
        self._load_if_changed()
        if self.reader is not None:
            self._context.notices.extend(self.reader.problems())
        self._next_look = self._clock() + self._pause_s()
        self.looks_ended = self.looks_begun

    def _pause_s(self) -> float:
        """The time until the next check: an unavailable source is checked less and less often."""
        if self.error is not None and self.error.code in UNREACHABLE:
            self._retries += 1
            if self._delays is None and self._plugin.patience is not None:
                self._delays = self._plugin.patience(self.source.spec).delays_s
            return next(self._delays) if self._delays is not None else INTERVAL_S
        self._delays = None
        return (self.reader.interval_s if self.reader is not None else None) or INTERVAL_S

    def _load_if_changed(self) -> None:
        before = self.state
        try:
            if self.reader is None and not self._open():
                self._become(STALE if before in (READY, STALE) else RETRYING)
                return
            assert self.reader is not None
            fingerprint = self.reader.fingerprint()
            if self.plan.name.lower() in self._context.held:
                return
            loaded = self._loaded()
            if loaded is None or fingerprint is None or loaded.fingerprint != fingerprint:
                # Rows that were loaded before stay usable meanwhile.
                self._become(before if before in (READY, STALE) else LOADING)
                content = self.reader.read(None if loaded is None else loaded.mark)
                self._load(self.reader, content, fingerprint, loaded)
            self.error = None
            self._become(READY)
        except Exception as error:
            self.error = translate(error, self.plan.place)
            # Rows that were loaded before, also in an earlier run, stay usable, and the table is marked as stale.
            usable = before in (READY, STALE) or self._was_loaded()
            self._become(STALE if usable else FAILED)

    def cannot_be_read(self, error: MillpondError) -> None:
        """Called when the columns of its source cannot be discovered, without which it cannot be loaded."""
        self.error = translate(error, self.plan.place)

    def _loaded(self) -> Loaded | None:
        return Loaded.of(self._context.store.get(LOAD + self.plan.name.lower()))

    def _was_loaded(self) -> bool:
        return self.plan.name.lower() not in self._context.held and self._loaded() is not None

    def _open(self) -> bool:
        assert self._plugin.open_table is not None
        open_ = self._plugin.open_table

        spec = replace(self.source.spec, wanted=self.plan.wanted)

        def opened() -> TableReader:
            reader, loaded = open_(spec), self._loaded()
            reader.begin(None if loaded is None else loaded.fingerprint)
            return reader

        self.reader = self.opening.attempt(opened)
        return self.reader is not None

    def follow(self) -> None:
        """Called repeatedly while the app runs; for a table whose changes arrive by themselves."""

    def close(self) -> None:
        """Close the source."""
        if self.reader is not None:
            self.reader.close()

    def _load(self, form: RowForm, content: Content, fingerprint: str | None, before: Loaded | None) -> None:
        started = self._began = self._clock()
        self._ended, self._rows_read = None, 0
        limits = LoadLimits(self.source.spec, self._clock)
        views = Views(self._context.spark, self._context.exchange, f"mp_load_{self.plan.name.lower()}")
        loading = TableLoad(self._context, self.plan, self.source, views, limits)
        try:
            parts = self._counted(limits.passed(iter(content.parts)), limits)
            batches = ContentReader(self._context, self.plan, self.source, views).rows(form, parts)
            if before is None:
                loading.fill(batches, lambda: Loaded(fingerprint, content.mark()))
            else:
                loading.compare(batches, content, lambda: Loaded(fingerprint, content.mark()))
        finally:
            content.close()
            self._ended = self._clock()
            views.drop()
        self.meter.add(loading.rows, self._clock() - started, bad=loading.bad)

    def _counted(self, parts: Iterator[Any], limits: LoadLimits) -> Iterator[Any]:
        for part in parts:
            self._rows_read = limits.rows
            yield part


class TableLoad:
    """One load of a table."""

    def __init__(self, context: Context, plan: TablePlan, source: SourcePlan, views: Views, limits: LoadLimits) -> None:
        self._context, self._name, self._views, self._limits = context, plan.name, views, limits
        self._letters = context.letters_of(plan, source)
        self._locks = sorted(
            n.lower() for n in {plan.name, DEAD_LETTERS} | {v.name for v in context.views_of({plan.name})}
        )
        self.rows = self.bad = 0

    def fill(self, batches: Iterator[LoadedRows], loaded: Callable[[], Loaded]) -> None:
        """The first load: each batch is a commit of its own, so that none is large. The table is not ready before the
        last one, and is emptied after an error."""
        batch, committed = next(batches, None), 0
        try:
            while True:
                following = None if batch is None else next(batches, None)
                self._limits.check_time()
                is_last = following is None
                self._commit(batch, committed == 0, loaded().as_json() if is_last else None)
                committed += 1
                reach("load.committed")
                if is_last:
                    return
                batch = following
        except Exception:
            if committed:
                self._commit(None, True, None)
            raise

    def _commit(self, batch: LoadedRows | None, is_first: bool, loaded: dict[str, Any] | None) -> None:
        with self._context.store.begin(locks=self._locks) as tx:
            work = Work(self._context, tx, self._views)
            table = tx.table(self._name)
            changed = 0
            if is_first:
                self._letters.forget(tx)
                if len(table):
                    # Rows of an interrupted load.
                    changed = table.replace(table.to_arrow().slice(0, 0))
            if batch is not None:
                changed += table.upsert(batch.good) if table.schema.key else table.insert(batch.good)
                self._reject(tx, batch)
            if loaded is not None:
                tx.put(LOAD + self._name.lower(), loaded)
            self._settle(work, tx, changed, is_alone=is_first and loaded is not None, is_last=loaded is not None)

    def compare(self, batches: Iterator[LoadedRows], content: Content, loaded: Callable[[], Loaded]) -> None:
        """A later load: one commit, with the differences."""
        with closing(Spool(self._context.state.exchange, self._name.lower())) as spool:
            spool.fill(batches)
            self._limits.check_time()
            mark = loaded()
            with self._context.store.begin(locks=self._locks) as tx:
                work = Work(self._context, tx, self._views)
                self._letters.forget(tx)
                for left_over in spool.left_over:
                    self._reject(tx, left_over)
                changed = tx.table(self._name).replace_in_parts(self._each(spool.rows()), whole=content.whole)
                tx.put(LOAD + self._name.lower(), mark.as_json())
                self._settle(work, tx, changed, is_alone=True, is_last=True)

    def _each(self, rows: Iterator[pa.Table]) -> Iterator[pa.Table]:
        for batch in rows:
            self.rows += batch.num_rows
            yield batch

    def _reject(self, tx: Transaction, batch: LoadedRows) -> None:
        self.rows += batch.count
        self.bad += batch.bad.num_rows
        batch.reject(tx, self._letters)

    def _settle(self, work: Work, tx: Transaction, changed: int, *, is_alone: bool, is_last: bool) -> None:
        """Refresh views, stage the output of CHANGES statements, and commit. Between the commits of a first load views
        are not refreshed: they are computed at its end."""
        if changed:
            work.mark_changed(self._name)
        if is_last and not is_alone:
            work.mark_changed(self._name)
            work.mark_stale(self._name)
        if is_last:
            work.refresh()
        staged = announce(work, f"load {self._name.lower()}")
        tx.commit()
        publish(self._context, staged)
