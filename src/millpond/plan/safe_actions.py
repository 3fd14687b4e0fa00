"""Actions whose items cannot fail or be refused: one of them may be left out where a later item makes up for it."""

from __future__ import annotations

import pyarrow as pa
from sqlglot import exp

from millpond.plan.change_model import EVENT, Action, Branch, Effect
from millpond.plan.typed import type_of
from millpond.schema import Schema

# Nodes that give a value for any operands of the types that they are for.
HARMLESS = (
    exp.Column,
    exp.Identifier,
    exp.Literal,
    exp.Null,
    exp.Boolean,
    exp.And,
    exp.Or,
    exp.Not,
    exp.Paren,
    exp.Is,
)
# The same where both sides are of one type, or numbers: else one of them is cast.
COMPARING = (exp.EQ, exp.NEQ, exp.GT, exp.GTE, exp.LT, exp.LTE, exp.NullSafeEQ)


def cannot_fail(action: Action, schema: Schema) -> bool:
    """Whether every item of an action is applied, whatever the row and the event are."""
    return not schema.checks and all(_is_safe(branch, action, schema) for branch in action.branches)


def _is_safe(branch: Branch, action: Action, schema: Schema) -> bool:
    if branch.condition is not None and not _is_harmless(branch.condition):
        return False
    if branch.effect is Effect.DELETE:
        return True
    return all(_fits(name, value, action, schema) for name, value in branch.values.items())


def _fits(name: str, value: exp.Expr, action: Action, schema: Schema) -> bool:
    """Whether a value is always one that the column takes."""
    given = isinstance(value, exp.Column) and value.table == EVENT and value.name in action.columns
    needed = name in schema.key or not schema[name].nullable
    if needed and not action.always:
        return False
    plain = value.this if isinstance(value, exp.Cast) else value
    return given or isinstance(plain, exp.Literal | exp.Null)


def _is_harmless(expression: exp.Expr) -> bool:
    return all(isinstance(node, HARMLESS) or _compares_alike(node) for node in expression.walk())


def _compares_alike(node: exp.Expr) -> bool:
    if not isinstance(node, COMPARING):
        return False
    types = [type_of(node.this), type_of(node.expression)]
    return None not in types and (types[0] == types[1] or all(_is_number(t) for t in types if t is not None))


def _is_number(type_: pa.DataType) -> bool:
    return bool(pa.types.is_integer(type_) or pa.types.is_decimal(type_) or pa.types.is_floating(type_))
