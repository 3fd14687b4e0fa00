"""Type inference of expressions by Spark's rules, without Spark; None if only Spark can determine the type."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

import pyarrow as pa
from sqlglot import exp

from millpond.expressions.calls import read
from millpond.expressions.coercion import assignable, comparable, family, plain
from millpond.expressions.lambdas import LAMBDAS
from millpond.expressions.library import FUNCTIONS, signature
from millpond.expressions.rules import Operand
from millpond.expressions.terms import Call, Constant, Lambda, Parameter, Reference, Term, Variable, lambdas_of

__all__ = ["Scope", "assignable", "comparable", "family", "infer"]


class Scope(Protocol):
    """Resolves columns."""

    def resolve(self, column: exp.Column) -> pa.DataType | None:
        """The type of a column, or None if it is not known; called once per reference."""


def infer(expr: exp.Expression, scope: Scope) -> pa.DataType | None:
    """The Arrow type of an expression's value by Spark's rules, or None if it cannot be determined."""
    return term_type(read(expr), scope)


Variables = Mapping[str, pa.DataType]
NO_VARIABLES: Variables = {}


def term_type(term: Term, scope: Scope, variables: Variables = NO_VARIABLES) -> pa.DataType | None:
    if isinstance(term, Constant):
        return term.type
    if isinstance(term, Variable):
        return variables.get(term.name)
    if isinstance(term, Parameter | Lambda):
        return None
    if isinstance(term, Reference):
        found = scope.resolve(term.column)
        return None if found is None else plain(found)
    return _call_type(term, scope, variables)


def _call_type(call: Call, scope: Scope, variables: Variables) -> pa.DataType | None:
    if call.name in LAMBDAS:
        return _higher_order_type(call, scope, variables)
    if call.name in ("cast", "try_cast"):
        return call.to
    types = [term_type(t, scope, variables) for t in call.arguments]
    if call.name == ".":
        return field_type(types[0], str(call.to))
    if any(t is None for t in types):
        function = FUNCTIONS.get(call.name)
        return function.gives if function else None
    found = signature(call, [Operand(t, a) for t, a in zip(types, call.arguments, strict=True)])
    return found.gives if found else None


def _higher_order_type(call: Call, scope: Scope, variables: Variables) -> pa.DataType | None:
    function = LAMBDAS[call.name]
    types = [term_type(t, scope, variables) for t in call.arguments if not isinstance(t, Lambda)]
    if None in types or not types:
        return None
    bodies: list[pa.DataType] = []
    for place, lambda_ in enumerate(lambdas_of(call)):
        own = function.parameters([t for t in types if t is not None], place) or ()
        body = term_type(lambda_.body, scope, {**variables, **dict(zip(lambda_.names, own, strict=False))})
        if body is None:
            return None
        bodies.append(body)
    return function.gives([t for t in types if t is not None], bodies) if bodies else None


def field_type(holder: pa.DataType | None, name: str) -> pa.DataType | None:
    """The type of a struct's field, by name without regard to case; through a list, a list of it."""
    if holder is None:
        return None
    if pa.types.is_list(holder):
        inner = field_type(holder.value_type, name)
        return None if inner is None else pa.list_(inner)
    if not pa.types.is_struct(holder):
        return None
    found = [f.type for f in holder if f.name.lower() == name.lower()]
    return plain(found[0]) if len(found) == 1 else None
