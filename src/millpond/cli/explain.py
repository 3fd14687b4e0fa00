"""`millpond explain`: the plan that will run, and why each table is read the way it is."""

from __future__ import annotations

import argparse
import json
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from millpond.cli.check import plan_of
from millpond.cli.command import Arguments, Command, add_file, add_json, add_state, add_variables
from millpond.cli.messages import print_problems
from millpond.errors import Severity, StateError

if TYPE_CHECKING:
    from millpond.plan.model import Plan
    from millpond.runtime.keeping.edit_told import Edit


def configure(parser: argparse.ArgumentParser) -> None:
    add_file(parser)
    add_state(parser)
    add_variables(parser)
    add_json(parser)


def run(arguments: Arguments) -> int:
    # As heavy as the parser, so not for `--help`.
    from millpond.plan.explain import explain_text
    from millpond.plan.explain_json import explain_json

    plan = plan_of(arguments)
    if plan.errors:
        print_problems(plan.problems, json=arguments.json, file=sys.stdout if arguments.json else sys.stderr)
        return 2
    found = _difference(plan, arguments)
    if arguments.json:
        told = {**explain_json(plan), **({"difference": found.as_json()} if found else {})}
        print(json.dumps(told, ensure_ascii=False))
    else:
        print(explain_text(plan))
        print(f"\n{found.as_text()}" if found else "", end="\n" if found else "")
    return 0


def _difference(plan: Plan, arguments: Arguments) -> Edit | None:
    """What the file would do to the state directory: the one that is given, or one that is there already."""
    # Spark's Python comes with the tables, so it is loaded only when there is something to compare.
    from millpond.runtime.keeping.state import IDENTITY, state_of

    state = state_of(Path(arguments.file), arguments.state, plan.settings)
    if not arguments.state and not (state / IDENTITY).is_file():
        return None
    from millpond.runtime.keeping.edit_told import read_edit

    try:
        return read_edit(plan, state)
    except StateError as error:
        if arguments.state:
            raise
        # Nobody asked for it: the plan is told all the same, such as while the app runs.
        print_problems([replace(p, severity=Severity.NOTE) for p in error.problems], json=arguments.json)
        return None


COMMAND = Command("explain", "Show the plan that will run, and why.", configure, run)
