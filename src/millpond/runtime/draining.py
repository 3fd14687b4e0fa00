"""Waiting until what was sent is in the tables: memory feeds, and what files held when the waiting began."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from itertools import chain

from millpond.errors import FlowError, RunError
from millpond.runtime.figures.progress import FAILED
from millpond.runtime.flows.flow import Flow
from millpond.runtime.loading.load import Loader
from millpond.runtime.running import Running

LOOK_S = 0.005

# Something to wait for: who it is about, and whether it has come.
Awaited = tuple[str, Callable[[], bool]]


def drain(running: Running, limit_s: float, clock: Callable[[], float] = time.monotonic) -> None:
    """Return when all that was sent before the call is in the tables; what is sent meanwhile is not waited for. MP712
    when that takes longer, what has failed as soon as a flow has."""
    if not running.goes_on:
        hint = "Call app.start() first; app.run_once() takes what was sent by itself."
        raise RunError("MP710", "The app is not running, so nothing would be taken.", hint=hint)
    until = clock() + limit_s
    # Every look at a source that begins from now on sees what was there at the call.
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
        # One that was restarted meanwhile looks at everything anew.
        now = running.flow(flow.plan.id)
        return now is None or now.has_nothing or now.polls_ended > (begun if now is flow else 0)

    return f"the flow '{flow.plan.name}'", has_come


def _looked_at_table(loader: Loader) -> Awaited:
    """Only a table that is watched follows its files while the app runs."""
    begun = loader.looks_begun
    follows = loader.plan.watch and not loader.is_pending
    return f"the table '{loader.plan.name}'", lambda: not follows or loader.looks_ended > begun


def _taken(running: Running) -> Iterator[Awaited]:
    """Made one after another: a join of streams comes after the flows that hand events over to it, and is asked about
    those that are there when these are done."""
    for flow in sorted(running.flows, key=lambda flow: flow.plan.join is not None):
        asked = {flow: flow.done_so_far()}

        def has_come(id_: str = flow.plan.id, asked: dict[Flow, Callable[[], bool]] = asked) -> bool:
            now = running.flow(id_)
            if now is not None and now not in asked:
                asked[now] = now.done_so_far()
            return now is None or asked[now]()

        yield f"the flow '{flow.plan.name}'", has_come


def _require_flows(running: Running) -> None:
    """Raise what has failed: nothing that is waited for would come any more."""
    problems = [p for flow in running.flows if flow.state == FAILED and flow.error for p in flow.error.problems]
    if problems:
        raise FlowError.of(problems)


def _too_late(who: str, running: Running) -> FlowError:
    state = next(
        (f" It is {f.state}." for f in running.flows if f"'{f.plan.name}'" in who and f.state != "running"), ""
    )
    message = f"What was sent is not in the tables yet: {who} has not taken all of it.{state}"
    return FlowError("MP712", message, hint="Give it more time, or see app.stats() for what it waits for.")
