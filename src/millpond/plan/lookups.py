"""Tables of a query whose rows can be fetched by the batch's keys: an equality ties their columns to the event.

Only the rows that the equality lets through can matter, so that nothing changes when the others are left out: a table
of FROM or of an inner join, the right side of a LEFT, SEMI or ANTI join, and tables of a correlated subquery.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from sqlglot import exp

from millpond.plan.model import BATCH
from millpond.sql.conditions import all_of


@dataclass(frozen=True)
class Lookup:
    """One table of one FROM or JOIN: `columns` of it must equal `keys`, expressions over the batch alone, without
    qualifiers."""

    node: exp.Table
    columns: tuple[str, ...]
    keys: tuple[exp.Expr, ...]


def find_lookups(query: exp.Expr) -> tuple[Lookup, ...]:
    """All tables of a query that can be looked up, with the equalities that say so."""
    found = (_lookup(select, table, conditions) for select, table, conditions in _places(query))
    return tuple(lookup for lookup in found if lookup is not None)


def _places(query: exp.Expr) -> Iterator[tuple[exp.Select, exp.Table, list[exp.Expr]]]:
    """Each table with the conditions that every row of it must satisfy to matter."""
    for select in query.find_all(exp.Select):
        where = select.args.get("where")
        inner = list(all_of(where.this)) if where is not None else []
        source = select.args.get("from_")
        joins = select.args.get("joins") or []
        if any((join.side or "").upper() in ("RIGHT", "FULL") for join in joins):
            continue
        if source is not None and isinstance(source.this, exp.Table):
            yield select, source.this, inner
        for join in joins:
            if isinstance(join.this, exp.Table) and not join.args.get("using"):
                own = list(all_of(join.args.get("on")))
                is_inner = not join.side and (join.kind or "").upper() in ("", "INNER", "CROSS")
                yield select, join.this, own + (inner if is_inner else [])


def _lookup(select: exp.Select, table: exp.Table, conditions: list[exp.Expr]) -> Lookup | None:
    if table.name.lower() == BATCH or not isinstance(table.this, exp.Identifier):
        return None
    batches = _batch_names(select)
    pairs: dict[str, exp.Expr] = {}
    for condition in conditions:
        if isinstance(condition, exp.EQ):
            for ours, theirs in ((condition.this, condition.expression), (condition.expression, condition.this)):
                if _is_column_of(ours, table) and _is_over(theirs, batches):
                    pairs.setdefault(ours.name, _unqualified(theirs))
    return Lookup(table, tuple(pairs), tuple(pairs.values())) if pairs else None


def _batch_names(select: exp.Select) -> set[str]:
    """The names of the batch in this SELECT and around it."""
    names: set[str] = set()
    around: exp.Expr | None = select
    while around is not None:
        if isinstance(around, exp.Select):
            relations = [around.args.get("from_"), *(around.args.get("joins") or [])]
            tables = [r.this for r in relations if r is not None and isinstance(r.this, exp.Table)]
            names |= {t.alias_or_name.lower() for t in tables if t.name.lower() == BATCH}
        around = around.parent
    return names


def _is_column_of(node: exp.Expr, table: exp.Table) -> bool:
    return isinstance(node, exp.Column) and node.table.lower() == table.alias_or_name.lower()


def _is_over(node: exp.Expr, batches: set[str]) -> bool:
    """Whether an expression reads columns of the batch and of nothing else."""
    columns = list(node.find_all(exp.Column))
    return bool(columns) and not node.find(exp.Select) and all(c.table.lower() in batches for c in columns)


def _unqualified(node: exp.Expr) -> exp.Expr:
    return node.copy().transform(lambda n: exp.column(n.this.copy()) if isinstance(n, exp.Column) else n)
