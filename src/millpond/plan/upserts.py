"""UPSERT ... ON: whether the condition only says by which columns rows are matched, in other words even by key."""

from __future__ import annotations

import pyarrow as pa
from sqlglot import exp

from millpond.plan.typed import type_of
from millpond.schema import Schema
from millpond.sql.conditions import all_of


def matches_by_key(
    query: exp.Query, condition: exp.Expr, columns: tuple[str, ...], target: str, schema: Schema
) -> bool:
    """Whether ON compares each key column, and nothing else, with the very value that is written into it."""
    found = compared_columns(query, condition, columns, target, schema)
    return bool(schema.key) and {name.lower() for name in found} == {name.lower() for name in schema.key}


def compared_columns(
    query: exp.Query, condition: exp.Expr, columns: tuple[str, ...], target: str, schema: Schema
) -> tuple[str, ...]:
    """The columns that ON compares, each with the very value that is written into it; none where it asks anything else:
    then a row that was written may not be found by the next such event."""
    if not isinstance(query, exp.Select) or len(columns) != len(query.expressions):
        return ()
    written = {name.lower(): e.unalias() for name, e in zip(columns, query.expressions, strict=True)}
    found = [_compared(part, target) for part in all_of(condition)]
    if not all(name and written.get(name) == value and same_type(schema[name].type, value) for name, value in found):
        return ()
    return tuple(dict.fromkeys(schema[name].name for name, _ in found))


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


def same_type(own: pa.DataType | None, value: exp.Expr | None) -> bool:
    """Whether a value equals the column exactly when it does so after the cast into the column."""
    given = type_of(value) if value is not None else None
    if own is None or given is None:
        return False
    if pa.types.is_floating(own) or pa.types.is_nested(own):
        # NaN and -0.0 equal what they do not look like.
        return False
    return bool(own == given or (pa.types.is_integer(own) and pa.types.is_integer(given)))
