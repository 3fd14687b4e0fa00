"""CASE, IF, COALESCE, GREATEST and LEAST: each branch is evaluated only on the rows that reach it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from millpond.expressions.comparisons import compare
from millpond.expressions.frames import Datum, Frame, Mask, Node, merge, true_rows, valid_rows, values_on
from millpond.expressions.kernels import Kernel, Run, Site, SpecialForm


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


KERNELS: dict[str, Any] = {
    "case": SpecialForm(_case),
    "if": SpecialForm(_case),
    "nvl2": SpecialForm(_nvl2),
    "coalesce": SpecialForm(_coalesce),
    "greatest": Kernel(_extreme(">"), lazy=False),
    "least": Kernel(_extreme("<"), lazy=False),
}
