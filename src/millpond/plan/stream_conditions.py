"""EXISTS, NOT EXISTS and IN over a stream, in WHERE of a query over a stream, as SEMI and ANTI joins of streams."""

from __future__ import annotations

from dataclasses import dataclass

from sqlglot import exp

from millpond.plan.catalog import Catalog, Relation
from millpond.sql import nodes
from millpond.sql.conditions import all_of, relation_names

# Clauses of a subquery that a join cannot express.
_OTHER = ("joins", "laterals", "group", "having", "distinct", "qualify", "windows", "limit", "offset", "with_")


@dataclass(frozen=True)
class Condition:
    """One conjunct of WHERE that has a subquery; `compared` is the left side of IN."""

    node: exp.Expr
    query: exp.Select
    kind: str
    compared: exp.Expr | None = None


def with_joined_conditions(query: exp.Query, catalog: Catalog) -> exp.Query:
    """The query with its conditions over streams as joins, in place; what cannot be one is left to the binder."""
    own = {cte.alias.lower() for cte in query.find_all(exp.CTE)}
    for select in list(query.find_all(exp.Select)):
        where = select.args.get("where")
        if where is None or not _starts_from_stream(select, catalog, own):
            continue
        conditions = list(all_of(where.this))
        found = [(c, _stream_of(c.query, catalog, own)) for c in map(_condition, conditions) if c is not None]
        asked = [(condition, relation) for condition, relation in found if relation is not None]
        # SEMI first: an ANTI JOIN emits its events late, when no match can arrive any more.
        for condition, relation in sorted(asked, key=lambda pair: pair[0].kind, reverse=True):
            select.append("joins", _join(select, condition, relation, catalog))
        rest = [c for c in conditions if all(c is not condition.node for condition, _ in asked)]
        if asked:
            select.set("where", exp.Where(this=exp.and_(*rest, copy=False)) if rest else None)
    return query


def _condition(node: exp.Expr) -> Condition | None:
    """A conjunct as a condition on a subquery; None for any other, and for NOT IN, which depends on NULLs."""
    inner, kind = node, "SEMI"
    if isinstance(node, exp.Not):
        inner, kind = node.this.unnest(), "ANTI"
    if isinstance(inner, exp.Exists) and isinstance(inner.this, exp.Select):
        return Condition(node, inner.this, kind)
    asked = inner.args.get("query") if isinstance(inner, exp.In) and kind == "SEMI" else None
    asked = asked.unnest() if asked is not None else None
    if isinstance(asked, exp.Select) and len(asked.expressions) == 1 and not isinstance(inner.this, exp.Tuple):
        return Condition(node, asked, kind, inner.this)
    return None


def _starts_from_stream(select: exp.Select, catalog: Catalog, own: set[str]) -> bool:
    from_ = select.args.get("from_")
    first = from_.this if from_ is not None else None
    if isinstance(first, exp.Subquery) and isinstance(first.this, exp.Select):
        return _starts_from_stream(first.this, catalog, own)
    if not isinstance(first, exp.Table):
        return False
    if isinstance(first.this, nodes.Uri) or first.name.lower() in own:
        return True
    relation = catalog.find(first.name) if isinstance(first.this, exp.Identifier) else None
    return relation is not None and relation.is_stream


def _stream_of(query: exp.Select, catalog: Catalog, own: set[str]) -> Relation | None:
    """The stream of a subquery that reads nothing else."""
    from_ = query.args.get("from_")
    table = from_.this if from_ is not None else None
    if not isinstance(table, exp.Table) or not isinstance(table.this, exp.Identifier) or table.args.get("joins"):
        return None
    if table.name.lower() in own or any(query.args.get(clause) for clause in _OTHER):
        return None
    relation = catalog.find(table.name)
    return relation if relation is not None and relation.is_stream else None


def _join(select: exp.Select, condition: Condition, relation: Relation, catalog: Catalog) -> exp.Join:
    """The join of a condition. In a subquery its own columns come first, so they are qualified here."""
    query = condition.query
    table, where = query.args["from_"].this, query.args.get("where")
    before, alias = table.alias_or_name, _free_alias(select, table.alias_or_name)
    if alias != before:
        table.set("alias", exp.TableAlias(this=exp.to_identifier(alias)))
    conditions = list(all_of(where.this)) if where is not None else []
    values = [query.expressions[0].unalias()] if condition.compared is not None else []
    names = {column.name.lower() for column in (*(relation.columns or ()), *relation.hidden)}
    holder = exp.Tuple(expressions=[*conditions, *values])
    for column in list(holder.find_all(exp.Column)):
        first = column.parts[0].name.lower()
        is_own = first == before.lower() if len(column.parts) > 1 else first in names
        if is_own:
            _qualify(column, alias, renamed=len(column.parts) > 1)
    conditions, values = holder.expressions[: len(conditions)], holder.expressions[len(conditions) :]
    if condition.compared is not None:
        compared = _with_owners(condition.compared, names, select, catalog)
        conditions.insert(0, exp.EQ(this=compared, expression=values[0]))
    on = exp.and_(*conditions, copy=False) if conditions else None
    return exp.Join(this=table, side="LEFT", kind=condition.kind, on=on)


def _with_owners(compared: exp.Expr, names: set[str], select: exp.Select, catalog: Catalog) -> exp.Expr:
    """The left side of IN, whose columns are those of the query around, also if the subquery's stream has the name."""
    holder = exp.Paren(this=compared.copy())
    tables = [r.this for r in (select.args["from_"], *(select.args.get("joins") or ()))]
    for column in list(holder.find_all(exp.Column)):
        name = column.parts[0].name.lower()
        if len(column.parts) == 1 and name in names:
            owner = next((t for t in tables if name in _columns_of(t, catalog)), tables[0])
            _qualify(column, owner.alias_or_name, renamed=False)
    found: exp.Expr = holder.this
    return found


def _columns_of(table: exp.Expr, catalog: Catalog) -> set[str]:
    relation = catalog.find(table.name) if isinstance(table, exp.Table) else None
    return {c.name.lower() for c in (*(relation.columns or ()), *relation.hidden)} if relation is not None else set()


def _qualify(column: exp.Column, alias: str, *, renamed: bool) -> None:
    """Name the relation of a column, which may be a path into it."""
    if renamed:
        column.parts[0].set("this", alias)
    else:
        column.set("table", exp.to_identifier(alias))


def _free_alias(select: exp.Select, alias: str) -> str:
    """An alias that no relation of the query has."""
    taken, number, found = relation_names(select), 2, alias
    while found.lower() in taken:
        found, number = f"{alias}_{number}", number + 1
    return found
