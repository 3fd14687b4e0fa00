"""The work of one transaction: queries over a batch and tables, each of which sees the earlier changes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame
from sqlglot import exp

from millpond.contracts.evaluator import Input, TableInput
from millpond.contracts.table import Transaction, WriteTable
from millpond.engine.app_context import Context
from millpond.engine.evaluator import Evaluator
from millpond.engine.key_lookups import Lookups
from millpond.engine.spark.evaluate import tables_of
from millpond.engine.spark.spark_errors import translate
from millpond.engine.spark.transfer import Dataset, Views
from millpond.engine.table_history import keep_history, require_held
from millpond.engine.view_refresh import compute, follow
from millpond.plan.missing import Absent, without_tables
from millpond.plan.model import BATCH, Access, TablePlan
from millpond.plan.routing import ways_on_driver
from millpond.plan.statement_groups import ORDER, carry_order
from millpond.registry import find
from millpond.relational.compiled import QueryCache


@dataclass(frozen=True)
class WorkSavepoint:
    """The state of a Work; see `Work.savepoint`."""

    tx: Any
    changed: frozenset[str]
    refreshed: frozenset[str]
    dirty: frozenset[str]
    stale: frozenset[str]
    passed: Mapping[str, tuple[pa.Table, ...]]


class Work:
    """Used by one thread, for one transaction. Views over changed tables are refreshed before they are read."""

    def __init__(self, context: Context, tx: Transaction, views: Views, cache: QueryCache | None = None) -> None:
        self.context = context
        # A flow passes its cache, to reuse from batch to batch what was derived from its queries.
        self.cache = cache or QueryCache()
        self.evaluator = Evaluator(views, self.cache, context.limits)
        self._frames: dict[int, tuple[pa.Table, DataFrame]] = {}
        self.tx = tx
        # Views are refreshed by this object, when they are read and at the end, instead of by the store.
        tx.before_commit = None
        self.views = views
        self.changed: set[str] = set()
        # Views that were refreshed in this transaction.
        self.refreshed: set[str] = set()
        self._dirty: set[str] = set()
        # Views that must be recomputed as a whole, because the changes of this transaction are not sufficient.
        self._stale: set[str] = set()
        # All rows that were written to tables whose history goes by the time of a column, in their order.
        self.passed: dict[str, tuple[pa.Table, ...]] = {}
        # Set by a flow for each batch and statement: the lookups of the batch's keys, and the planned accesses.
        self.lookups: Lookups | None = None
        self.reads: tuple[Access, ...] = ()
        # Missing tables, and the policy of the statement for them.
        self.absent = Absent()

    def table(self, name: str) -> WriteTable:
        return self.tx.table(name)

    def savepoint(self) -> WorkSavepoint:
        """A point for `rollback_to`: the transaction's savepoint, and which views are up to date."""
        dirty, stale = frozenset(self._dirty), frozenset(self._stale)
        changed, refreshed = frozenset(self.changed), frozenset(self.refreshed)
        return WorkSavepoint(self.tx.savepoint(), changed, refreshed, dirty, stale, dict(self.passed))

    def rollback_to(self, point: WorkSavepoint) -> None:
        self.tx.rollback_to(point.tx)
        self.changed, self.refreshed = set(point.changed), set(point.refreshed)
        self._dirty, self._stale = set(point.dirty), set(point.stale)
        self.passed = dict(point.passed)

    def mark_changed(self, name: str) -> None:
        """Called after a table was changed: views over it must be refreshed before they are read."""
        self.changed.add(name.lower())
        self._dirty |= {v.name.lower() for v in self.context.views_of({name})}

    def keeps_times(self, name: str) -> bool:
        """Whether the history of a table contains rows that a transaction replaces again."""
        return name.lower() in self.context.timed_tables

    def add_passed(self, name: str, rows: pa.Table) -> None:
        """Called with the rows that are written to such a table, each with all its columns."""
        self.passed[name.lower()] = (*self.passed.get(name.lower(), ()), rows)

    def forget_passed(self, name: str) -> None:
        """Called when the changes of a table are undone."""
        self.passed.pop(name.lower(), None)

    def follow(self, names: Iterable[str]) -> None:
        """Called for tables that were changed without this object: views over them must be refreshed too."""
        for name in names:
            if name.lower() not in self.changed:
                self.mark_changed(name)

    def hold_views(self) -> None:
        """Called after all changes: lock the views over the changed tables, and what these read, until the commit;
        MP405 if another transaction has changed them since this one began. Otherwise a view could miss its changes."""
        following = self.context.views_of(set(self.tx.changed()))
        views = [view.name for view in following if view.name.lower() not in self.context.held]
        if views:
            self.tx.hold(views, sorted(self.context.inputs_of(set(views))))

    def mark_stale(self, name: str) -> None:
        """Called for a table whose content was replaced: the views over it must be recomputed as a whole."""
        found = {v.name.lower() for v in self.context.views_of({name})}
        self._dirty |= found
        self._stale |= found

    def mark_view_stale(self, name: str) -> None:
        """A view must be recomputed as a whole."""
        self._dirty.add(name.lower())
        self._stale.add(name.lower())
        self.mark_stale(name)

    def rows(
        self, query: exp.Query, batch: Dataset | None = None, given: Mapping[str, Dataset] | None = None
    ) -> pa.Table:
        """The rows of a query over the batch, given relations, and the current tables of this transaction; in the order
        of the batch if Arrow evaluates it."""
        found = self.result(query, batch, given)
        return found.toArrow() if isinstance(found, DataFrame) else found

    def result(
        self, query: exp.Query, batch: Dataset | None = None, given: Mapping[str, Dataset] | None = None
    ) -> Dataset:
        """The same, as a DataFrame if Spark evaluates it."""
        found = self.on_driver(query, batch, given)
        return self.in_spark(self._by_spark(query, batch, given)) if found is None else found

    def on_driver(
        self, query: exp.Query, batch: Dataset | None = None, given: Mapping[str, Dataset] | None = None
    ) -> pa.Table | None:
        """The same by Arrow; None if Spark must evaluate it."""
        query = self._present(query)
        return self.evaluator.on_driver(query, self._inputs(query, self._relations(batch, given)))

    def frame(
        self, query: exp.Query, batch: Dataset | None = None, given: Mapping[str, Dataset] | None = None
    ) -> DataFrame:
        """The same by Spark."""
        return self.in_spark(self._by_spark(query, batch, given))

    def _by_spark(self, query: exp.Query, batch: Dataset | None, given: Mapping[str, Dataset] | None) -> Dataset:
        query, relations = self._present(query), self._relations(batch, given)
        if self.evaluator.is_beyond_spark(query):
            return self.evaluator.whatever_the_size(query, self._inputs(query, relations))
        # Relations are transferred to Spark once, even if several statements read them.
        inputs = self._inputs(query, {name: self.in_spark(rows) for name, rows in relations.items()})
        if self.lookups is not None and BATCH in relations:
            tables = {n: given.table for n, given in inputs.items() if isinstance(given, TableInput)}
            query, fetched = self.lookups.fetch(query, tables, self.reads)
            inputs |= fetched
        return self.evaluator.in_spark(query, inputs)

    def _relations(self, batch: Dataset | None, given: Mapping[str, Dataset] | None) -> dict[str, Dataset]:
        return {**(given or {}), **({BATCH: batch} if batch is not None else {})}

    def _inputs(self, query: exp.Query, relations: Mapping[str, Dataset]) -> dict[str, Input | DataFrame]:
        """The inputs of a query: given relations, and tables; views among them are refreshed first."""
        names = [name for name in tables_of(query) if name not in relations]
        require_held(query, self.tx)
        self.refresh(set(names))
        return {**relations, **{name: self._table_input(name) for name in names}}

    def _table_input(self, name: str) -> TableInput:
        access = next((a for a in self.reads if a.table.lower() == name), None)
        table = self.table(name)
        spec = self.context.store.table(name).spec
        ways = ways_on_driver(access, table.schema.key, spec.indexes)
        by_any = find("backend", spec.backend).capabilities.looked_up
        return TableInput(table, ways, name in self.changed or spec.is_volatile, by_any)

    def _present(self, query: exp.Query) -> exp.Query:
        """The query without missing tables."""
        if not self.absent.tables:
            return query
        return self.cache.once(f"without {hash(self.absent)}", query, lambda: without_tables(query, self.absent))

    def ordered(self, query: exp.Query) -> exp.Query | None:
        """The query with the stream order as two more columns; see `carry_order`."""
        return self.cache.once("order", query, lambda: carry_order(query))

    def in_spark(self, relation: Dataset) -> DataFrame:
        """Rows as a DataFrame; rows of the driver are transferred once."""
        if isinstance(relation, DataFrame):
            return relation
        known = self._frames.get(id(relation))
        if known is None:
            known = self._frames[id(relation)] = (relation, self.views.in_spark(relation))
        return known[1]

    def ordered_rows(self, query: exp.Query, batch: Dataset) -> pa.Table:
        """A query's rows, in stream order if they have one."""
        ordered = self.ordered(query)
        if ordered is None:
            return self.rows(query, batch)
        rows = self.rows(ordered, batch)
        # Renamed by position, because a user's column may have any name.
        last = rows.num_columns - len(ORDER)
        numbered = rows.rename_columns([*(f"c{i}" for i in range(last)), *ORDER])
        order = pc.sort_indices(numbered.select(list(ORDER)), [(name, "ascending") for name in ORDER])
        return rows.select(range(last)).take(order)

    def refresh(self, names: set[str] | None = None) -> None:
        """Refresh the views among `names` (all when None), and the views these read, that are out of date."""
        wanted = None if names is None else self.context.inputs_of(names)
        for table in self.context.plan.tables:
            name = table.name.lower()
            if name in self._dirty and (wanted is None or name in wanted):
                self._dirty.discard(name)
                self._refresh(table)

    def _refresh(self, view: TablePlan) -> None:
        name = view.name.lower()
        self.refreshed.add(name)
        # A view that was refreshed before has applied some of the changes already; applying them again is idempotent.
        whole = name in self._stale
        self._stale.discard(name)
        try:
            if view.history is not None:
                changed = keep_history(self, view, whole=whole)
            else:
                changed = (compute if whole else follow)(self, view)
        except (PySparkException, Py4JJavaError) as error:
            raise translate(error, view.place, self.cache.several) from error
        if changed:
            self.changed.add(name)
