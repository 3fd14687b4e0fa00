"""Waiting until sent records are in the tables: those of memory sources, and of files as they were at the call."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from itertools import chain

from millpond.app.running_plan import Running
from millpond.engine.flow import Flow
from millpond.engine.load import Loader
from millpond.engine.progress import FAILED
from millpond.errors import FlowError, RunError

LOOK_S = 0.005

# A condition to wait for: the name of the flow or table for messages, and a function that tests it.
Awaited = tuple[str, Callable[[], bool]]


def drain(running: Running, limit_s: float, clock: Callable[[], float] = time.monotonic) -> None:
    """Wait until everything that was sent before the call is in the tables; what is sent meanwhile is not waited for.
    MP712 after the time limit; raises the error of a flow as soon as one fails."""
    if not running.goes_on:
        hint = "Call app.start() first; app.run_once() processes sent records by itself."
        raise RunError("MP710", "The app is not running, so nothing is processed.", hint=hint)
    until = clock() + limit_s
    # Each poll that starts from now on sees everything that existed at the call.
    looks = [*(_looked_at(running, flow) for flow in running.flows), *map(_looked_at_table, running.loaders)]
    for who, has_come in chain(looks, _taken(running)):
        while not has_come():
            _require_flows(running)
            if clock() > until:
                raise _too_late(who, running)
            time.sleep(LOOK_S)
    _require_flows(running)


def _looked_at(running: Running, flow: Flow) -> Awaited:
    begun = flow.polls_begun

    def has_come() -> bool:
        # A flow that was restarted meanwhile polls again from the start.
        now = running.flow(flow.plan.id)
        return now is None or now.has_nothing or now.polls_ended > (begun if now is flow else 0)

    return f"the flow '{flow.plan.name}'", has_come


def _looked_at_table(loader: Loader) -> Awaited:
    """Only a table with 'watch' follows its files while the app runs."""
    begun = loader.looks_begun
    follows = loader.plan.watch and not loader.is_pending
    return f"the table '{loader.plan.name}'", lambda: not follows or loader.looks_ended > begun


def _taken(running: Running) -> Iterator[Awaited]:
    """Evaluated one after another: a stream join comes after the flows that pass events to it, and is asked about the
    events that exist when those are done."""
    for flow in sorted(running.flows, key=lambda flow: flow.plan.join is not None):
        asked = {flow: flow.done_so_far()}

        def has_come(id_: str = flow.plan.id, asked: dict[Flow, Callable[[], bool]] = asked) -> bool:
            now = running.flow(id_)
            if now is not None and now not in asked:
                asked[now] = now.done_so_far()
            return now is None or asked[now]()

        yield f"the flow '{flow.plan.name}'", has_come


def _require_flows(running: Running) -> None:
    """Raise the failures, because what is waited for would never arrive."""
    problems = [p for flow in running.flows if flow.state == FAILED and flow.error for p in flow.error.problems]
    if problems:
        raise FlowError.of(problems)


def _too_late(who: str, running: Running) -> FlowError:
    state = next(
        (f" It is {f.state}." for f in running.flows if f"'{f.plan.name}'" in who and f.state != "running"), ""
    )
    message = f"Sent records are not in the tables yet: {who} has not processed all of them.{state}"
    return FlowError("MP712", message, hint="Use a longer timeout; app.stats() shows what it is waiting for.")
