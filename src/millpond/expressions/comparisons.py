"""Comparisons, IN and BETWEEN in Spark's order of values, in which NaN equals itself and is larger than all numbers."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from millpond.expressions.coercion import BOOLEAN, FLOATS
from millpond.expressions.frames import Datum, Frame, Mask, Node, as_array, false_rows, run_on, true_rows, valid_rows
from millpond.expressions.rules import anything_rule, comparison_rule, logic_rule, membership_rule
from millpond.expressions.signatures import Function, Functions, Kernel, Run, Site, SpecialForm, on_columns
from millpond.expressions.sort_ranks import NULL_RANK, ranks


def _boolean(value: bool | None) -> pa.Scalar:
    return pa.scalar(value, BOOLEAN)


def _is_nan(value: Datum) -> Datum:
    return pc.is_nan(value)


def _float_equal(left: Datum, right: Datum) -> Datum:
    return pc.or_(pc.equal(left, right), pc.and_(_is_nan(left), _is_nan(right)))


def _float_less(left: Datum, right: Datum) -> Datum:
    return pc.or_(pc.less(left, right), pc.and_(pc.invert(_is_nan(left)), _is_nan(right)))


_EXACT: dict[str, Run] = {
    "=": pc.equal,
    "<>": pc.not_equal,
    "<": pc.less,
    "<=": pc.less_equal,
    ">": pc.greater,
    ">=": pc.greater_equal,
}
_FLOAT: dict[str, Run] = {
    "=": _float_equal,
    "<>": lambda left, right: pc.invert(_float_equal(left, right)),
    "<": _float_less,
    "<=": lambda left, right: pc.invert(_float_less(right, left)),
    ">": lambda left, right: _float_less(right, left),
    ">=": lambda left, right: pc.invert(_float_less(left, right)),
}


def _nested(by_rank: Run) -> Run:
    """Structs and arrays, part by part; a NULL part is smaller than any other and equal to a NULL part."""

    def columns(left: pa.Array, right: pa.Array) -> pa.Array:
        places = ranks(pa.concat_arrays([left, right]))
        first, second = places[: len(left)], places[len(left) :]
        unknown = (first == NULL_RANK) | (second == NULL_RANK)
        return by_rank(pa.array(first, mask=unknown), pa.array(second))

    return on_columns(columns)


def compare(operator: str, type_: pa.DataType) -> Run:
    """The comparison of two values of one type."""
    if pa.types.is_nested(type_):
        return _nested(_EXACT[operator])
    if pa.types.is_null(type_):
        return lambda left, right: _boolean(None)
    return _FLOAT[operator] if type_ in FLOATS else _EXACT[operator]


def _comparison(operator: str) -> Kernel:
    return Kernel(lambda site: compare(operator, site.takes[0]))


def _null_safe(site: Site) -> Run:
    equal = compare("=", site.takes[0])

    def run(left: Datum, right: Datum) -> Datum:
        both_null = pc.and_(pc.is_null(left), pc.is_null(right))
        return pc.or_(pc.fill_null(equal(left, right), False), both_null)

    return run


def _in(nodes: Sequence[Node], site: Site) -> Callable[[Frame], Datum]:
    value, items = nodes[0], nodes[1:]
    equal = compare("=", site.takes[0])
    plain = site.takes[0] not in FLOATS and not pa.types.is_nested(site.takes[0])
    if plain and all(item.constant is not None for item in items):
        return _in_constants(value, items)

    def run(frame: Frame) -> Datum:
        subject = as_array(value.run(frame), frame.length, value.type)
        found, unknown = np.zeros(frame.length, dtype=bool), np.zeros(frame.length, dtype=bool)
        known = valid_rows(subject, frame.length)
        for item in items:
            # Spark stops at the first equal item, so later ones are not evaluated and cannot fail.
            candidate = run_on(item, frame, known & ~found)
            found |= true_rows(equal(subject, candidate), frame.length) & known
            unknown |= ~valid_rows(candidate, frame.length)
        return pa.array(found, mask=~known | (~found & unknown))

    return run


def _in_constants(value: Node, items: Sequence[Node]) -> Callable[[Frame], Datum]:
    values = [item.constant for item in items]
    known = [v for v in values if v is not None and v.is_valid]
    has_null = len(known) < len(values)
    haystack = pa.array([v.as_py() for v in known], value.type)

    def run(frame: Frame) -> Datum:
        subject = value.run(frame)
        found = pc.is_in(subject, value_set=haystack)
        misses = pc.if_else(found, _boolean(True), _boolean(None)) if has_null else found
        return pc.if_else(pc.is_valid(subject), misses, _boolean(None))

    return run


def _not_null(value: Datum) -> Datum:
    return pc.is_valid(value)


def _logical(combine: Run, settled: Callable[[Datum, int], Mask]) -> SpecialForm:
    """AND or OR: a right side that may fail is evaluated only for the rows that the left side does not decide."""

    def build(nodes: Sequence[Node], _: Site) -> Callable[[Frame], Datum]:
        left, right = nodes

        def run(frame: Frame) -> Datum:
            first = left.run(frame)
            if not right.fallible:
                return combine(first, right.run(frame))
            return combine(first, run_on(right, frame, ~settled(first, frame.length)))

        return run

    return SpecialForm(build)


_COMPARED = Function(comparison_rule, BOOLEAN)
_ANY = Function(anything_rule, BOOLEAN)
_LOGIC = Function(logic_rule, BOOLEAN)

FUNCTIONS: Functions = {
    **{operator: _COMPARED.by(_comparison(operator)) for operator in _EXACT},
    "<=>": _COMPARED.by(Kernel(_null_safe, lazy=False)),
    "is_null": _ANY.by_columns(pc.is_null),
    "isnotnull": _ANY.by_columns(_not_null, "whether the value is not NULL"),
    "not": _LOGIC.by_columns(pc.invert),
    "and": _LOGIC.by(_logical(pc.and_kleene, false_rows)),
    "or": _LOGIC.by(_logical(pc.or_kleene, true_rows)),
    "in": Function(membership_rule, BOOLEAN).by(SpecialForm(_in)),
}
