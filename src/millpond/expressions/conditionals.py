"""CASE, IF, COALESCE, GREATEST and LEAST: each branch is evaluated only on the rows that reach it."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from millpond.expressions.comparisons import compare
from millpond.expressions.frames import Datum, Frame, Mask, Node, merge, true_rows, valid_rows, values_on
from millpond.expressions.kernels import Kernel, Run, Site, SpecialForm
from millpond.expressions.rules import case_rule, coalesce_rule, extreme_rule, if_rule, nvl2_rule
from millpond.expressions.signatures import Function, Functions


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


_EXTREME = Function(extreme_rule)

FUNCTIONS: Functions = {
    "case": Function(case_rule).by(SpecialForm(_case)),
    "if": Function(if_rule).by(SpecialForm(_case), "the second argument where the first is true, else the third"),
    "nvl2": Function(nvl2_rule).by(SpecialForm(_nvl2), "the second argument unless the first is NULL, then the third"),
    "coalesce": Function(coalesce_rule).by(SpecialForm(_coalesce), "the first argument that is not NULL"),
    "greatest": _EXTREME.by(Kernel(_extreme(">"), lazy=False), "the largest argument; NULLs are skipped"),
    "least": _EXTREME.by(Kernel(_extreme("<"), lazy=False), "the smallest argument; NULLs are skipped"),
}
