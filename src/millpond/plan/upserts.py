"""UPSERT ... ON: whether the condition only says in other words that rows are matched by key."""

from __future__ import annotations

import pyarrow as pa
from sqlglot import exp

from millpond.plan.typed import type_of
from millpond.schema import Schema


def matches_by_key(
    query: exp.Query, condition: exp.Expr, columns: tuple[str, ...], target: str, schema: Schema
) -> bool:
    """Whether ON compares each key column, and nothing else, with the very value that is written into it."""
    if not isinstance(query, exp.Select) or not schema.key or len(columns) != len(query.expressions):
        return False
    written = {name.lower(): e.unalias() for name, e in zip(columns, query.expressions, strict=True)}
    parts = list(condition.flatten()) if isinstance(condition, exp.And) else [condition]
    found = [_compared(part.unnest(), target) for part in parts]
    named = {name for name, _ in found}
    if named != {name.lower() for name in schema.key}:
        return False
    return all(written.get(name) == value and _same_type(schema[name].type, value) for name, value in found)


def _compared(part: exp.Expr, target: str) -> tuple[str, exp.Expr | None]:
    """The target's column of `column = value` and the value; ("", None) for anything else."""
    if isinstance(part, exp.EQ):
        for own, other in ((part.this, part.expression), (part.expression, part.this)):
            if is_own(own, target) and not any(is_own(c, target) for c in other.find_all(exp.Column)):
                return own.name.lower(), other
    return "", None


def is_own(node: exp.Expr, target: str) -> bool:
    """Whether a node is a column of the table that is changed."""
    return isinstance(node, exp.Column) and node.table.lower() == target.lower()


def _same_type(own: pa.DataType | None, value: exp.Expr | None) -> bool:
    """Whether a value equals the column exactly when it does so after the cast into the column."""
    given = type_of(value) if value is not None else None
    if own is None or given is None:
        return False
    return bool(own == given or (pa.types.is_integer(own) and pa.types.is_integer(given)))
