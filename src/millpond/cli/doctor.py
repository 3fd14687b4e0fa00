"""`millpond doctor`: checks this machine and state directories, and shows the command that fixes each problem."""

from __future__ import annotations

import argparse
import json
import os
from collections.abc import Callable, Iterator
from dataclasses import asdict
from pathlib import Path

from millpond.cli.command import Arguments, Command, add_json, add_variables
from millpond.cli.health import CHECKS, DAMAGED, MISSING, OK, WARN, Finding, Machine
from millpond.engine.spark.class_archive import install_archive
from millpond.engine.spark.java import CLASSES, find_java, install_connector, spark_jars
from millpond.engine.state_directory import STORE, open_existing
from millpond.errors import InputError, StateError


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("file", metavar="FILE", nargs="?", help="list what this app has made on database servers")
    parser.add_argument("--drop-slots", action="store_true", help="drop the replication slots and publications of FILE")
    add_variables(parser)
    parser.add_argument(
        "--install",
        metavar="NAME",
        help="kafka: download what the connector requires; classes: an archive that lets Spark start faster",
    )
    parser.add_argument(
        "--repair", action="store_true", help="repair damaged state directories, keeping what is undamaged"
    )
    parser.add_argument("--state", metavar="DIR", help="the state directory to check or repair (all in ./.millpond)")
    add_json(parser)


def run(arguments: Arguments) -> int:
    if arguments.install:
        print(*(f"installed  {file}" for file in _installed(arguments.install)), sep="\n")
        return 0
    if arguments.repair:
        lines, whole = _repaired(arguments.state)
        print(*lines, sep="\n")
        return 0 if whole else 1
    if arguments.file:
        from millpond.cli.server_objects import server_objects

        return _show(list(server_objects(arguments)), arguments, lambda findings: "")
    if arguments.drop_slots:
        hint = "Name the SQL file of the app: millpond doctor app.sql --drop-slots"
        raise InputError("MP310", "--drop-slots requires a file.", hint=hint)
    if arguments.state:
        return _show(list(_examined(Path(arguments.state))), arguments, _verdict_on_state)
    machine = Machine(os.environ, Path.cwd())
    findings = [finding for check in CHECKS for finding in check(machine)]
    return _show(findings, arguments, _verdict)


def _installed(name: str) -> list[Path]:
    if name == CLASSES:
        return [install_archive(find_java(), spark_jars(), os.environ)]
    return install_connector(name, os.environ)


def _show(findings: list[Finding], arguments: Arguments, verdict: Callable[[list[Finding]], str]) -> int:
    print(*(map(_json_line, findings) if arguments.json else [*_lines(findings), "", verdict(findings)]), sep="\n")
    return 1 if any(finding.state in (MISSING, DAMAGED) for finding in findings) else 0


def _repaired(state: str | None) -> tuple[list[str], bool]:
    """Repair each state directory: what was done and what is still damaged, line by line, and whether nothing is; MP807
    if there is none."""
    folders = [Path(state)] if state else sorted(path for path in Path(".millpond").glob("*") if path.is_dir())
    stores = [folder / STORE for folder in folders if (folder / STORE).is_dir()]
    if not stores:
        where = state or ".millpond here"
        raise StateError(
            "MP807", f"There is no state in {where}.", hint="Name it: millpond doctor --repair --state DIR"
        )
    # Imported here, because tables load numpy and Arrow's kernels, which other commands do not need.
    from millpond.cli.state_health import damage_beside_tables, mended
    from millpond.tables.repair import repair, values_of

    lines, whole = [], True
    for store in stores:
        done = [*repair(store), *mended(store.parent, values_of(store))]
        left = [f for f in damage_beside_tables(store.parent, values_of(store)) if f.state == DAMAGED]
        done += [f"Not repaired: {finding.detail} {finding.command}" for finding in left]
        lines += [f"{store.parent}  {line}" for line in done or ["Not damaged; nothing was changed."]]
        whole = whole and not left
    return lines, whole


def _examined(folder: Path) -> Iterator[Finding]:
    """Check a state directory, with a finding for each damage; nothing is changed. MP801 while an app uses it, MP807 if
    there is none."""
    from millpond.cli.state_health import damage_beside_tables
    from millpond.tables.repair import inspect, values_of

    held = None
    try:
        held = open_existing(folder)
        opens, damage = inspect(held.store) if held.store.is_dir() else (True, [])
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
    if not damage and not beside:
        yield Finding("state", OK, f"{folder} is not damaged")
    yield from beside
    yield from (Finding("state", WARN if opens else DAMAGED, line, "" if opens else command) for line in damage)


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
        return f"Missing: {', '.join(missing)}. Millpond cannot run without it."
    return f"Millpond can run here, with warnings: {', '.join(warned)}." if warned else "Millpond can run here."


def _verdict_on_state(findings: list[Finding]) -> str:
    if any(finding.state == DAMAGED for finding in findings):
        return "The state is damaged; nothing was changed."
    return "The state is not damaged." if all(finding.state == OK for finding in findings) else "The state can be used."


def _json_line(finding: Finding) -> str:
    return json.dumps(asdict(finding), ensure_ascii=False)


COMMAND = Command(
    "doctor", "Check this machine and its state directories, and show how to fix problems.", configure, run
)
