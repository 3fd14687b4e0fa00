"""`millpond doctor`: what this machine has and lacks, and the command that brings it."""

from __future__ import annotations

import argparse
import json
import os
from dataclasses import asdict
from pathlib import Path

from millpond.cli.command import Arguments, Command, add_json
from millpond.cli.health import CHECKS, MISSING, OK, Finding, Machine
from millpond.errors import NotYetError
from millpond.runtime.jars import install_connector


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--install", metavar="NAME", help="fetch what a connector needs, such as kafka")
    parser.add_argument("--repair", action="store_true", help="repair a state directory (comes later)")
    add_json(parser)


def run(arguments: Arguments) -> int:
    if arguments.install:
        jars = install_connector(arguments.install, os.environ)
        print(*(f"installed  {jar}" for jar in jars), sep="\n")
        return 0
    if arguments.repair:
        hint = "Restore the state directory from a copy, or start over with another --state."
        raise NotYetError("MP901", "Repairing a state directory comes in a later version.", hint=hint)
    machine = Machine(os.environ, Path.cwd())
    findings = [finding for check in CHECKS for finding in check(machine)]
    print(*(map(_json_line, findings) if arguments.json else _lines(findings)), sep="\n")
    return 1 if any(finding.state == MISSING for finding in findings) else 0


def _lines(findings: list[Finding]) -> list[str]:
    width = max(len(finding.name) for finding in findings)
    lines = []
    for finding in findings:
        lines.append(f"{finding.state:<7}  {finding.name:<{width}}  {finding.detail}")
        if finding.command:
            lines.append(f"{'':<7}  {'':<{width}}  -> {finding.command}")
    return [*lines, "", _verdict(findings)]


def _verdict(findings: list[Finding]) -> str:
    missing = [finding.name for finding in findings if finding.state == MISSING]
    warned = [finding.name for finding in findings if finding.state not in (OK, MISSING)]
    if missing:
        return f"Missing: {', '.join(missing)}. Millpond cannot run until that is there."
    return f"Millpond can run here; look at: {', '.join(warned)}." if warned else "Millpond can run here."


def _json_line(finding: Finding) -> str:
    return json.dumps(asdict(finding), ensure_ascii=False)


COMMAND = Command("doctor", "Say what this machine has and lacks, and how to get it.", configure, run)
