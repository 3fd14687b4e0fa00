"""Conditions taken apart."""

from __future__ import annotations

from collections.abc import Iterator

from sqlglot import exp


def all_of(condition: exp.Expr | None) -> Iterator[exp.Expr]:
    """The parts of a condition that must all hold; none of one that is not there."""
    plain = condition.unnest() if condition is not None else None
    if isinstance(plain, exp.And):
        yield from all_of(plain.this)
        yield from all_of(plain.expression)
    elif plain is not None:
        yield plain
