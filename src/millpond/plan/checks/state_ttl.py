"""'state.ttl' is for the groups of a statement over a stream, and for those without a window."""

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
        entry = next((e for e in _entries(statement) if e.name == "state.ttl"), None)
        if entry is None:
            continue
        planned = next((p for p in subject.planned if p.statement is statement), None)
        yield from _refused(subject, statement, planned, entry)


def _entries(statement: Statement) -> Iterator[OptionEntry]:
    """The options at the end of a statement, which may stand right after a relation or a join."""
    query = getattr(statement, "query", None)
    groups = [getattr(statement, "options", NO_OPTIONS)]
    if isinstance(statement, CreateTable) and query is None:
        # Not an option of its own: reported where options are handed out.
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
        # Its columns are not known yet.
        return
    if getattr(statement, "query", None) is not None and (bound is None or not bound.drivers):
        message = "'state.ttl' does nothing here: this statement does not group a stream itself."
        yield subject.problem(CODE, message, entry.place, "Write it on the statement that groups the stream.")
    elif planned is None or planned.aggregate is None or not planned.aggregate.keys:
        message = "'state.ttl' does nothing here: it drops groups, and this statement has none."
        yield subject.problem(CODE, message, entry.place, "Remove it, or add GROUP BY or DISTINCT.")
    elif planned.aggregate.window is not None:
        message = "'state.ttl' is for groups without a window."
        yield subject.problem(CODE, message, entry.place, "Write 'retention' on the table: it drops old windows.")
