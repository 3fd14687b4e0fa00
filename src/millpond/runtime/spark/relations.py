"""Queries of the plan made ready for Spark: relations renamed to temporary views."""

from __future__ import annotations

from collections.abc import Mapping

from sqlglot import exp

from millpond.plan.missing import rewrite_missing
from millpond.sql.correlation import rewrite_correlated
from millpond.sql.grouping import rewrite_grouped
from millpond.sql.ordering import rewrite_ordering
from millpond.sql.rewrites import rewrite_any_all
from millpond.sql.spark import render


def tables_of(query: exp.Expr) -> tuple[str, ...]:
    """The relations a query reads, in lower case, without its own WITH names."""
    return tuple(dict.fromkeys(table.name.lower() for table in _real_tables(query)))


def spark_text(query: exp.Query, views: Mapping[str, str]) -> str:
    """The query as Spark runs it: each relation is its temporary view, known by its own name."""
    ready = query.copy()
    for table in list(_real_tables(ready)):
        view = views[table.name.lower()]
        if not table.alias:
            table.set("alias", exp.TableAlias(this=exp.to_identifier(table.name, quoted=True)))
        table.set("this", exp.to_identifier(view, quoted=True))
    return render(rewrite_correlated(rewrite_any_all(rewrite_grouped(rewrite_ordering(rewrite_missing(ready))))))


def _real_tables(query: exp.Expr) -> list[exp.Table]:
    own = {cte.alias.lower() for cte in query.find_all(exp.CTE)}
    return [t for t in query.find_all(exp.Table) if isinstance(t.this, exp.Identifier) and t.name.lower() not in own]
