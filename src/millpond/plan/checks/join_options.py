"""The options of a join: defaults name columns of the joined table, and belong to a policy that uses them."""

from __future__ import annotations

from collections.abc import Iterator

from sqlglot import exp

from millpond.errors import Problem
from millpond.plan.absent import DEFAULTS
from millpond.plan.bound import BoundSelect
from millpond.plan.checks.subject import Subject
from millpond.plan.columns import sentence
from millpond.plan.context import Planned
from millpond.sql.nodes import join_options
from millpond.sql.statements import OptionEntry
from millpond.suggest import did_you_mean

# Options that only one policy reads.
POLICY_OF = {"default.": "default", "wait.": "wait"}


def check(subject: Subject) -> Iterator[Problem]:
    for planned, select in subject.selects():
        for join in select.node.args.get("joins") or ():
            yield from _join(subject, select, join, planned)


def _join(subject: Subject, select: BoundSelect, join: exp.Join, planned: Planned) -> Iterator[Problem]:
    entries = join_options(join).entries
    policy = next((e.value.lower() for e in entries if e.name == "on.missing"), None)
    if policy is None and planned.options.get("on.table.missing") == DEFAULTS:
        policy = DEFAULTS
    item = next((i for i in select.scope.items if i.node is join.this), None)
    for entry in entries:
        wanted = next((p for start, p in POLICY_OF.items() if entry.name.startswith(start)), None)
        if wanted is not None and policy != wanted:
            message = f"Option '{entry.name}' does nothing without 'on.missing' = '{wanted}'."
            hint = f"Add 'on.missing' = '{wanted}', or remove it."
            yield subject.problem("MP303", message, entry.place, hint)
        if entry.name.startswith("default.") and item is not None and item.columns is not None:
            yield from _column(subject, entry, item.label, item.columns.names)


def _column(subject: Subject, entry: OptionEntry, label: str, names: tuple[str, ...]) -> Iterator[Problem]:
    name = entry.name.removeprefix("default.")
    if name not in {n.lower() for n in names}:
        hint = did_you_mean(name, names) or f"There are: {', '.join(names)}."
        yield subject.problem("MP202", f"{sentence(label)} has no column '{name}'.", entry.place, hint)
