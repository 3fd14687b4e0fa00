"""The checks of a bound file, one rule per module; each returns problems and changes nothing."""

from __future__ import annotations

from collections.abc import Iterator

from millpond.errors import Problem
from millpond.plan.checks import (
    aggregate_places,
    assignments,
    backfill,
    captures,
    comparisons,
    defaults,
    drops,
    event_order,
    function_calls,
    grouping,
    hints,
    join_options,
    keys,
    limits,
    lookups,
    mutual_feeding,
    operators,
    ordering,
    parameters,
    quantifiers,
    self_feeding,
    settings,
    sink_columns,
    state_ttl,
    stream_groups,
    stream_joins,
    subqueries,
    table_changes,
    transactions,
    upserts,
    windows,
)
from millpond.plan.checks.subject import Subject

# Findings are sorted by place at the end; findings at the same place stay in the order of this list.
CHECKS = (
    function_calls.check,
    aggregate_places.check,
    grouping.check,
    stream_groups.check,
    windows.check,
    state_ttl.check,
    subqueries.check,
    quantifiers.check,
    comparisons.check,
    operators.check,
    assignments.check,
    defaults.check,
    keys.check,
    upserts.check,
    limits.check,
    lookups.check,
    captures.check,
    ordering.check,
    stream_joins.check,
    table_changes.check,
    join_options.check,
    hints.check,
    parameters.check,
    self_feeding.check,
    mutual_feeding.check,
    sink_columns.check,
    transactions.check,
    drops.check,
    event_order.check,
    settings.check,
    backfill.check,
)


def run_checks(subject: Subject) -> Iterator[Problem]:
    for check in CHECKS:
        yield from check(subject)
