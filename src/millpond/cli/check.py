"""`millpond check`: reports every problem of a SQL file without starting Spark."""

from __future__ import annotations

import argparse
import os
import sys
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

from millpond.cli.command import Arguments, Command, add_file, add_json, add_variables
from millpond.cli.output import counted, print_problems

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from millpond.app.added_statements import Added
    from millpond.plan.model import Plan


def configure(parser: argparse.ArgumentParser) -> None:
    add_file(parser)
    add_variables(parser)
    add_json(parser)


def run(arguments: Arguments) -> int:
    plan = plan_of(arguments)
    print_problems(plan.problems, json=arguments.json, file=sys.stdout if arguments.json else sys.stderr)
    if not arguments.json:
        print(f"{Path(arguments.file).name}: {summary(plan)}")
    return 2 if plan.errors else 0


def plan_of(arguments: Arguments, added: Sequence[Added] = (), settings: Mapping[str, str] | None = None) -> Plan:
    """The plan of the file on the command line, including its problems, with statements that were added to it."""
    # Imported here, because `--help` and `version` should not have to load the parser.
    from millpond.app.planning import plan_file

    variables = dict(arguments.variables)
    return plan_file(
        Path(arguments.file), variables=variables, settings=settings or {}, environment=os.environ, added=added
    )


def summary(plan: Plan) -> str:
    """`3 errors, 1 warning` or `fine; 2 streams, 3 tables, 2 flows`, with what could not be verified counted too."""
    found = Counter(problem.severity.value for problem in plan.problems)
    if plan.errors:
        return ", ".join(counted(found[word], word) for word in ("error", "warning", "note") if found[word])
    parts = (
        counted(len(plan.streams), "stream"),
        counted(sum(table.kind not in _UNNAMED for table in plan.tables), "table"),
        counted(len(plan.flows), "flow"),
        *(counted(found[word], word) for word in ("warning", "note") if found[word]),
    )
    return "fine; " + ", ".join(parts)


# Kinds of tables that are not declared in the file.
_UNNAMED = ("hidden", "system")

COMMAND = Command("check", "Find every mistake in a SQL file without running it.", configure, run)
