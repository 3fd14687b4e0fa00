"""Tables loaded from a source: read whole, compared with what we hold, and made equal to it."""

from __future__ import annotations

import time

import pyarrow as pa
import pyarrow.compute as pc

from millpond.contracts.source import TableReader
from millpond.contracts.table import Transaction
from millpond.errors import MillpondError
from millpond.plan.model import SourcePlan, TablePlan
from millpond.registry import find
from millpond.runtime.access import Views
from millpond.runtime.announcing import announce, publish
from millpond.runtime.batch import split_records
from millpond.runtime.context import Context
from millpond.runtime.dead_letters import NAME as DEAD_LETTERS
from millpond.runtime.dead_letters import Letters
from millpond.runtime.ledger import LOAD
from millpond.runtime.opening import Opening
from millpond.runtime.progress import FAILED, LOADING, READY, RETRYING, STALE, Meter
from millpond.runtime.row_sets import conform
from millpond.runtime.spark_errors import translate
from millpond.runtime.work import Work


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

    def _become(self, state: str) -> None:
        self._context.table_states[self.plan.name.lower()] = state

    def load(self) -> None:
        """Load if the source is not as it was at the last load; a failure is kept in `error`, never raised."""
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
            # What was loaded before stays usable, and says that it is not fresh.
            self._become(STALE if before in (READY, STALE) else FAILED)

    def _open(self) -> bool:
        folder = self._context.state.load(self.plan.name)
        folder.mkdir(parents=True, exist_ok=True)
        plugin = find("source", self.source.type)
        self.reader = self.opening.attempt(lambda: plugin.open_table(self.source.spec, folder))
        return self.reader is not None

    def _load(self, fingerprint: str) -> None:
        assert self.reader is not None
        assert self.plan.query is not None
        started = time.monotonic()
        spark = self._context.spark()
        batch = split_records(self.reader.read(spark), 0, small=False)
        views = Views(lambda: spark, self._context.exchange, f"mp_load_{self.plan.name.lower()}")
        locks = {self.plan.name, DEAD_LETTERS} | {v.name for v in self._context.views_of({self.plan.name})}
        try:
            with self._context.store.begin(locks=sorted(n.lower() for n in locks)) as tx:
                work = Work(self._context, tx, views)
                letters = self._context.letters(self.plan.name, self.source)
                letters.forget(tx)
                letters.add_bad_records(tx, batch.bad)
                rows = work.ordered_rows(self.plan.query, batch.frame)
                table = tx.table(self.plan.name)
                good = self._with_keys(tx, letters, conform(rows, table.schema))
                if table.replace(good):
                    work.mark_changed(self.plan.name)
                    work.refresh()
                tx.put(LOAD + self.plan.name.lower(), fingerprint)
                told = announce(work, f"load {self.plan.name.lower()}")
                tx.commit()
            publish(self._context, told)
        finally:
            batch.release()
            views.drop()
        self.meter.add(batch.rows, time.monotonic() - started)

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
            letters.add(tx, bad, ["MP403"] * bad.num_rows, reasons, [None] * bad.num_rows)
            rows = rows.filter(pc.invert(null))
        numbered = rows.append_column("__n", pa.array(range(rows.num_rows), pa.int64()))
        last = numbered.group_by(key, use_threads=False).aggregate([("__n", "max")])
        if last.num_rows == rows.num_rows:
            return rows
        return rows.take(last["__n_max"].sort())
