"""`millpond explain`: shows the plan, with the reason for how each table is read."""

from __future__ import annotations

import argparse
import json
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from millpond.cli.check import plan_of
from millpond.cli.command import (
    Arguments,
    Command,
    add_cluster,
    add_file,
    add_json,
    add_state,
    add_variables,
    cluster_settings,
)
from millpond.cli.output import print_problems
from millpond.cli.query import answer, find_state
from millpond.errors import Severity, StateError

if TYPE_CHECKING:
    import pyarrow as pa

    from millpond.app.edit_report import Edit
    from millpond.plan.model import Plan


def configure(parser: argparse.ArgumentParser) -> None:
    add_file(parser)
    add_state(parser)
    add_cluster(parser)
    add_variables(parser)
    add_json(parser)
    parser.add_argument(
        "--analyze", action="store_true", help="add what each engine did of every statement, from the state directory"
    )


def run(arguments: Arguments) -> int:
    # Imported here, because `--help` should not have to load the parser.
    from millpond.app.added_statements import added_to
    from millpond.engine.state_directory import state_of
    from millpond.plan.explain import explain_text
    from millpond.plan.explain_json import explain_json

    settings = cluster_settings(arguments)
    plan = plan_of(arguments, settings=settings)
    if added := added_to(state_of(Path(arguments.file), arguments.state, plan.settings)):
        plan = plan_of(arguments, added, settings)
    if plan.errors:
        print_problems(plan.problems, json=arguments.json, file=sys.stdout if arguments.json else sys.stderr)
        return 2
    used = _used(arguments) if arguments.analyze else None
    # The state of a running app is only asked for what it did.
    found = _difference(plan, arguments) if used is None else None
    if arguments.json:
        more = {"difference": found.as_json()} if found else {}
        more |= {"analyzed": used.to_pylist()} if used is not None else {}
        print(json.dumps({**explain_json(plan), **more}, ensure_ascii=False))
        return 0
    print(explain_text(plan))
    if found:
        print(f"\n{found.as_text()}")
    if used is not None:
        from millpond.rendering import text_lines

        print("\nBatches, rows and milliseconds a batch by engine, since the state directory was made")
        print("\n".join(f"  {line}" for line in text_lines(used)))
    return 0


def _used(arguments: Arguments) -> pa.Table:
    """What each engine did of every statement, from the running app or its state directory."""
    return answer("SHOW STATEMENTS", find_state(arguments.state, arguments.file))


def _difference(plan: Plan, arguments: Arguments) -> Edit | None:
    """What the file would change in the state directory: the given one, or else the default one if it exists."""
    # Imported only if there is something to compare, because tables load pyspark.
    from millpond.engine.state_directory import IDENTITY, state_of

    state = state_of(Path(arguments.file), arguments.state, plan.settings)
    if not arguments.state and not (state / IDENTITY).is_file():
        return None
    from millpond.app.edit_report import read_edit

    try:
        return read_edit(plan, state)
    except StateError as error:
        if arguments.state:
            raise
        # The state was not requested, so the plan is shown without it, for example while the app runs.
        print_problems([replace(p, severity=Severity.NOTE) for p in error.problems], json=arguments.json)
        return None


COMMAND = Command("explain", "Show the plan that will run, and why.", configure, run)
