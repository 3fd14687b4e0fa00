"""Check: operators, casts, subscripts and intervals fit the types of their operands."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
from sqlglot import exp

from millpond.errors import Problem, did_you_mean
from millpond.expressions.coercion import DATE, family, is_list, is_number
from millpond.plan.checks.subject import Subject
from millpond.plan.expression_types import type_of
from millpond.schema import type_name

ARITHMETIC: dict[type[exp.Expr], str] = {
    exp.Add: "+",
    exp.Sub: "-",
    exp.Mul: "*",
    exp.Div: "/",
    exp.IntDiv: "DIV",
    exp.Mod: "%",
}
# No arithmetic is defined for values of these families.
UNCOUNTABLE = ("nested", "boolean", "binary")
UNITS = ("YEAR", "MONTH", "WEEK", "DAY", "HOUR", "MINUTE", "SECOND", "MILLISECOND", "MICROSECOND")


def check(subject: Subject) -> Iterator[Problem]:
    for tree in subject.trees():
        for node in tree.walk():
            found = _found(node)
            if found is not None:
                yield subject.problem("MP206", found[0], node, found[1])


def _found(node: exp.Expr) -> tuple[str, str] | None:
    """What is wrong with a node, and a hint. Only what Spark rejects whatever the rows are: unknown types, and texts,
    which Spark casts, are not reported."""
    if isinstance(node, tuple(ARITHMETIC)):
        return _arithmetic(ARITHMETIC[type(node)], node)
    if isinstance(node, exp.Neg):
        return _negated(node)
    if isinstance(node, exp.Bracket):
        return _subscript(node)
    if isinstance(node, exp.Cast):
        return _cast(node)
    if isinstance(node, exp.Explode | exp.Posexplode):
        return _exploded(node)
    return _unit(node) if isinstance(node, exp.Interval) else None


def _known(node: exp.Expr) -> pa.DataType | None:
    found = type_of(node)
    return None if found is None or pa.types.is_null(found) else found


def _arithmetic(operator: str, node: exp.Expr) -> tuple[str, str] | None:
    left, right = _known(node.this), _known(node.expression)
    if left is None or right is None:
        return None
    families = {family(left), family(right)}
    message = f"{operator} is not defined for {type_name(left)} and {type_name(right)}."
    if families & set(UNCOUNTABLE):
        return message, "Cast the values to a number, or use a function for values of this type."
    if "time" not in families:
        return None
    moved = pa.types.is_timestamp(left) or pa.types.is_timestamp(right)
    if operator not in ("+", "-") or (moved and "number" in families):
        return message, "Add or subtract an interval: ts - INTERVAL 5 SECONDS."
    return None


def _negated(node: exp.Neg) -> tuple[str, str] | None:
    found = _known(node.this)
    if found is None or family(found) not in (*UNCOUNTABLE, "time"):
        return None
    return f"- is not defined for {type_name(found)}.", "For a condition, write NOT."


def _subscript(node: exp.Bracket) -> tuple[str, str] | None:
    found = _known(node.this)
    if found is None or pa.types.is_nested(found):
        return None
    return f"A value of type {type_name(found)} has no elements.", "[...] requires an ARRAY or MAP."


def _cast(node: exp.Cast) -> tuple[str, str] | None:
    given, wanted = _known(node.this), _known(node)
    if given is None or wanted is None:
        return None
    torn = pa.types.is_nested(given) != pa.types.is_nested(wanted) and not pa.types.is_string(wanted)
    if not torn and not (given == DATE and (is_number(wanted) or pa.types.is_boolean(wanted))):
        return None
    hint = "Compute it by a function, such as size, element_at, from_json or unix_date."
    return f"{type_name(given)} cannot be cast to {type_name(wanted)}.", hint


def _exploded(node: exp.Expr) -> tuple[str, str] | None:
    found = _known(node.this)
    if found is None or is_list(found) or pa.types.is_map(found):
        return None
    return f"A value of type {type_name(found)} has no elements.", "It requires an ARRAY or MAP."


def _unit(node: exp.Interval) -> tuple[str, str] | None:
    unit = node.args.get("unit")
    if not isinstance(unit, exp.Var) or unit.name.upper().removesuffix("S") in UNITS:
        return None
    name = unit.name.upper()
    hint = did_you_mean(name, UNITS) or f"Units are: {', '.join(UNITS)}."
    return f"'{unit.name}' is not a unit of time.", hint
