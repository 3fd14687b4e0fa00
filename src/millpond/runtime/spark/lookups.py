"""Tables fetched by the keys of a batch: the cost follows the batch, not the table."""

from __future__ import annotations

from collections.abc import Mapping

import pyarrow as pa
from pyspark.sql import DataFrame
from sqlglot import exp

from millpond.contracts.table import ReadTable, Store, WriteTable
from millpond.expressions.compile import NotCompilable, compile_expression
from millpond.plan.lookups import Lookup, find_lookups
from millpond.plan.model import BATCH, Access, AccessKind
from millpond.relational.answer import answered
from millpond.relational.memory import Memory
from millpond.runtime.flows.batch import Batch
from millpond.runtime.spark.access import Views, arrow_frame
from millpond.runtime.spark.relations import spark_text
from millpond.schema import Schema
from millpond.sql.spark import render

# A smaller table is handed over whole: once per version costs less than a fetch in every batch.
ROWS_WHOLE_MAX = 5_000
# A batch that stays in Spark is asked for its keys by a job of its own, which pays for tables this much larger.
LARGE_BATCH_FACTOR = 4
LOOKED_UP = "__lookup_{}__"
# Keys of a batch on the driver that only Spark can find need a query of its own, which pays for tables of this size.
ROWS_ASKED_MIN = 100_000
KEYS = "__keys__"


class Lookups:
    """The fetches of one batch; keys that several statements want are evaluated once."""

    def __init__(self, batch: Batch, views: Views, store: Store) -> None:
        self._batch = batch
        self._views = views
        self._store = store
        self._keys: dict[tuple[str, ...], pa.Table | None] = {}

    def fetch(
        self, query: exp.Query, tables: Mapping[str, WriteTable], reads: tuple[Access, ...]
    ) -> tuple[exp.Query, dict[str, DataFrame]]:
        """The query with looked-up tables under names of their own, and their rows."""
        copy = query.copy()
        wishes = {access.table.lower(): access for access in reads}
        frames: dict[str, DataFrame] = {}
        for lookup in find_lookups(copy):
            table = tables.get(lookup.node.name.lower())
            rows = None if table is None else self._rows(lookup, table, wishes.get(table.name.lower()))
            if rows is None:
                continue
            name = LOOKED_UP.format(len(frames))
            if not lookup.node.alias:
                lookup.node.set("alias", exp.TableAlias(this=exp.to_identifier(lookup.node.name, quoted=True)))
            lookup.node.set("this", exp.to_identifier(name, quoted=True))
            frames[name] = arrow_frame(self._views.session, rows)
        return (copy, frames) if frames else (query, frames)

    def _rows(self, lookup: Lookup, table: ReadTable, access: Access | None) -> pa.Table | None:
        """The rows of the batch's keys, or None where the whole table is the better way."""
        forced = access is not None and access.hinted and access.how is AccessKind.LOOKUP
        if access is None or (access.hinted and not forced) or (not forced and not self._pays(table)):
            return None
        return self._of_keys(lookup, table)

    def candidates(self, query: exp.Query, name: str, table: ReadTable) -> pa.Table | None:
        """The rows of a table, known in a query as `name`, that the batch's keys let matter; None for all of them."""
        lookup = next((found for found in find_lookups(query) if found.node.name == name), None)
        return self._of_keys(lookup, table) if lookup is not None and self._pays(table) else None

    def _of_keys(self, lookup: Lookup, table: ReadTable) -> pa.Table | None:
        columns = _indexed(lookup, table.schema.key, self._store.table(table.name).spec.indexes)
        if columns is None:
            return None
        names = [table.schema[name].name for name in columns]
        if any(pa.types.is_nested(table.schema[name].type) for name in names):
            return None
        keys = self._keys_of(lookup, columns, table)
        if keys is None or [f.type for f in keys.schema] != [table.schema[name].type for name in names]:
            return None
        return table.lookup(keys.rename_columns(names), by=names)

    def _pays(self, table: ReadTable) -> bool:
        if self._batch.local is not None:
            return len(table) > ROWS_WHOLE_MAX
        return len(table) > self._batch.rows * LARGE_BATCH_FACTOR

    def _keys_of(self, lookup: Lookup, columns: tuple[str, ...], table: ReadTable) -> pa.Table | None:
        """The distinct values that some columns of the table are looked up by."""
        places = [lookup.columns.index(name) for name in columns]
        if lookup.source is None:
            return self._batch_keys([lookup.keys[place] for place in places])
        source = lookup.source.copy()
        source.set("expressions", [lookup.source.expressions[place].copy() for place in places])
        text = (render(source),)
        if text not in self._keys:
            self._keys[text] = self._derived_keys(source, len(table))
        return self._keys[text]

    def _derived_keys(self, source: exp.Select, rows: int) -> pa.Table | None:
        """The same where a derived stream or a lateral view makes them; None where finding them costs more than it
        saves."""
        if self._batch.local is not None:
            found = answered(source, {BATCH: self._batch.local}, Memory())
            if found is not None or rows < ROWS_ASKED_MIN:
                return found
        view = self._views.frame(KEYS, self._views.in_spark(self._batch.relation))
        return self._views.session.sql(spark_text(source, {BATCH: view})).toArrow()

    def _batch_keys(self, expressions: list[exp.Expr]) -> pa.Table | None:
        """The distinct values of some expressions over the batch; None where only Spark could tell."""
        texts = tuple(render(e) for e in expressions)
        if texts not in self._keys:
            self._keys[texts] = self._local_keys(expressions) if self._batch.local is not None else self._asked(texts)
        return self._keys[texts]

    def _local_keys(self, expressions: list[exp.Expr]) -> pa.Table | None:
        rows = self._batch.local
        assert rows is not None
        schema = Schema.from_arrow(rows.schema)
        try:
            columns = [compile_expression(e, schema).evaluate(rows) for e in expressions]  # type: ignore[arg-type]
        except NotCompilable:
            return None
        names = [f"k{i}" for i in range(len(columns))]
        return pa.table(columns, names=names).group_by(names).aggregate([]).select(names)

    def _asked(self, texts: tuple[str, ...]) -> pa.Table:
        chosen = [f"{text} AS k{i}" for i, text in enumerate(texts)]
        assert isinstance(self._batch.relation, DataFrame)
        return self._batch.relation.selectExpr(*chosen).distinct().toArrow()


def _indexed(lookup: Lookup, key: tuple[str, ...], indexes: tuple[tuple[str, ...], ...]) -> tuple[str, ...] | None:
    """The columns to fetch by: the primary key if all of it is known, else an index; None when there is none."""
    known = {name.lower(): name for name in lookup.columns}
    for columns in (key, *indexes):
        if columns and all(name.lower() in known for name in columns):
            return tuple(known[name.lower()] for name in columns)
    return None
