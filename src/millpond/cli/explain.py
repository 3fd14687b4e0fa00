"""`millpond explain`: the plan that will run, and why each table is read the way it is."""

from __future__ import annotations

import argparse
import json
import sys

from millpond.cli.check import plan_of
from millpond.cli.command import Arguments, Command, add_file, add_json, add_state, add_variables
from millpond.cli.messages import print_problems
from millpond.errors import Problem, Severity


def configure(parser: argparse.ArgumentParser) -> None:
    add_file(parser)
    add_state(parser)
    add_variables(parser)
    add_json(parser)


def run(arguments: Arguments) -> int:
    # As heavy as the parser, so not for `--help`.
    from millpond.plan.explain import explain_json, explain_text

    plan = plan_of(arguments)
    notes = [_NO_DIFFERENCE] if arguments.state else []
    if plan.errors:
        print_problems([*plan.problems, *notes], json=arguments.json, file=sys.stdout if arguments.json else sys.stderr)
        return 2
    print_problems(notes, json=arguments.json)
    print(json.dumps(explain_json(plan), ensure_ascii=False) if arguments.json else explain_text(plan))
    return 0


_NO_DIFFERENCE = Problem(
    "MP901",
    "What a changed file would do to the state directory is not shown yet.",
    hint="The plan is that of the file alone; --state changes nothing in it.",
    severity=Severity.NOTE,
)

COMMAND = Command("explain", "Show the plan that will run, and why.", configure, run)
