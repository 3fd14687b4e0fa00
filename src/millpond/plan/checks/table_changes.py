"""Check: CHANGES(table) is written to sinks only, and is not grouped or combined with another stream."""

from __future__ import annotations

from collections.abc import Iterator

from sqlglot import exp

from millpond.errors import Problem
from millpond.plan.checks.subject import Subject
from millpond.plan.context import Planned
from millpond.plan.model import StepKind
from millpond.sql.statements import CreateTable

# The prefix of the driver of CHANGES(table).
CHANGES = "changes("


def check(subject: Subject) -> Iterator[Problem]:
    for planned in subject.planned:
        changes = [d for d in planned.drivers if d.startswith(CHANGES)]
        if planned.bound is None or not changes:
            continue
        table = changes[0].removeprefix(CHANGES).removesuffix(")")
        if len(planned.drivers) > 1:
            message = f"CHANGES({table}) cannot be combined with another stream in one statement."
            hint = f"Join the stream with the table itself: ... JOIN {table} ON ..."
            yield subject.problem("MP218", message, planned.statement.place, hint)
            continue
        if planned.kind is not StepKind.SINK:
            yield _into_table(subject, planned, table)
            continue
        for select in planned.bound.selects:
            if select.streams and (select.grouped or select.node.args.get("distinct") is not None):
                message = f"CHANGES({table}) cannot be grouped: changes are emitted in the commit that makes them."
                hint = (
                    f"Emit the changes of an aggregate instead: CREATE TABLE v AS SELECT ... FROM {table} GROUP BY ..."
                )
                yield subject.problem("MP220", message, select.streams[0].at, hint)
            if len(select.streams) > 1:
                hint = f"Join with the table itself: ... JOIN {table} ON ..."
                message = f"CHANGES({table}) cannot be joined with itself."
                yield subject.problem("MP215", message, select.streams[1].at, hint)
        if isinstance(planned.bound.query, exp.SetOperation) and planned.bound.query.args.get("distinct"):
            message = f"UNION without ALL is not allowed for CHANGES({table})."
            yield subject.problem("MP220", message, planned.statement.place, "Write UNION ALL.")


def _into_table(subject: Subject, planned: Planned, table: str) -> Problem:
    select = next(s for s in planned.bound.selects if s.streams) if planned.bound else None
    at = select.streams[0].at if select is not None else planned.statement.place
    if isinstance(planned.statement, CreateTable):
        hint = f"A table AS SELECT is kept up to date without CHANGES: CREATE TABLE ... AS SELECT ... FROM {table};"
    else:
        hint = f"Write to a sink, or store the result of the query: CREATE TABLE ... AS SELECT ... FROM {table};"
    return subject.problem("MP215", f"CHANGES({table}) can only be written to a sink.", at, hint)
