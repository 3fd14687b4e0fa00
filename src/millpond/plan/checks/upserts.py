"""Check: the ON of an UPSERT compares rows of the table with rows of a query."""

from __future__ import annotations

from collections.abc import Iterator

from sqlglot import exp

from millpond.errors import Problem
from millpond.plan.checks.subject import Subject
from millpond.plan.function_names import has_aggregate
from millpond.sql.statements import Upsert


def check(subject: Subject) -> Iterator[Problem]:
    for planned in subject.planned:
        statement = planned.statement
        if not isinstance(statement, Upsert) or statement.on is None:
            continue
        at = subject.at(statement.on, statement.place)
        table = planned.target or str(statement.target)
        if planned.bound is None:
            message = "ON cannot refer to the values, because they have no column names."
            hint = f"Write UPSERT INTO {table} SELECT * FROM (VALUES (...)) AS v (a, b) ON {table}.a = v.a."
            yield subject.problem("MP202", message, at, hint)
        elif statement.on.find(exp.Query) is not None:
            message = "A subquery is not allowed in the ON of an UPSERT, which is evaluated for every row of the table."
            yield subject.problem(
                "MP224", message, at, "Compute the value in the FROM of the query, and compare with it."
            )
        elif _gathers(planned.bound.query):
            message = "UPSERT ... ON does not support groups."
            hint = "Store the groups with CREATE TABLE ... AS SELECT ... GROUP BY; or UPSERT by the key, without ON."
            yield subject.problem("MP220", message, at, hint)


def _gathers(query: exp.Query) -> bool:
    if not isinstance(query, exp.Select):
        return True
    grouped = query.args.get("group") is not None or query.args.get("distinct") is not None
    return grouped or any(has_aggregate(e) for e in query.expressions)
