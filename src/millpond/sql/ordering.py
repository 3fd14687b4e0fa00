"""ORDER BY with a subquery, in a form that Spark runs: it orders by columns, and takes no correlated subquery there."""

from __future__ import annotations

from sqlglot import exp

# Names that no user writes.
ROWS = "_ordered_rows"
VALUE = "_order_value_"
# Clauses that hold after the ordering.
AFTER = ("order", "limit", "offset")


def rewrite_ordering(query: exp.Query) -> exp.Query:
    """The query with what it orders by as columns of a subquery, where a subquery is among it; a new tree."""
    order = query.args.get("order")
    if not isinstance(query, exp.Select) or order is None or order.find(exp.Query) is None:
        return query.copy()
    if query.args.get("distinct") is not None:
        return query.copy()
    rows = query.copy()
    order = rows.args["order"]
    outputs = [e.alias_or_name for e in rows.expressions]
    wanted = dict(zip(outputs, rows.expressions, strict=True))
    for number, key in enumerate(order.expressions):
        # A bare name may mean an output.
        named = isinstance(key.this, exp.Column) and not key.this.table and wanted.get(key.this.name)
        value = wanted[key.this.name].unalias() if named else key.this
        # Not exp.alias_: it would name a subquery itself.
        named_value = exp.Alias(this=value.copy(), alias=exp.to_identifier(f"{VALUE}{number}", quoted=True))
        rows.append("expressions", named_value)
        key.set("this", exp.column(f"{VALUE}{number}", table=ROWS, quoted=True))
    alias = exp.TableAlias(this=exp.to_identifier(ROWS))
    ordered = exp.Select(
        expressions=[exp.alias_(exp.column(name, table=ROWS, quoted=True), name, quoted=True) for name in outputs]
    )
    for clause in AFTER:
        ordered.set(clause, rows.args.get(clause))
        rows.set(clause, None)
    return ordered.from_(exp.Subquery(this=rows, alias=alias), copy=False)
