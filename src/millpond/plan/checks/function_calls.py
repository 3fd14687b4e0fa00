"""Check: functions exist, and none accesses more than its arguments."""

from __future__ import annotations

from collections.abc import Iterator

from sqlglot import exp

from millpond.errors import Problem, did_you_mean
from millpond.plan.checks.subject import Subject
from millpond.plan.function_names import FUNCTIONS, function_name
from millpond.sql import foreign
from millpond.sql.function_calls import REFUSED_HINT, refusal


def check(subject: Subject) -> Iterator[Problem]:
    for tree in subject.trees():
        for node in tree.find_all(exp.Anonymous, exp.AnonymousAggFunc):
            name = function_name(node)
            if refused := refusal(node):
                yield subject.problem("MP219", refused, node, REFUSED_HINT)
                continue
            if name in FUNCTIONS or isinstance(node.parent, exp.Hint):
                continue
            hint = foreign.FUNCTIONS.get(name) or did_you_mean(name, FUNCTIONS) or "Use a function of Spark SQL."
            yield subject.problem("MP219", f"There is no function '{name}'.", node, hint)
