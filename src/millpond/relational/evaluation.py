"""The evaluation of a query as its parts see it; `relational.answer` implements it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol

import pyarrow as pa
from sqlglot import exp

from millpond.contracts.evaluator import Input, Limits
from millpond.relational.codes import Values
from millpond.relational.compiled import QueryCache
from millpond.relational.inputs import Rows


class Evaluation(Protocol):
    """Used by FROM, subqueries and window functions, which contain expressions and queries themselves. A protocol, so
    that these modules need not import the one that calls them."""

    # Numbers for column names: the same query always gets the same ones, so that compiled expressions are found again.
    numbers: Iterator[int]
    limits: Limits

    @property
    def cache(self) -> QueryCache: ...

    def relation(self, name: str) -> Input | None:
        """Return the relation of a lower-case name in FROM."""

    def query(self, query: exp.Expr) -> pa.Table:
        """Return the rows of a query that is not correlated."""

    def rows(self, select: exp.Select, around: Rows | None) -> Rows:
        """Return the rows of FROM and WHERE; with `around`, each joined to the row of the outer query that it belongs
        to."""

    def value(self, expression: exp.Expr, rows: Rows) -> Values:
        """Evaluate an expression for every row."""
