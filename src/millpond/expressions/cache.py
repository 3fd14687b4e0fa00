"""Expressions compiled once for each text, schema and kind of parameters; the least recently used go first."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

from sqlglot import exp

from millpond.expressions.compile import Compiled, compile_expression
from millpond.expressions.failures import NotCompilable
from millpond.expressions.parameters import Shape, constant, shape
from millpond.schema import Schema
from millpond.sql.parser import parse_expression

PARSED_MAX = 1_024
COMPILED_MAX = 1_024


def compiled(text: str, schema: Schema, parameters: Sequence[object] = ()) -> Compiled:
    """The text compiled over a schema for parameters like these, or NotCompilable, which is remembered too."""
    found = _compiled(text, schema, shape([constant(value) for value in parameters]), _Unkeyed(parameters))
    if isinstance(found, str):
        raise NotCompilable(found)
    return found


class _Unkeyed:
    """An argument that is no part of the cache's key: the values whose shape is."""

    def __init__(self, values: Sequence[object]) -> None:
        self.values = values

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Unkeyed)

    def __hash__(self) -> int:
        return 0


@lru_cache(PARSED_MAX)
def parsed(text: str) -> exp.Expression:
    """The tree of a text; do not change it, it is shared."""
    return parse_expression(text)


@lru_cache(COMPILED_MAX)
def _compiled(text: str, schema: Schema, _: Shape, parameters: _Unkeyed) -> Compiled | str:
    try:
        return compile_expression(parsed(text), schema, parameters.values)
    except NotCompilable as refusal:
        return str(refusal)
