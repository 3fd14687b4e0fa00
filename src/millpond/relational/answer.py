"""Evaluation of a query over Arrow relations: FROM, WHERE, GROUP BY, HAVING, outputs, DISTINCT, ORDER BY, LIMIT."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import numpy as np
import pyarrow as pa
from sqlglot import exp

from millpond.contracts.evaluator import Engine, Input, Inputs, Limits
from millpond.errors import TableError
from millpond.expressions.failures import NotCompilable, SeveralRows
from millpond.relational import from_clause, set_operations, subqueries, window_functions
from millpond.relational.codes import Values, group_codes
from millpond.relational.compiled import SUBQUERY, QueryCache, checked, with_windows
from millpond.relational.generators import lifted
from millpond.relational.group_by import group, is_grouped
from millpond.relational.inputs import Rows
from millpond.relational.order_by import cut, in_order, keys_of, positions
from millpond.relational.server_aggregates import server_groups

# The clauses that may follow a query in parentheses or a set operation.
AFTER = ("order", "limit", "offset")


class ArrowEvaluator:
    """The driver's engine. `cache` holds compiled parts of queries between calls."""

    def __init__(self, cache: QueryCache | None = None, limits: Limits | None = None) -> None:
        self._cache = cache or QueryCache()
        self._limits = limits or Limits()

    @property
    def engine(self) -> Engine:
        return Engine.ARROW

    def evaluate(self, query: exp.Query, inputs: Inputs) -> pa.Table:
        """The rows. A row that makes the query fail raises NotCompilable too, so that Spark reports the failure; with
        `cache.reports_failures` it raises TableError."""
        self._cache.several = ""
        try:
            return Answer(inputs, self._cache, self._limits).query(query)
        except SeveralRows as refusal:
            self._cache.several = refusal.for_
            raise
        except TableError as error:
            if self._cache.reports_failures:
                raise
            raise NotCompilable(str(error)) from error


class Answer:
    """The evaluation of one query; the names of relations are in lower case."""

    def __init__(self, inputs: Inputs, cache: QueryCache, limits: Limits) -> None:
        self._inputs = inputs
        self._cache = cache
        self.limits = limits
        self.numbers: Iterator[int] = itertools.count()

    @property
    def cache(self) -> QueryCache:
        return self._cache

    def relation(self, name: str) -> Input | None:
        return self._inputs.get(name)

    def query(self, query: exp.Expr) -> pa.Table:
        """Return the rows of a query that is not correlated."""
        before = self._inputs
        self._with_named(query)
        try:
            if isinstance(query, exp.Subquery):
                _require_parts(query, ("this", "alias"))
                return in_order(self.query(query.this), query)
            if isinstance(query, exp.SetOperation):
                _require_parts(query, ("this", "expression", "distinct"))
                found = set_operations.combined(query, self.query(query.this), self.query(query.expression))
                return in_order(found, query)
            return self._outputs(self._cache.once("prepared", query, lambda: lifted(with_windows(checked(query)))))
        finally:
            self._inputs = before

    def _outputs(self, select: exp.Select) -> pa.Table:
        grouped = is_grouped(select)
        groups = server_groups(self, select) if grouped else None
        rows = from_clause.rows(self, select, None) if groups is None else groups.rows
        if grouped and groups is None:
            groups = group(select, rows, self.value, self._cache)
            rows = groups.rows
        outputs = groups.outputs if groups is not None else [e.unalias() for e in select.expressions]
        columns = [_chunked(self.value(e, rows)) for e in outputs]
        table = pa.Table.from_arrays(columns, names=[e.alias_or_name for e in select.expressions])
        keys = keys_of(table, select, groups, rows, self)
        order = positions(keys, table.num_rows)
        if select.args.get("distinct") is not None:
            if select.args["distinct"].args.get("on") is not None:
                raise NotCompilable("DISTINCT ON")
            # Spark's DISTINCT returns one zero and one NaN too, whichever came first.
            table = set_operations.normalized(table)
            first = np.zeros(table.num_rows, bool)
            first[group_codes(table.columns, table.num_rows)[1]] = True
            order = order[first[order]]
        table = table.take(pa.array(order)) if keys or len(order) < table.num_rows else table
        return cut(table, select)

    def rows(self, select: exp.Select, around: Rows | None) -> Rows:
        """Return the rows of FROM and WHERE; with `around`, each joined to the row of the outer query that it belongs
        to."""
        before = self._inputs
        self._with_named(select)
        found = from_clause.rows(self, select, around)
        self._inputs = before
        return found

    def value(self, expression: exp.Expr, rows: Rows) -> Values:
        """Evaluate an expression for every row; its subqueries and window functions are evaluated first."""
        flat = self._cache.flat(expression)
        for number, part in enumerate(flat.parts):
            if isinstance(part, exp.Window):
                found = window_functions.value(self, part, rows)
            else:
                found = subqueries.value(self, part, rows)
            rows = rows.with_column(SUBQUERY, f"s{number}", found, f"_{next(self.numbers)}")
        return self._cache.compiled(flat.expression, rows).evaluate(rows.table)

    def _with_named(self, query: exp.Expr) -> None:
        named = query.args.get("with_")
        if named is None:
            return
        if named.args.get("recursive"):
            raise NotCompilable("a recursive WITH")
        for cte in named.expressions:
            alias = cte.args["alias"]
            names = [i.name for i in alias.args.get("columns") or ()]
            found = self.query(cte.this)
            if names and len(names) != found.num_columns:
                raise NotCompilable("a column list of another length than its query")
            table = found.rename_columns(names) if names else found
            self._inputs = {**self._inputs, cte.alias.lower(): table}


def _require_parts(query: exp.Expr, known: tuple[str, ...]) -> None:
    if any(value for name, value in query.args.items() if value and name not in (*known, *AFTER, "with_")):
        raise NotCompilable("a clause of the query that only Spark supports")


def _chunked(values: Values) -> pa.ChunkedArray:
    return values if isinstance(values, pa.ChunkedArray) else pa.chunked_array([values])
