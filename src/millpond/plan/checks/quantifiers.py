"""Check: ANY, SOME and ALL are on the right side of a comparison with a subquery, or of LIKE with patterns."""

from __future__ import annotations

from collections.abc import Iterator

from sqlglot import exp

from millpond.errors import Problem
from millpond.plan.checks.comparisons import COMPARISONS
from millpond.plan.checks.subject import Subject

PATTERNS = (exp.Like, exp.ILike)


def check(subject: Subject) -> Iterator[Problem]:
    for tree in subject.trees():
        for node in tree.find_all(exp.Any, exp.All):
            yield from _quantified(subject, node)


def _quantified(subject: Subject, node: exp.Expr) -> Iterator[Problem]:
    parent, word = node.parent, node.key.upper()
    # NOT LIKE and LIKE ... ESCAPE wrap the LIKE, so the operator is the parent.
    if isinstance(parent, PATTERNS):
        return
    if not isinstance(parent, COMPARISONS) or node.arg_key != "expression":
        message = f"{word} is only allowed on the right side of a comparison."
        yield subject.problem("MP224", message, node, f"Write value > {word} (SELECT ...).")
    elif not isinstance(node.this.unnest(), exp.Query):
        message = f"{word} requires a subquery, not a list of values."
        hint = "Write IN (...) for = ANY, NOT IN (...) for <> ALL, or a subquery: (SELECT ...)."
        yield subject.problem("MP224", message, node, hint)
