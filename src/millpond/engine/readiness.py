"""Readiness of tables, and what statements do that read a table that is not ready: wait, fail, or run without it."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence

from millpond.engine.app_context import Context
from millpond.engine.progress import FAILED, READY
from millpond.errors import FlowError, MillpondError, Place, Problem, Severity
from millpond.plan.missing import SKIP, can_do_without
from millpond.plan.model import FlowPlan, Step

CONTINUES = {
    "skip": "is skipped for every event",
    "nulls": "continues with NULLs instead of its rows",
    "default": "continues with defaults instead of its rows",
}


class Readiness:
    """Decides by the states of tables; `comes_again` returns whether a failed table is loaded again later."""

    def __init__(
        self, context: Context, comes_again: Callable[[str], bool], clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._context = context
        self._comes_again = comes_again
        self._clock = clock
        self._since = clock()
        self._warned: set[tuple[int, str]] = set()

    def end_waiting(self) -> None:
        """Decide from now on as if every 'table.wait.timeout' had passed."""
        self._since = -math.inf

    def is_lost(self, name: str) -> bool:
        """Whether a table cannot become ready while this app runs."""
        return self._context.table_states.get(name) == FAILED and not self._comes_again(name)

    def may_begin(self, flow: FlowPlan) -> bool:
        """Whether every statement of a flow has its tables, or runs without them; raises MP703 if one must fail. The
        statements of a flow read the same events once, so none of them can wait alone."""
        own = self._context.own_tables(flow)
        begin = True
        for step in flow.steps:
            for name in self._context.missing(a.table for a in step.reads):
                if name not in own and not self._may_run(flow, step, name):
                    begin = False
        return begin

    def _may_run(self, flow: FlowPlan, step: Step, name: str) -> bool:
        policy = step.options.get("on.table.missing", "wait")
        lost, limit_us = self.is_lost(name), step.options.get("table.wait.timeout") or 0
        if not lost and self._clock() - self._since < limit_us / 1_000_000:
            return False
        if policy == "fail" or (policy == "wait" and lost):
            raise not_ready(f"The flow '{flow.name}' reads", name, self.state(name), step.place)
        if policy == "wait" or (name in self._context.held and policy != SKIP and not _does_without(step)):
            self._warn(step, name, f"The flow '{flow.name}' waits for the table '{name}', which is {self.state(name)}.")
            return False
        self._warn(step, name, f"The statement {CONTINUES[policy]}: the table '{name}' is {self.state(name)}.")
        return True

    def state(self, name: str) -> str:
        return self._context.table_states.get(name, READY)

    def _warn(self, step: Step, name: str, message: str) -> None:
        """Warn once for a statement and table."""
        if (step.index, name) not in self._warned:
            self._warned.add((step.index, name))
            self._context.notices.append(waits(message, step.place))


def _does_without(step: Step) -> bool:
    """Whether a statement can run without a table whose columns are unknown."""
    return step.aggregate is None and can_do_without(step.query)


def waits(message: str, place: Place | None, hint: str = "") -> Problem:
    """A warning about a statement that waits for a table or runs without it."""
    hint = hint or "SHOW TABLES and SHOW SOURCES show the reason; 'on.table.missing' sets what to do without the table."
    return Problem("MP709", message, place, hint, Severity.WARNING)


def not_ready(who: str, table: str, state: str, place: Place | None) -> FlowError:
    """MP703 for a statement or flow that cannot run without a table."""
    hint = "SHOW TABLES and SHOW SOURCES show the reason; with 'on.table.missing' a statement can run without it."
    return FlowError("MP703", f"{who} the table '{table}', which is {_described(state)}.", place=place, hint=hint)


def _described(state: str) -> str:
    return "missing, because its load failed" if state == FAILED else f"not ready in time: it is {state}"


def not_run(error: MillpondError, places: Sequence[Place], flows: Sequence[str]) -> MillpondError:
    """A failure with a note about what did not run because of it, if anything."""
    lines = ", ".join(str(place.line) for place in places)
    parts = [f"the statement{'s' * (len(places) > 1)} in line {lines}"] if places else []
    parts += [f"the flow{'s' * (len(flows) > 1)} {', '.join(flows)}"] if flows else []
    if not parts:
        return error
    hint = "Correct the statement and start again; statements that have run are not repeated."
    note = Problem("MP708", f"Because of this failure, {' and '.join(parts)} did not run.", None, hint, Severity.NOTE)
    return type(error).of((*error.problems, note))
