"""Check: the columns of a sink match its options, such as the column that becomes a message's key."""

from __future__ import annotations

from collections.abc import Iterator

from millpond import registry
from millpond.errors import MillpondError, Problem
from millpond.plan.checks.subject import Subject
from millpond.plan.model import StepKind
from millpond.sql.statements import Insert


def check(subject: Subject) -> Iterator[Problem]:
    for planned in subject.planned:
        sink = subject.sinks.get(planned.target) if planned.kind is StepKind.SINK else None
        outputs = planned.bound.outputs if planned.bound is not None else None
        if sink is None or outputs is None or not isinstance(planned.statement, Insert):
            continue
        fits = registry.find("sink", sink.type).fits
        try:
            if fits is not None:
                fits(sink.spec, tuple(output.name for output in outputs))
        except MillpondError as error:
            yield from error.at(planned.statement.target.place).problems
