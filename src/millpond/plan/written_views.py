"""Views over tables written in: a name for a query becomes the query."""

from __future__ import annotations

from sqlglot import exp

from millpond.plan.context import Context
from millpond.sql import nodes
from millpond.sql.statements import CreateView


def written_in(query: exp.Query, context: Context) -> exp.Query:
    """The query with the views over tables that it names as subqueries."""
    own = {cte.alias.lower() for cte in query.find_all(exp.CTE)}
    for table in list(query.find_all(exp.Table)):
        if not isinstance(table.this, exp.Identifier) or table.args.get("db") or table.name.lower() in own:
            continue
        if isinstance(context.catalog.declaration(table.name), CreateView):
            _write_in(table, context)
    return query


def _write_in(table: exp.Table, context: Context) -> None:
    relation = context.catalog.find(table.name)
    if relation is None or relation.is_stream or relation.query is None:
        return
    if nodes.relation_options(table).entries:
        message = f"View '{relation.name}' takes no options: it is a name for a query."
        context.findings.error("MP303", message, table, "Write them in the view's own query.")
    inner = exp.Subquery(this=written_in(relation.query.copy(), context))
    inner.set("alias", table.args.get("alias") or exp.TableAlias(this=exp.to_identifier(relation.name, quoted=True)))
    for part in ("joins", "laterals", "pivots", "sample"):
        inner.set(part, table.args.get(part))
    table.replace(inner)


def texts_of_views(query: exp.Query, context: Context) -> list[str]:
    """The texts of the views behind a query, which is another one when they are changed."""
    found: dict[str, str] = {}
    waiting = [query]
    while waiting:
        for table in waiting.pop().find_all(exp.Table):
            declared = context.catalog.declaration(table.name) if isinstance(table.this, exp.Identifier) else None
            if isinstance(declared, CreateView) and declared.name.key not in found:
                found[declared.name.key] = declared.text
                waiting.append(declared.query)
    return [found[name] for name in sorted(found)]
