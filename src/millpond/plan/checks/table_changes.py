"""CHANGES(table) is told to sinks as it happens: it goes into no table, and is neither gathered nor held back."""

from __future__ import annotations

from collections.abc import Iterator

from sqlglot import exp

from millpond.errors import Problem
from millpond.plan.checks.subject import Subject
from millpond.plan.context import Planned
from millpond.plan.model import StepKind
from millpond.sql.statements import CreateTable

# How the driver of CHANGES(table) is called.
CHANGES = "changes("


def check(subject: Subject) -> Iterator[Problem]:
    for planned in subject.planned:
        told = [d for d in planned.drivers if d.startswith(CHANGES)]
        if planned.bound is None or not told:
            continue
        table = told[0].removeprefix(CHANGES).removesuffix(")")
        if len(planned.drivers) > 1:
            message = f"CHANGES({table}) cannot be mixed with another stream in one statement."
            hint = f"Join the stream with the table itself: ... JOIN {table} ON ..."
            yield subject.problem("MP218", message, planned.statement.place, hint)
            continue
        if planned.kind is not StepKind.SINK:
            yield _into_table(subject, planned, table)
            continue
        for select in planned.bound.selects:
            if select.streams and (select.grouped or select.node.args.get("distinct") is not None):
                message = f"CHANGES({table}) cannot be grouped: a change is told in the commit that makes it."
                hint = f"Tell the changes of a view: CREATE TABLE v AS SELECT ... FROM {table} GROUP BY ..."
                yield subject.problem("MP220", message, select.streams[0].at, hint)
            if len(select.streams) > 1:
                hint = f"Join with the table itself: ... JOIN {table} ON ..."
                message = f"CHANGES({table}) cannot be joined with itself."
                yield subject.problem("MP215", message, select.streams[1].at, hint)
        if isinstance(planned.bound.query, exp.SetOperation) and planned.bound.query.args.get("distinct"):
            message = f"UNION without ALL cannot gather CHANGES({table})."
            yield subject.problem("MP220", message, planned.statement.place, "Write UNION ALL.")


def _into_table(subject: Subject, planned: Planned, table: str) -> Problem:
    select = next(s for s in planned.bound.selects if s.streams) if planned.bound else None
    at = select.streams[0].at if select is not None else planned.statement.place
    if isinstance(planned.statement, CreateTable):
        hint = f"A table over tables follows them by itself: CREATE TABLE ... AS SELECT ... FROM {table};"
    else:
        hint = (
            f"Write into a sink, or keep what the query yields in a view: CREATE TABLE ... AS SELECT ... FROM {table};"
        )
    return subject.problem("MP215", f"CHANGES({table}) can only be written into a sink.", at, hint)
