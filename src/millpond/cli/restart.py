"""`millpond restart`: restarts a failed flow of a running app."""

from __future__ import annotations

import argparse
import json

from millpond.cli.apply import ask_app, flow_lines
from millpond.cli.command import Arguments, Command, add_app, add_json, add_state, add_timeout
from millpond.cli.query import find_state


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("flow", metavar="FLOW", help="the flow, as SHOW FLOWS names it")
    add_app(parser)
    add_state(parser)
    add_timeout(parser)
    add_json(parser)


def run(arguments: Arguments) -> int:
    done = ask_app(arguments, find_state(arguments.state, arguments.app), "restart", flow=arguments.flow)
    if arguments.json:
        print(json.dumps({"event": "restarted", "states": done["flows"]}))
    else:
        print(*flow_lines(done["flows"]), sep="\n")
    return 0


COMMAND = Command("restart", "Restart a failed flow of a running app, from its last finished batch.", configure, run)
