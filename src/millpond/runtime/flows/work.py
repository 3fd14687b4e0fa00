"""One transaction's work: queries over a batch and tables, each seeing what was changed before it."""

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

from millpond.contracts.table import Transaction, WriteTable
from millpond.plan.absent import Absent, without_tables
from millpond.plan.missing import rewrite_missing
from millpond.plan.model import BATCH, Access, AccessKind, TablePlan
from millpond.plan.stream_order import ORDER, carry_order
from millpond.relational.answer import answered
from millpond.relational.memory import Memory
from millpond.relational.sources import Lookable
from millpond.runtime.context import Context
from millpond.runtime.spark.access import Relation, Views
from millpond.runtime.spark.engine import spark_only
from millpond.runtime.spark.errors import too_far, translate
from millpond.runtime.spark.lookups import Lookups
from millpond.runtime.spark.relations import spark_text, tables_of
from millpond.runtime.views.refreshing import compute, follow
from millpond.sql.correlation import far_column

# Each row of a batch is paired with what its subqueries find: so many rows are taken at once.
ROWS_AT_ONCE = 200_000


@dataclass(frozen=True)
class Savepoint:
    """How far a work was; see `Work.savepoint`."""

    tx: Any
    changed: frozenset[str]
    refreshed: frozenset[str]
    dirty: frozenset[str]
    stale: frozenset[str]


