"""`millpond doctor`: what this machine has and lacks, whether a state is sound, and the command that helps."""

from __future__ import annotations

import argparse
import json
import os
from collections.abc import Callable, Iterator
from dataclasses import asdict
from pathlib import Path

from millpond.cli.command import Arguments, Command, add_json
from millpond.cli.health import CHECKS, DAMAGED, MISSING, OK, WARN, Finding, Machine
from millpond.errors import StateError
from millpond.runtime.keeping.state import STORE, open_existing
from millpond.runtime.spark.jars import install_connector


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--install", metavar="NAME", help="fetch what a connector needs, such as kafka")
    parser.add_argument("--repair", action="store_true", help="keep what is sound of damaged state directories")
    parser.add_argument("--state", metavar="DIR", help="the one to examine, or to repair (all those in ./.millpond)")
    add_json(parser)


def run(arguments: Arguments) -> int:
    if arguments.install:
        jars = install_connector(arguments.install, os.environ)
        print(*(f"installed  {jar}" for jar in jars), sep="\n")
        return 0
    if arguments.repair:
        print(*_repaired(arguments.state), sep="\n")
        return 0
    if arguments.state:
        return _show(list(_examined(Path(arguments.state))), arguments, _verdict_on_state)
    machine = Machine(os.environ, Path.cwd())
    findings = [finding for check in CHECKS for finding in check(machine)]
    return _show(findings, arguments, _verdict)


def _show(findings: list[Finding], arguments: Arguments, verdict: Callable[[list[Finding]], str]) -> int:
    print(*(map(_json_line, findings) if arguments.json else [*_lines(findings), "", verdict(findings)]), sep="\n")
    return 1 if any(finding.state in (MISSING, DAMAGED) for finding in findings) else 0


def _repaired(state: str | None) -> Iterator[str]:
    """What was done to each state directory, a line each; MP807 when there is none."""
    folders = [Path(state)] if state else sorted(path for path in Path(".millpond").glob("*") if path.is_dir())
    stores = [folder / STORE for folder in folders if (folder / STORE).is_dir()]
    if not stores:
        where = state or ".millpond here"
        raise StateError(
            "MP807", f"There is no state in {where}.", hint="Name it: millpond doctor --repair --state DIR"
        )
    # Tables bring numpy and Arrow's kernels with them, and every other command would wait for these.
    from millpond.cli.state_health import mended
    from millpond.tables.damage import values_of
    from millpond.tables.repair import repair

    for store in stores:
        told = [*repair(store), *mended(store.parent, values_of(store))]
        yield from (f"{store.parent}  {line}" for line in told or ["Sound; nothing was changed."])


def _examined(folder: Path) -> Iterator[Finding]:
    """Whether a state directory is sound, a finding for each damage; nothing is changed. MP801 while an app holds it,
    MP807 when there is none."""
    from millpond.cli.state_health import damage_beside_tables
    from millpond.tables.damage import values_of
    from millpond.tables.repair import inspect

    held = None
    try:
        held = open_existing(folder)
        opens, told = inspect(held.store) if held.store.is_dir() else (True, [])
        beside = list(damage_beside_tables(held.path, values_of(held.store)))
    except StateError as error:
        if error.code not in ("MP803", "MP804"):
            raise
        yield from (Finding("state", DAMAGED, problem.message, problem.hint) for problem in error.problems)
        return
    finally:
        if held is not None:
            held.close()
    command = f"millpond doctor --repair --state {folder}"
    if not told and not beside:
        yield Finding("state", OK, f"{folder} is sound")
    yield from beside
    yield from (Finding("state", WARN if opens else DAMAGED, line, "" if opens else command) for line in told)


def _lines(findings: list[Finding]) -> list[str]:
    width = max(len(finding.name) for finding in findings)
    lines = []
    for finding in findings:
        lines.append(f"{finding.state:<7}  {finding.name:<{width}}  {finding.detail}")
        if finding.command:
            lines.append(f"{'':<7}  {'':<{width}}  -> {finding.command}")
    return lines


def _verdict(findings: list[Finding]) -> str:
    missing = [finding.name for finding in findings if finding.state == MISSING]
    warned = [finding.name for finding in findings if finding.state not in (OK, MISSING)]
    if missing:
        return f"Missing: {', '.join(missing)}. Millpond cannot run until that is there."
    return f"Millpond can run here; look at: {', '.join(warned)}." if warned else "Millpond can run here."


def _verdict_on_state(findings: list[Finding]) -> str:
    if any(finding.state == DAMAGED for finding in findings):
        return "The state is damaged; nothing was changed."
    return "The state is sound." if all(finding.state == OK for finding in findings) else "The state can be used."


def _json_line(finding: Finding) -> str:
    return json.dumps(asdict(finding), ensure_ascii=False)


COMMAND = Command("doctor", "Say what this machine has and lacks, and how to get it.", configure, run)
