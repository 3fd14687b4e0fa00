"""Check: compared values have comparable types, and conditions are BOOLEAN."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
from sqlglot import exp

from millpond.errors import Problem
from millpond.expressions.result_types import comparable
from millpond.plan.checks.subject import Subject
from millpond.plan.expression_types import as_expression, type_of
from millpond.schema import type_name

COMPARISONS = (exp.EQ, exp.NEQ, exp.GT, exp.GTE, exp.LT, exp.LTE, exp.NullSafeEQ)

CONNECTIVES = (exp.And, exp.Or, exp.Not, exp.Paren)


def check(subject: Subject) -> Iterator[Problem]:
    for tree in subject.trees():
        for node in tree.walk():
            for left, right in _pairs(node):
                yield from _compared(subject, node, left, right)
            if (condition := _condition(node)) is not None:
                yield from _boolean(subject, condition)
            if isinstance(node, exp.Case):
                yield from _branches(subject, node)


def _pairs(node: exp.Expr) -> list[tuple[exp.Expr, exp.Expr]]:
    """The values that a node compares with each other."""
    if isinstance(node, COMPARISONS):
        right = node.expression
        inner = right.this if isinstance(right, exp.Any | exp.All) else right
        return [(node.this, inner)]
    if isinstance(node, exp.Between):
        return [(node.this, node.args["low"]), (node.this, node.args["high"])]
    if isinstance(node, exp.In):
        query = node.args.get("query")
        return [(node.this, value) for value in ([query] if query is not None else node.expressions)]
    return []


def _compared(subject: Subject, node: exp.Expr, left: exp.Expr, right: exp.Expr) -> Iterator[Problem]:
    first, second = type_of(left), type_of(right)
    if first is None or second is None or comparable(first, second):
        return
    message = f"{type_name(first)} cannot be compared with {type_name(second)}."
    yield subject.problem("MP206", message, node, f"Cast one of them: CAST(... AS {type_name(first)}).")


def _branches(subject: Subject, case: exp.Case) -> Iterator[Problem]:
    """The branches of a CASE must have a common type."""
    results = [branch.args["true"] for branch in case.args["ifs"]]
    results += [case.args["default"]] if case.args.get("default") is not None else []
    found = [t for node in results if (t := type_of(node)) is not None and not pa.types.is_null(t)]
    # Only Spark determines the common type of nested types.
    plain = [t for t in found if not pa.types.is_nested(t) and not pa.types.is_binary(t)]
    other = next((t for t in plain[1:] if not comparable(plain[0], t)), None)
    if other is not None:
        message = f"CASE returns {type_name(plain[0])} in one branch and {type_name(other)} in another."
        yield subject.problem("MP206", message, case, "Cast one of them.")


def _condition(node: exp.Expr) -> exp.Expr | None:
    """The condition of a node."""
    if isinstance(node, exp.Where | exp.Having):
        return as_expression(node.this)
    if isinstance(node, exp.Join):
        return node.args.get("on")
    if isinstance(node, exp.If) and not (isinstance(node.parent, exp.Case) and node.parent.this is not None):
        return as_expression(node.this)
    return None


def _boolean(subject: Subject, condition: exp.Expr) -> Iterator[Problem]:
    for part in condition.walk(prune=lambda node: not isinstance(node, CONNECTIVES)):
        found = None if isinstance(part, CONNECTIVES) else type_of(part)
        if found is None or pa.types.is_boolean(found) or pa.types.is_null(found):
            continue
        message = f"A condition must be BOOLEAN, but this is {type_name(found)}."
        yield subject.problem("MP206", message, part, "Write a comparison, such as <> 0.")