class Work:
    """Used by one thread, for one transaction. Views over tables are refreshed before something reads them."""

    def __init__(self, context: Context, tx: Transaction, views: Views, memory: Memory | None = None) -> None:
        self.context = context
        # What was worked out for the queries of a flow is kept by it, from batch to batch.
        self.memory = memory or Memory()
        self._frames: dict[int, tuple[pa.Table, DataFrame]] = {}
        self.tx = tx
        # Views are refreshed here, when something reads them and at the end.
        tx.before_commit = None
        self.views = views
        self.changed: set[str] = set()
        # Views that were refreshed here.
        self.refreshed: set[str] = set()
        self._dirty: set[str] = set()
        # Those of them that changes made here do not tell enough about.
        self._stale: set[str] = set()
        # Set by a flow for each batch and statement: whose keys may be looked up, and how the planner wants to read.
        self.lookups: Lookups | None = None
        self.reads: tuple[Access, ...] = ()
        # Tables that are not there yet, and what the statement does without them.
        self.absent = Absent()

    def table(self, name: str) -> WriteTable:
        return self.tx.table(name)

    def savepoint(self) -> Savepoint:
        """A point that `rollback_to` goes back to: the transaction's, and which views are up to date."""
        sets = (self.changed, self.refreshed, self._dirty, self._stale)
        return Savepoint(self.tx.savepoint(), *(frozenset(names) for names in sets))

    def rollback_to(self, point: Savepoint) -> None:
        self.tx.rollback_to(point.tx)
        self.changed, self.refreshed = set(point.changed), set(point.refreshed)
        self._dirty, self._stale = set(point.dirty), set(point.stale)

    def mark_changed(self, name: str) -> None:
        """A table of this transaction was changed: views over it must be refreshed before they are read."""
        self.changed.add(name.lower())
        self._dirty |= {v.name.lower() for v in self.context.views_of({name})}

    def follow(self, names: Iterable[str]) -> None:
        """Tables that were changed past this object: views over them must be refreshed too."""
        for name in names:
            if name.lower() not in self.changed:
                self.mark_changed(name)

    def hold_views(self) -> None:
        """Called once everything is changed: nobody else may change the views over it, or what these read, until the
        commit; MP405 when somebody has since this began. Otherwise a view could miss what the other did."""
        following = self.context.views_of(set(self.tx.changed()))
        views = [view.name for view in following if view.name.lower() not in self.context.held]
        if views:
            self.tx.hold(views, sorted(self.context.inputs_of(set(views))))

    def mark_stale(self, name: str) -> None:
        """A table's content is not what it was when views over it were computed: all of them must be computed."""
        found = {v.name.lower() for v in self.context.views_of({name})}
        self._dirty |= found
        self._stale |= found

    def mark_view_stale(self, name: str) -> None:
        """A view must be computed, whatever was changed."""
        self._dirty.add(name.lower())
        self._stale.add(name.lower())
        self.mark_stale(name)

    def rows(
        self, query: exp.Query, batch: Relation | None = None, given: Mapping[str, pa.Table] | None = None
    ) -> pa.Table:
        """The rows of a query over the batch, relations that are given, and tables as they are now in this
        transaction; in the order of the batch where that is on the driver and Spark is not needed."""
        found = self.answer(query, batch, given)
        return self.frame(query, batch, given).toArrow() if found is None else found

    def result(self, query: exp.Query, batch: Relation | None = None) -> Relation:
        """The same, left in Spark where it is Spark's work."""
        found = self.answer(query, batch)
        return self.frame(query, batch) if found is None else found

    def answer(
        self, query: exp.Query, batch: Relation | None = None, given: Mapping[str, pa.Table] | None = None
    ) -> pa.Table | None:
        """The same, if Arrow alone can tell; else None."""
        return None if isinstance(batch, DataFrame) or spark_only() else self._by_arrow(query, batch, given)

    def _by_arrow(
        self, query: exp.Query, batch: pa.Table | None, given: Mapping[str, pa.Table] | None
    ) -> pa.Table | None:
        query = self._present(query)
        relations: dict[str, Any] = {**(given or {}), **({BATCH: batch} if batch is not None else {})}
        names = [n for n in tables_of(query) if n not in relations]
        self.refresh(set(names))
        relations |= {n: self._lookable(n) for n in names}
        ready = self.memory.once("missing", query, lambda: rewrite_missing(query))
        return answered(ready, relations, self.memory)

    def _present(self, query: exp.Query) -> exp.Query:
        """The query as it is without the tables that are not there yet."""
        if not self.absent.tables:
            return query
        return self.memory.once(f"without {hash(self.absent)}", query, lambda: without_tables(query, self.absent))

    def _lookable(self, name: str) -> Lookable:
        hinted = any(a.table.lower() == name and a.hinted and a.how is AccessKind.SNAPSHOT for a in self.reads)
        return Lookable(self.table(name), self.context.store.table(name).spec.indexes, hinted)

    def ordered(self, query: exp.Query) -> exp.Query | None:
        """The query with the stream order as two more columns; see `carry_order`."""
        return self.memory.once("order", query, lambda: carry_order(query))

    def frame(
        self, query: exp.Query, batch: Relation | None = None, given: Mapping[str, pa.Table] | None = None
    ) -> DataFrame:
        """A query as Spark runs it; one that it cannot resolve is answered before."""
        query = self._present(query)
        if self.memory.once("far", query, lambda: far_column(query)) is not None:
            return self.in_spark(self._on_driver(query, batch, given))
        relations: dict[str, Relation] = {**(given or {}), **({BATCH: batch} if batch is not None else {})}
        frames = {name: self.in_spark(relation) for name, relation in relations.items()}
        self.refresh({n for n in tables_of(query) if n not in frames})
        if self.lookups is not None and BATCH in frames:
            tables = {n: self.table(n) for n in tables_of(query) if n not in frames}
            query, fetched = self.lookups.fetch(query, tables, self.reads)
            frames.update(fetched)
        views = {}
        for name in tables_of(query):
            if name in frames:
                views[name] = self.views.frame(name, frames[name])
            else:
                views[name] = self.views.table(self.table(name), changed=name in self.changed)
        return self.views.session.sql(spark_text(query, views))

    def _on_driver(self, query: exp.Query, batch: Relation | None, given: Mapping[str, pa.Table] | None) -> pa.Table:
        """The rows of a query with a subquery that looks further out than Spark can see, whatever the batch's size;
        MP224 where Arrow cannot tell them either."""
        local = batch.toArrow() if isinstance(batch, DataFrame) else batch
        pieces = [local]
        if local is not None and carry_order(query) is not None:
            pieces = [local.slice(n, ROWS_AT_ONCE) for n in range(0, max(local.num_rows, 1), ROWS_AT_ONCE)]
        found = [self._by_arrow(query, piece, given) for piece in pieces]
        if any(rows is None for rows in found):
            raise too_far(query)
        return pa.concat_tables([rows for rows in found if rows is not None])

    def in_spark(self, relation: Relation) -> DataFrame:
        """Rows as a DataFrame; those of the driver go over once."""
        if isinstance(relation, DataFrame):
            return relation
        known = self._frames.get(id(relation))
        if known is None:
            known = self._frames[id(relation)] = (relation, self.views.in_spark(relation))
        return known[1]

    def ordered_rows(self, query: exp.Query, batch: Relation) -> pa.Table:
        """A query's rows, in stream order where they have one."""
        ordered = self.ordered(query)
        if ordered is None:
            return self.rows(query, batch)
        rows = self.rows(ordered, batch)
        # By position: a user's column may have any name.
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
        # What was refreshed here before has followed some of the changes; following them once more does no harm.
        renewed = compute if name in self._stale else follow
        self._stale.discard(name)
        try:
            changed = renewed(self, view)
        except (PySparkException, Py4JJavaError) as error:
            raise translate(error, view.place, self.memory.several) from error
        if changed:
            self.changed.add(name)
