"""Tables loaded from a source: read whole, compared with what we hold, and made equal to it."""

from __future__ import annotations

import time

import pyarrow as pa
import pyarrow.compute as pc

from millpond.contracts.source import BAD, RAW, TableReader
from millpond.contracts.table import Transaction
from millpond.disk import make_folder
from millpond.errors import MillpondError, SourceError
from millpond.plan.model import SourcePlan, TablePlan
from millpond.registry import find
from millpond.runtime.changing.row_sets import conform
from millpond.runtime.context import Context
from millpond.runtime.dead_letters import NAME as DEAD_LETTERS
from millpond.runtime.dead_letters import Letters
from millpond.runtime.figures.meter import Meter
from millpond.runtime.figures.progress import FAILED, LOADING, READY, RETRYING, STALE, LoadProgress
from millpond.runtime.flows.aside import as_text
from millpond.runtime.flows.work import Work
from millpond.runtime.keeping.ledger import LOAD
from millpond.runtime.loading.opening import Opening
from millpond.runtime.spark.access import Views
from millpond.runtime.spark.errors import translate
from millpond.runtime.views.announcing import announce, publish
from millpond.tables.keys import Keys
from millpond.tables.unique import last_of_each


class Loader:
    """Loads one table, again whenever its source has changed. States: missing -> retrying ->
    loading -> ready -> stale | failed."""

    def __init__(self, plan: TablePlan, context: Context) -> None:
        assert plan.source is not None
        self.plan = plan
        self.source: SourcePlan = context.plan.source(plan.source)
        self.error: MillpondError | None = None
        self.meter = Meter()
        self.reader: TableReader | None = None
        self.opening = Opening(self.source)
        self._context = context
        # When the last load began and ended.
        self._began: float | None = None
        self._ended: float | None = None
        # Looks at the source that were begun, and that have ended.
        self.looks_begun = self.looks_ended = 0

    def of(self, plan: TablePlan) -> Loader:
        """The same table in a plan that was made again, with other places perhaps."""
        self.plan = plan
        return self

    @property
    def is_pending(self) -> bool:
        """Whether its source is still looked for."""
        return self.opening.is_pending

    @property
    def state(self) -> str:
        return self._context.table_states.get(self.plan.name.lower(), "missing")

    @property
    def interval_s(self) -> float:
        """How often a watched source is looked at."""
        return float(self.source.spec.values.get("watch.interval") or 0) / 1_000_000 or 1.0

    def load_progress(self) -> LoadProgress | None:
        """How far the load under way is, or how it ended; None before the first. Callable from any thread."""
        if self.reader is None or self._began is None:
            return None
        told = self.reader.progress()
        seconds = max((self._ended or time.monotonic()) - self._began, 0.001)
        share = told.done / told.total if told.total else 0.0
        left = None if self._ended is not None or not share else seconds * (1 - share) / share
        return LoadProgress(told.done, told.total, told.unit, told.rows, told.rows / seconds, left)

    def _become(self, state: str) -> None:
        self._context.table_states[self.plan.name.lower()] = state

    def load(self) -> None:
        """Load if the source is not as it was at the last load; a failure is kept in `error`, never raised."""
        self.looks_begun += 1
        self._load_if_changed()
        self.looks_ended = self.looks_begun

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
            if self._context.store.get(LOAD + self.plan.name.lower()) != fingerprint:
                # What was loaded before stays usable meanwhile.
                self._become(before if before in (READY, STALE) else LOADING)
                self._load(fingerprint)
            self.error = None
            self._become(READY)
        except Exception as error:
            self.error = translate(error, self.plan.place)
            # What was loaded before, in an earlier run too, stays usable, and says that it is not fresh.
            usable = before in (READY, STALE) or self._was_loaded()
            self._become(STALE if usable else FAILED)

    def _was_loaded(self) -> bool:
        name = self.plan.name.lower()
        return name not in self._context.held and self._context.store.get(LOAD + name) is not None

    def _open(self) -> bool:
        folder = make_folder(self._context.state.load(self.plan.name))
        plugin = find("source", self.source.type)
        self.reader = self.opening.attempt(lambda: plugin.open_table(self.source.spec, folder))
        return self.reader is not None

    def _load(self, fingerprint: str) -> None:
        assert self.reader is not None
        assert self.plan.query is not None
        started = self._began = time.monotonic()
        self._ended = None
        views = Views(self._context.spark, self._context.exchange, f"mp_load_{self.plan.name.lower()}")
        locks = {self.plan.name, DEAD_LETTERS} | {v.name for v in self._context.views_of({self.plan.name})}
        try:
            records = self.reader.read(self._context.spark)
            is_bad = pc.is_valid(records[BAD])
            bad = records.filter(is_bad)
            if bad.num_rows:
                records = records.filter(pc.invert(is_bad))
            with self._context.store.begin(locks=sorted(n.lower() for n in locks)) as tx:
                work = Work(self._context, tx, views)
                letters = self._context.letters(self.plan.name, self.source)
                letters.forget(tx)
                letters.add_bad_records(tx, bad)
                rows = self._rows(work, records.drop_columns([BAD, RAW]))
                table = tx.table(self.plan.name)
                good = self._with_keys(tx, letters, conform(rows, table.schema))
                self._require_in_time()
                if table.replace(good):
                    work.mark_changed(self.plan.name)
                    work.refresh()
                tx.put(LOAD + self.plan.name.lower(), fingerprint)
                told = announce(work, f"load {self.plan.name.lower()}")
                tx.commit()
            publish(self._context, told)
        finally:
            self._ended = time.monotonic()
            views.drop()
        self.meter.add(records.num_rows + bad.num_rows, time.monotonic() - started, bad=bad.num_rows)

    def _rows(self, work: Work, records: pa.Table) -> pa.Table:
        """What the table's query makes of records that are in stream order: by Arrow where that is exact, else by
        Spark."""
        assert self.plan.query is not None
        rows = work.answer(self.plan.query, records)
        if rows is not None:
            return rows
        return work.ordered_rows(self.plan.query, self._context.exchange.rows(work.views.session, records))

    def _require_in_time(self) -> None:
        """MP509 when loading took longer than 'bulk.timeout' allows, all of it counted."""
        assert self._began is not None
        limit_us = self.source.spec.values.get("bulk.timeout")
        if limit_us is not None and time.monotonic() - self._began > limit_us / 1e6:
            message = f"Loading '{self.plan.name}' took longer than its 'bulk.timeout' of {limit_us / 1e6:g} s."
            raise SourceError("MP509", message, hint="Raise 'bulk.timeout'. Nothing was published.")

    def _with_keys(self, tx: Transaction, letters: Letters, rows: pa.Table) -> pa.Table:
        """Rows whose key has no NULL, the last of each key; the others are dead letters."""
        key = [self.plan.spec.schema[name].name for name in self.plan.spec.schema.key]
        if not key or not rows.num_rows:
            return rows
        null = pc.is_null(rows[key[0]])
        for name in key[1:]:
            null = pc.or_(null, pc.is_null(rows[name]))
        bad = rows.filter(null)
        if bad.num_rows:
            reasons = ["a key column is NULL"] * bad.num_rows
            letters.add(tx, bad, ["MP403"] * bad.num_rows, reasons, as_text(bad))
            rows = rows.filter(pc.invert(null))
        last = last_of_each(Keys(tuple(rows[name].combine_chunks() for name in key)))
        return rows if last is None else rows.take(pa.array(last))
