"""UPSERT ... ON compares rows of the table with rows of a query, one by one."""

from __future__ import annotations

from collections.abc import Iterator

from sqlglot import exp

from millpond.errors import Problem
from millpond.plan.checks.subject import Subject
from millpond.plan.functions import has_aggregate
from millpond.sql.statements import Upsert


def check(subject: Subject) -> Iterator[Problem]:
    for planned in subject.planned:
        statement = planned.statement
        if not isinstance(statement, Upsert) or statement.on is None:
            continue
        at = subject.at(statement.on, statement.place)
        table = planned.target or str(statement.target)
        if planned.bound is None:
            message = "ON has nothing to compare with: the values have no names."
            hint = f"Write UPSERT INTO {table} SELECT * FROM (VALUES (...)) AS v (a, b) ON {table}.a = v.a."
            yield subject.problem("MP202", message, at, hint)
        elif statement.on.find(exp.Query) is not None:
            message = "ON of an UPSERT cannot hold a subquery: it is asked for every row of the table."
            yield subject.problem(
                "MP224", message, at, "Compute the value in the SELECT list's FROM, and compare with it."
            )
        elif _gathers(planned.bound.query):
            message = "UPSERT ... ON cannot take groups: a group is no row that ON could look at."
            hint = (
                "Keep the groups in a table with CREATE TABLE ... AS SELECT ... GROUP BY; or UPSERT by the table's key."
            )
            yield subject.problem("MP220", message, at, hint)


def _gathers(query: exp.Query) -> bool:
    if not isinstance(query, exp.Select):
        return True
    grouped = query.args.get("group") is not None or query.args.get("distinct") is not None
    return grouped or any(has_aggregate(e) for e in query.expressions)
