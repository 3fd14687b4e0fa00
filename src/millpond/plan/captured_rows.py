"""The condition `where` of a captured table.

It is added to the query that reads the table, and evaluated here, so that rows that begin or cease to satisfy it are
added and removed."""

from __future__ import annotations

import sqlglot
from sqlglot import exp
from sqlglot.errors import SqlglotError

from millpond.plan.findings import Findings
from millpond.plan.source_catalog import Opened

# What every database evaluates as Spark does: comparisons of columns with constants.
_ALLOWED = (
    exp.And,
    exp.Between,
    exp.Boolean,
    exp.Column,
    exp.EQ,
    exp.GT,
    exp.GTE,
    exp.Identifier,
    exp.In,
    exp.Is,
    exp.LT,
    exp.LTE,
    exp.Literal,
    exp.NEQ,
    exp.Neg,
    exp.Not,
    exp.Null,
    exp.Or,
    exp.Paren,
)
_DIALECTS = {"postgresql": "postgres", "mysql": "mysql"}
_HINT = "Compare columns with constants, or write the condition into the SELECT, which is evaluated here."


def restrict(table: exp.Table, opened: Opened, number: int, findings: Findings) -> None:
    """Add the condition of a captured source to the SELECT or the join that reads it."""
    condition = _parsed(opened, table, findings)
    if condition is None:
        return
    if not table.alias:
        table.set("alias", exp.TableAlias(this=exp.to_identifier(f"_captured{number}", quoted=True)))
    for column in condition.find_all(exp.Column):
        column.set("table", exp.to_identifier(table.alias, quoted=True))
    join, select = table.find_ancestor(exp.Join, exp.Select), table.find_ancestor(exp.Select)
    side = (join.side or "").upper() if isinstance(join, exp.Join) else ""
    others = [j for j in select.args.get("joins") or () if j is not join] if select is not None else []
    if select is None or side in ("RIGHT", "FULL") or any((j.side or "").upper() in ("RIGHT", "FULL") for j in others):
        message = f"The 'where' of {opened.plan.spec.shown} is not supported in an outer join of this kind."
        findings.error("MP508", message, table, "Store the captured rows first: CREATE TABLE t AS SELECT * FROM ...;")
    elif side == "LEFT" and isinstance(join, exp.Join):
        before = join.args.get("on")
        join.set("on", condition if before is None else exp.and_(before, condition, copy=False))
    else:
        select.where(condition, copy=False)


def _parsed(opened: Opened, table: exp.Table, findings: Findings) -> exp.Expr | None:
    """The condition; None, with a finding, if it is not evaluated as the database does."""
    try:
        found = sqlglot.parse_one(opened.condition or "", read=_DIALECTS.get(opened.plan.type))
    except SqlglotError:
        findings.error("MP508", f"The 'where' of {opened.plan.spec.shown} is not a condition.", table, _HINT)
        return None
    other = next((node for node in found.walk() if not isinstance(node, _ALLOWED)), None)
    if other is not None or any(column.table for column in found.find_all(exp.Column)):
        message = f"The 'where' of {opened.plan.spec.shown} cannot be evaluated for captured changes."
        findings.error("MP508", message, table, _HINT)
        return None
    for node in found.walk():
        # Places are those of the file, and not of the condition.
        node.meta.clear()
    return found
