"""The sinks of an app: opened at the start, and what the last commits staged is published again."""

from __future__ import annotations

from dataclasses import replace
from typing import TextIO

from millpond.contracts.sink import Sink
from millpond.contracts.table import Store
from millpond.plan.model import Plan
from millpond.registry import find
from millpond.runtime.figures.measured import MeasuredSink
from millpond.runtime.keeping.ledger import CHANGES, FLOW, ONCE

TERMINAL = "terminal"


def open_sinks(plan: Plan, writer: str, output: TextIO, *, json: bool) -> dict[str, MeasuredSink]:
    """One open sink for each of the plan, measured; `writer` names the state directory, bare SELECTs write to
    `output`."""
    sinks: dict[str, MeasuredSink] = {}
    for sink in plan.sinks:
        plugin = find("sink", sink.type, sink.place)
        spec = replace(sink.spec, writer=writer)
        opened = plugin.open(spec) if sink.type != TERMINAL else plugin.open(spec, output, json)
        sinks[sink.id] = MeasuredSink(opened)
    return sinks


def recover_sinks(store: Store, sinks: dict[str, Sink]) -> None:
    """Publish what the last commit of each flow staged (a crash may have come between), then clear the rest."""
    for prefix in (FLOW, ONCE, CHANGES):
        for entry in store.items(prefix).values():
            for staged in entry.get("sinks", ()) if isinstance(entry, dict) else ():
                if staged["sink"] in sinks:
                    sinks[staged["sink"]].publish(staged["staged"])
    for sink in sinks.values():
        sink.discard()
