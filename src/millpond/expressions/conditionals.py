"""CASE, IF, COALESCE, GREATEST and LEAST: each branch is evaluated only on the rows that reach it."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from millpond.expressions.coercion import DOUBLE, FLOATS, STRING, is_interval, is_list, is_number
from millpond.expressions.comparisons import compare
from millpond.expressions.frames import Datum, Frame, Mask, Node, merge, true_rows, valid_rows, values_on
from millpond.expressions.rules import (
    Operands,
    Signature,
    case_rule,
    coalesce_rule,
    extreme_rule,
    if_rule,
    nvl2_rule,
    types_of,
)
from millpond.expressions.signatures import Function, Functions, Kernel, Run, Site, SpecialForm
from millpond.schema import type_name


def _case(nodes: Sequence[Node], site: Site) -> Callable[[Frame], Datum]:
    pairs = list(zip(nodes[:-1:2], nodes[1::2], strict=True))
    default = nodes[-1]

    def run(frame: Frame) -> Datum:
        left: Mask = np.ones(frame.length, dtype=bool)
        parts: list[tuple[Mask, pa.Array]] = []
        for test, result in pairs:
            taken = _taken(test, frame, left)
            parts.append((taken, values_on(result, frame, taken)))
            left &= ~taken
        parts.append((left, values_on(default, frame, left)))
        return merge(parts, frame.length)

    return run


def _taken(test: Node, frame: Frame, left: Mask) -> Mask:
    """The rows still left on which the test is true."""
    taken = np.zeros(frame.length, dtype=bool)
    taken[left] = true_rows(values_on(test, frame, left), int(left.sum()))
    return taken


def _nvl2(nodes: Sequence[Node], site: Site) -> Callable[[Frame], Datum]:
    subject, *rest = nodes
    test = Node(pa.bool_(), lambda frame: pc.is_valid(subject.run(frame)), subject.fallible)
    return _case([test, *rest], site)


def _coalesce(nodes: Sequence[Node], site: Site) -> Callable[[Frame], Datum]:
    def run(frame: Frame) -> Datum:
        left: Mask = np.ones(frame.length, dtype=bool)
        parts: list[tuple[Mask, pa.Array]] = []
        for node in nodes:
            values = values_on(node, frame, left)
            valid = valid_rows(values, len(values))
            taken = np.zeros(frame.length, dtype=bool)
            taken[left] = valid
            parts.append((taken, values.filter(pa.array(valid))))
            left &= ~taken
        return merge(parts, frame.length)

    return run


def _extreme(operator: str) -> Callable[[Site], Run]:
    def make(site: Site) -> Run:
        better = compare(operator, site.gives)

        def run(*arguments: Datum) -> Datum:
            best = arguments[0]
            for other in arguments[1:]:
                wins = pc.or_(pc.is_null(best), pc.fill_null(better(other, best), False))
                best = pc.if_else(pc.and_(wins, pc.is_valid(other)), other, best)
            return best

        return run

    return make


def _nanvl(nodes: Sequence[Node], site: Site) -> Callable[[Frame], Datum]:
    value, other = nodes
    test = Node(pa.bool_(), lambda frame: pc.fill_null(pc.is_nan(value.run(frame)), False), value.fallible)
    return _case([test, other, value], site)


def nanvl_rule(operands: Operands) -> Signature | None:
    types = types_of(operands)
    if len(types) != 2 or not all(is_number(t) for t in types):
        return None
    type_ = types[0] if types[0] == types[1] and types[0] in FLOATS else DOUBLE
    return Signature((type_, type_), type_)


def _type_name(_: Sequence[Node], site: Site) -> Callable[[Frame], Datum]:
    name = pa.scalar(written_type(site.takes[0]))
    return lambda _: name


def written_type(type_: pa.DataType) -> str:
    """A type as TYPEOF writes it: small letters, no blanks."""
    if pa.types.is_struct(type_):
        return f"struct<{','.join(f'{field.name}:{written_type(field.type)}' for field in type_)}>"
    if is_list(type_):
        return f"array<{written_type(type_.value_type)}>"
    if pa.types.is_map(type_):
        return f"map<{written_type(type_.key_type)},{written_type(type_.item_type)}>"
    return type_name(type_).lower()


def typeof_rule(operands: Operands) -> Signature | None:
    (type_,) = types_of(operands)
    return None if is_interval(type_) else Signature((type_,), STRING)


_EXTREME = Function(extreme_rule)

FUNCTIONS: Functions = {
    "case": Function(case_rule).by(SpecialForm(_case)),
    "if": Function(if_rule).by(SpecialForm(_case), "the second argument where the first is true, else the third"),
    "nvl2": Function(nvl2_rule).by(SpecialForm(_nvl2), "the second argument unless the first is NULL, then the third"),
    "coalesce": Function(coalesce_rule).by(SpecialForm(_coalesce), "the first argument that is not NULL"),
    "nanvl": Function(nanvl_rule).by(SpecialForm(_nanvl), "the first argument, or the second where it is NaN"),
    "typeof": Function(typeof_rule, STRING).by(SpecialForm(_type_name), "the type of the argument"),
    "greatest": _EXTREME.by(Kernel(_extreme(">"), lazy=False), "the largest argument; NULLs are skipped"),
    "least": _EXTREME.by(Kernel(_extreme("<"), lazy=False), "the smallest argument; NULLs are skipped"),
}
