"""Lookups of table rows by the keys of a batch, so that the cost depends on the batch, not on the table."""

from __future__ import annotations

from collections.abc import Mapping

import pyarrow as pa
from pyspark.sql import DataFrame
from sqlglot import exp

from millpond.contracts.table import ReadTable, Store
from millpond.engine.batch import Batch
from millpond.engine.evaluator import Evaluator
from millpond.expressions.compile import NotCompilable, compile_expression
from millpond.plan.model import BATCH, Access
from millpond.plan.routing import KEYS_BY_SPARK_ROWS, fetched_for_spark, pays_to_fetch
from millpond.plan.table_access import Lookup, find_lookups
from millpond.registry import find
from millpond.schema import Schema
from millpond.sql.spark import render

LOOKED_UP = "__lookup_{}__"


class Lookups:
    """The lookups of one batch; keys that several statements use are evaluated once."""

    def __init__(self, batch: Batch, evaluator: Evaluator, store: Store) -> None:
        self._batch = batch
        self._evaluator = evaluator
        self._store = store
        self._keys: dict[tuple[str, ...], pa.Table | None] = {}

    def fetch(
        self, query: exp.Query, tables: Mapping[str, ReadTable], reads: tuple[Access, ...]
    ) -> tuple[exp.Query, dict[str, pa.Table]]:
        """The query with looked-up tables under new names, and their rows."""
        copy = query.copy()
        wishes = {access.table.lower(): access for access in reads}
        fetched: dict[str, pa.Table] = {}
        for lookup in find_lookups(copy):
            table = tables.get(lookup.node.name.lower())
            rows = None if table is None else self._rows(lookup, table, wishes.get(table.name.lower()))
            if rows is None:
                continue
            name = LOOKED_UP.format(len(fetched))
            if not lookup.node.alias:
                lookup.node.set("alias", exp.TableAlias(this=exp.to_identifier(lookup.node.name, quoted=True)))
            lookup.node.set("this", exp.to_identifier(name, quoted=True))
            fetched[name] = rows
        return (copy, fetched) if fetched else (query, fetched)

    def _rows(self, lookup: Lookup, table: ReadTable, access: Access | None) -> pa.Table | None:
        """The rows of the batch's keys, or None if reading the whole table is faster."""
        on_driver = self._batch.local is not None
        fetched = fetched_for_spark(access, len(table), self._batch.rows, batch_on_driver=on_driver)
        return self._of_keys(lookup, table) if fetched else None

    def candidates(self, query: exp.Query, name: str, table: ReadTable) -> pa.Table | None:
        """The rows of a table, called `name` in a query, for the batch's keys; None if all rows must be read."""
        lookup = next((found for found in find_lookups(query) if found.node.name == name), None)
        return self._of_keys(lookup, table) if lookup is not None and self._pays(table) else None

    def _of_keys(self, lookup: Lookup, table: ReadTable) -> pa.Table | None:
        spec = self._store.table(table.name).spec
        looked_up = find("backend", spec.backend).capabilities.looked_up
        columns = lookup.columns if looked_up else _indexed(lookup, table.schema.key, spec.indexes)
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
        return pays_to_fetch(len(table), self._batch.rows, batch_on_driver=self._batch.local is not None)

    def _keys_of(self, lookup: Lookup, columns: tuple[str, ...], table: ReadTable) -> pa.Table | None:
        """The distinct values by which some columns of the table are looked up."""
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
        """The same if a derived stream or a lateral view computes them; None if evaluating them costs more than it
        saves."""
        if self._batch.local is not None:
            found = self._evaluator.on_driver(source, {BATCH: self._batch.local})
            if found is not None or rows < KEYS_BY_SPARK_ROWS:
                return found
        return self._evaluator.in_spark(source, {BATCH: self._batch.relation}).toArrow()

    def _batch_keys(self, expressions: list[exp.Expr]) -> pa.Table | None:
        """The distinct values of some expressions over the batch; None if only Spark could evaluate them."""
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
    """The columns of the lookup: the primary key if all of it is compared, else an index; None if there is neither."""
    known = {name.lower(): name for name in lookup.columns}
    for columns in (key, *indexes):
        if columns and all(name.lower() in known for name in columns):
            return tuple(known[name.lower()] for name in columns)
    return None
