"""Check: tables that are captured together, from one server, agree on what applies to the capture as a whole."""

from __future__ import annotations

from collections.abc import Iterator

from millpond.contracts.source import Mode
from millpond.errors import Problem
from millpond.plan.checks.subject import Subject
from millpond.plan.source_catalog import Opened

# One connection follows the log for all tables.
SHARED = (
    "cdc.lost",
    "cdc.fallback",
    "ssl.mode",
    "ssl.root.cert",
    "ssl.cert",
    "ssl.key",
    "connect.timeout",
    "socket.timeout",
    "retry.interval",
    "retry.multiplier",
    "retry.max.delay",
)


def check(subject: Subject) -> Iterator[Problem]:
    first: dict[tuple[str, str], Opened] = {}
    for name in subject.sources:
        opened = subject.sources[name]
        plugin, plan = opened.plugin, opened.plan
        if plan.mode is Mode.APPEND or plugin.open_changes is None or not plugin.captures(plan.spec.values):
            continue
        other = first.setdefault((plugin.name, plugin.capture_group(plan.spec)), opened)
        ours, theirs = plan.spec.values, other.plan.spec.values
        unequal = next((option for option in SHARED if ours.get(option) != theirs.get(option)), None)
        starts = {ours.get("cdc.start"), theirs.get("cdc.start")}
        if len(starts) > 1 and not starts <= {"initial", "latest"}:
            unequal = "cdc.start"
        if unequal is not None:
            message = (
                f"'{plan.spec.shown}' and '{other.plan.spec.shown}' are captured together, but differ in '{unequal}'."
            )
            hint = "Write the same value for both, or another 'slot.name' for one of them."
            hint = hint if "slot.name" in ours else "Write the same value for both."
            yield subject.problem("MP303", message, plan.place, hint)
