"""What an app has made on servers: replication slots and publications, listed and dropped by `millpond doctor FILE`."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from millpond.cli.check import plan_of
from millpond.cli.command import Arguments
from millpond.cli.health import OK, WARN, Finding
from millpond.contracts.changes import Capture
from millpond.contracts.source import Mode, SourceSpec
from millpond.engine.state_directory import identity_of, state_of
from millpond.errors import InputError
from millpond.plan.model import SourcePlan
from millpond.registry import find


def server_objects(arguments: Arguments) -> Iterator[Finding]:
    """A finding for each of them; with --drop-slots each is dropped."""
    plan = plan_of(arguments)
    if plan.errors:
        raise InputError.of(plan.errors)
    id_ = identity_of(state_of(Path(arguments.file), arguments.state, plan.settings)).get("id")
    groups: dict[str, dict[str, SourceSpec]] = {}
    for source in plan.sources:
        plugin = find("source", source.type)
        if source.mode is not Mode.APPEND and _is_captured(source):
            key = f"{source.type}:{plugin.capture_group(source.spec)}"
            groups.setdefault(key, {})[source.id] = source.spec
    owner, found = f"{plan.name}-{id_}", False
    captures = [(key.partition(":")[0], Capture(owner, tables)) for key, tables in groups.items()]
    for flow in plan.flows:
        source = plan.source(flow.source)
        if _is_captured(source):
            captures.append((source.type, Capture(f"{owner}-{flow.id}", {source.id: source.spec})))
    for type_, capture in captures:
        left_behind = find("source", type_).left_behind
        assert left_behind is not None
        for line in left_behind(capture, arguments.drop_slots):
            found = True
            command = "" if arguments.drop_slots else f"millpond doctor {arguments.file} --drop-slots"
            yield Finding("server", OK if arguments.drop_slots else WARN, line, command)
    if not found:
        yield Finding("server", OK, "The app has made no replication slot or publication.")


def _is_captured(source: SourcePlan) -> bool:
    plugin = find("source", source.type)
    return plugin.left_behind is not None and plugin.captures(source.spec.values)
