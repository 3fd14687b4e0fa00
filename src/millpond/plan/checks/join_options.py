"""Check: the options of a join are valid for its kind, and its defaults refer to columns of the right type."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
from sqlglot import exp

from millpond.errors import Problem, TableError, did_you_mean
from millpond.expressions.compile import NotCompilable, compile_expression
from millpond.plan.bound import BoundSelect
from millpond.plan.checks.subject import Subject
from millpond.plan.columns import sentence
from millpond.plan.context import Planned
from millpond.plan.missing import DEFAULTS, policy_of
from millpond.schema import Column, Schema, type_name
from millpond.sql.nodes import join_options
from millpond.sql.statements import OptionEntry

# Options that apply to one policy only.
POLICY_OF = {"default.": "default", "wait.": "wait"}


def check(subject: Subject) -> Iterator[Problem]:
    for planned, select in subject.selects():
        for join in select.rows.args.get("joins") or ():
            yield from _join(subject, select, join, planned)
            policy = policy_of(join)
            if policy is not None:
                yield from _policy(subject, planned, select, join)


def _policy(subject: Subject, planned: Planned, select: BoundSelect, join: exp.Join) -> Iterator[Problem]:
    """Report joins for which the policy of 'on.missing' is not possible."""
    entry = next(e for e in join_options(join).entries if e.name == "on.missing")
    kind = f"{join.args.get('side') or ''} {join.args.get('kind') or ''}".upper().split()
    odd = next((word for word in ("RIGHT", "FULL", "SEMI", "ANTI") if word in kind), None)
    if odd is not None:
        message = f"'on.missing' is not allowed for {odd} JOIN, which defines what happens to rows without a match."
        yield subject.problem("MP303", message, entry.place, "Use JOIN or LEFT JOIN, or remove the option.")
    elif select.streams and select.scope.items[0] is not select.streams[0]:
        message = "'on.missing' applies to events, but this join starts from a table."
        yield subject.problem("MP303", message, entry.place, "Write the stream first: FROM stream JOIN table ON ...")
    elif entry.value.lower() == "wait":
        why = _why_no_wait(planned, select)
        if why:
            yield subject.problem("MP303", f"'on.missing' = 'wait' is not supported {why[0]}.", entry.place, why[1])


def _why_no_wait(planned: Planned, select: BoundSelect) -> tuple[str, str] | None:
    if not planned.drivers:
        return "in a query over tables only, which has no events", "Use nulls, skip, default or fail."
    if select.inner:
        return "in a subquery", "Join in the statement's own FROM."
    if select.grouped or select.node.args.get("distinct") is not None:
        hint = "Insert the joined events into a table, and aggregate that table in a view."
        return "under an aggregate or DISTINCT", hint
    if len(select.streams) > 1:
        return "after a join of two streams", "Insert the joined events into a table first, or use nulls or skip."
    return None


def _join(subject: Subject, select: BoundSelect, join: exp.Join, planned: Planned) -> Iterator[Problem]:
    entries = join_options(join).entries
    policy = next((e.value.lower() for e in entries if e.name == "on.missing"), None)
    if policy is None and planned.options.get("on.table.missing") == DEFAULTS:
        policy = DEFAULTS
    item = next((i for i in select.scope.items if i.node is join.this), None)
    for entry in entries:
        wanted = next((p for start, p in POLICY_OF.items() if entry.name.startswith(start)), None)
        if wanted is not None and policy != wanted:
            message = f"Option '{entry.name}' has no effect without 'on.missing' = '{wanted}'."
            hint = f"Add 'on.missing' = '{wanted}', or remove it."
            yield subject.problem("MP303", message, entry.place, hint)
        if entry.name.startswith("default.") and item is not None and item.columns is not None:
            yield from _column(subject, entry, item.label, item.columns)


def _column(subject: Subject, entry: OptionEntry, label: str, columns: Schema) -> Iterator[Problem]:
    name = entry.name.removeprefix("default.")
    if name not in columns:
        hint = did_you_mean(name, columns.names) or f"Its columns are: {', '.join(columns.names)}."
        yield subject.problem("MP202", f"{sentence(label)} has no column '{name}'.", entry.place, hint)
    elif not _fits(entry.value, columns[name]):
        kind = type_name(columns[name].type)
        message = f"The default '{entry.value}' of '{name}' is not a valid {kind}."
        yield subject.problem("MP302", message, entry.value_place or entry.place, f"Write a value of type {kind}.")


def _fits(text: str, column: Column) -> bool:
    """Whether the text can be cast to the column's type; True if only Spark can determine it."""
    if column.type is None:
        return True
    cast = exp.cast(exp.Literal.string(text), type_name(column.type), dialect="spark")
    try:
        compile_expression(cast, Schema(())).evaluate(pa.RecordBatch.from_struct_array(pa.array([{}])))
    except NotCompilable:
        return True
    except TableError:
        return False
    return True
