"""`millpond apply`: applies an edited SQL file to its running app."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from millpond.cli.command import Arguments, Command, add_file, add_json, add_state, add_timeout, add_variables
from millpond.cli.query import find_state
from millpond.errors import RunError
from millpond.units import parse_duration


def configure(parser: argparse.ArgumentParser) -> None:
    add_file(parser)
    add_state(parser)
    add_variables(parser)
    parser.add_argument("--accept", action="store_true", help="drop tables that the file no longer defines")
    add_timeout(parser)
    add_json(parser)


def run(arguments: Arguments) -> int:
    from millpond.app.planning import AppText

    text = AppText.of_file(Path(arguments.file))
    state = find_state(arguments.state, arguments.file)
    given = {**asdict(text), "base": str(text.base)}
    done = ask_app(arguments, state, "apply", variables=dict(arguments.variables), accept=arguments.accept, **given)
    if arguments.json:
        print(json.dumps({"event": "applied", **done["changes"], "states": done["flows"]}))
        return 0
    print(*_changed(done["changes"]), *flow_lines(done["flows"]), sep="\n")
    for warning in done["changes"]["warnings"]:
        place = f" {warning['file']}:{warning['line']}:{warning['column']}" if warning["file"] else ""
        print(f"{warning['code']}{place}  warning: {warning['message']}", file=sys.stderr)
    return 0


def ask_app(arguments: Arguments, state: Path, what: str, **given: object) -> dict[str, Any]:
    """Send a request to the app that runs on a state directory; MP713 if none runs."""
    from millpond.serve.control_client import SOCKET_NAME, Client

    done = Client(state / SOCKET_NAME, parse_duration(arguments.timeout) / 1_000_000).post(f"/api/{what}", given)
    if done is None:
        hint = "A stopped app applies its file, and retries what failed, at its next start: millpond run FILE"
        raise RunError("MP713", f"No app is running on {state}.", hint=hint)
    return done


def flow_lines(states: Mapping[str, str]) -> list[str]:
    """Each flow with its state."""
    return [f"flow {name}: {state}" for name, state in states.items()]


def _changed(changes: Mapping[str, Any]) -> Iterator[str]:
    """What changed; hidden tables are left out."""
    for table in changes["tables"]:
        if table["change"] != "kept" and not table["hidden"]:
            yield f"table {table['name']}: {table['change']}"
    for flow in changes["flows"]:
        if flow["change"] != "kept":
            yield f"flow {flow['name']}: {flow['change']}"
        yield from (f"flow {flow['name']}: the statement in line {line} is new" for line in flow["added"])
        yield from (f"flow {flow['name']}: {removed} was removed" for removed in flow["removed"])
    for shot in changes["one_shots"]:
        if not shot["has_run"]:
            yield f"line {shot['line']}: {shot['kind'].upper()} was run"


COMMAND = Command("apply", "Apply an edited SQL file to its running app.", configure, run)
