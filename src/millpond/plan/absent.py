"""Tables that are not there yet: while one is absent, joins with it give NULLs or defaults for its columns."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from sqlglot import exp

from millpond.plan.missing import FOUND, carry_out, policy_of

# What 'on.table.missing' may say that lets a statement go on without a table.
NULLS, DEFAULTS, SKIP = "nulls", "default", "skip"


@dataclass(frozen=True)
class Absent:
    """Tables, in lower case, that a statement does without as `policy` says; of the `unknown` among them not even the
    columns are known yet."""

    tables: frozenset[str] = frozenset()
    unknown: frozenset[str] = frozenset()
    policy: str = ""


def without_tables(query: exp.Query, absent: Absent) -> exp.Query:
    """The query with every join of an absent table as one that finds no row. A join that says itself what it does with
    an event without a row keeps to that; in subqueries an absent table is an empty one."""
    found = query.copy()
    for select in list(found.find_all(exp.Select)):
        for join in select.args.get("joins") or ():
            if policy_of(join) is None and _gives_columns(join) and _reads(join.this, absent.tables):
                _require_condition(join)
                carry_out(select, join, absent.policy)
    for table in list(found.find_all(exp.Table)):
        if table.name.lower() in absent.unknown:
            table.replace(_empty(table, found))
    return found


def can_do_without(query: exp.Query) -> bool:
    """Whether a query names every column that it wants of a table whose columns are not known."""
    outputs = [e for select in query.find_all(exp.Select) for e in select.expressions]
    return not any(isinstance(e, exp.Star) or isinstance(getattr(e, "this", None), exp.Star) for e in outputs)


def _empty(table: exp.Table, query: exp.Query) -> exp.Subquery:
    """A relation without rows that has every column which may be meant to be the table's."""
    meant = [c.name for c in query.find_all(exp.Column) if c.table in ("", table.alias_or_name) and c.name != FOUND]
    names = {name.lower(): name for name in meant}
    nulls = [exp.alias_(exp.cast(exp.null(), "string"), name, quoted=True) for name in names.values()]
    rows = exp.select(*(nulls or [exp.alias_(exp.null(), "none")])).where(exp.false())
    return exp.Subquery(this=rows, alias=exp.TableAlias(this=exp.to_identifier(table.alias_or_name, quoted=True)))


def _gives_columns(join: exp.Join) -> bool:
    """SEMI and ANTI only ask whether there is a row; FULL has its NULLs already."""
    return (join.side or "").upper() != "FULL" and (join.kind or "").upper() not in ("SEMI", "ANTI")


def _reads(relation: exp.Expr, absent: Collection[str]) -> bool:
    return any(table.name.lower() in absent for table in relation.find_all(exp.Table))


def _require_condition(join: exp.Join) -> None:
    """CROSS JOIN and a comma have no condition, an outer join needs one."""
    if not join.args.get("on") and not join.args.get("using"):
        join.set("kind", None)
        join.set("on", exp.true())
