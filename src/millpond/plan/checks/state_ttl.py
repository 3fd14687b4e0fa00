"""Check: 'state.ttl' is used only for groups of a stream without a window."""

from __future__ import annotations

from collections.abc import Iterator

from sqlglot import exp

from millpond.errors import Problem
from millpond.plan.checks.subject import Subject
from millpond.plan.context import Planned
from millpond.sql import nodes
from millpond.sql.statements import NO_OPTIONS, CreateStream, CreateTable, OptionEntry, Statement

CODE = "MP303"


def check(subject: Subject) -> Iterator[Problem]:
    for statement in subject.statements:
        entry = next((e for e in entries_of(statement) if e.name == "state.ttl"), None)
        if entry is None:
            continue
        planned = next((p for p in subject.planned if p.statement is statement), None)
        yield from _refused(subject, statement, planned, entry)


def entries_of(statement: Statement) -> Iterator[OptionEntry]:
    """The options at the end of a statement, which may directly follow a relation or a join."""
    query = getattr(statement, "query", None)
    groups = [getattr(statement, "options", NO_OPTIONS)]
    if isinstance(statement, CreateTable) and query is None:
        # Not an option of the statement: reported where options are assigned to owners.
        return
    if isinstance(statement, CreateStream) and statement.source is not None:
        groups.append(statement.source.options)
    if isinstance(query, exp.Expr):
        inside = [nodes.relation_options(n) for n in query.find_all(exp.Table)]
        inside += [nodes.join_options(n) for n in query.find_all(exp.Join)]
        groups += [group for group in inside if group.at_end]
    yield from (entry for group in groups for entry in group.entries)


def _refused(subject: Subject, statement: Statement, planned: Planned | None, entry: OptionEntry) -> Iterator[Problem]:
    bound = planned.bound if planned is not None else None
    if bound is not None and bound.drivers and bound.outputs is None:
        # The columns are not known yet, so the plan may be incomplete.
        return
    if getattr(statement, "query", None) is not None and (bound is None or not bound.drivers):
        message = "'state.ttl' has no effect here: this statement does not group a stream itself."
        yield subject.problem(CODE, message, entry.place, "Write it on the statement that groups the stream.")
    elif planned is None or planned.aggregate is None or not planned.aggregate.keys:
        message = "'state.ttl' has no effect here: it drops groups, but this statement has none."
        yield subject.problem(CODE, message, entry.place, "Remove it, or add GROUP BY or DISTINCT.")
    elif planned.aggregate.window is not None:
        message = "'state.ttl' is only for groups without a window."
        yield subject.problem(CODE, message, entry.place, "Use 'retention' on the table, which drops old windows.")
