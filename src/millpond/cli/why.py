"""`millpond why`: runs one event through one statement, and shows what each join, subquery and condition found."""

from __future__ import annotations

import argparse
import json
import sys
from dataclasses import asdict
from typing import TYPE_CHECKING

from millpond.cli.check import plan_of
from millpond.cli.command import Arguments, Command, add_file, add_json, add_state, add_variables
from millpond.cli.output import print_problems
from millpond.cli.query import find_state, read_standard_input
from millpond.errors import NotYetError, OptionError, SourceError

if TYPE_CHECKING:
    import pyarrow as pa

    from millpond.app.event_trace import Finding
    from millpond.plan.model import FlowPlan, Plan, Step


def configure(parser: argparse.ArgumentParser) -> None:
    add_file(parser)
    parser.add_argument(
        "--statement", metavar="N", type=int, required=True, help="the number of the statement in the file, from 1"
    )
    parser.add_argument(
        "--event", metavar="JSON", required=True, help="the event as a JSON object; - reads standard input"
    )
    add_state(parser)
    add_variables(parser)
    add_json(parser)


def run(arguments: Arguments) -> int:
    # Imported here, because it loads pyspark, which `--help` does not need.
    from millpond.app.added_statements import added_to
    from millpond.app.stopped_app import traced

    state = find_state(arguments.state, arguments.file)
    plan = plan_of(arguments, added_to(state))
    if plan.errors:
        print_problems(plan.problems, json=arguments.json, file=sys.stdout if arguments.json else sys.stderr)
        return 2
    text = read_standard_input() if arguments.event == "-" else arguments.event
    for flow, step in _chosen(plan, arguments.statement):
        findings = traced(plan, state, flow, step, _event(plan, flow, text))
        if arguments.json:
            print(json.dumps([asdict(finding) for finding in findings], ensure_ascii=False))
        else:
            print("\n".join(_lines(flow, step, findings)))
    return 0


def _chosen(plan: Plan, number: int) -> list[tuple[FlowPlan, Step]]:
    """The statement of this number, once for each stream that drives it."""
    driven = [(flow, step) for flow in plan.flows for step in flow.steps if step.statement is not None]
    found = [(flow, step) for flow, step in driven if step.index == number - 1]
    if not found:
        lines = sorted({(step.index + 1, step.place.line) for _, step in driven})
        listed = ", ".join(f"{index} (line {line})" for index, line in lines) or "none"
        message = f"Statement {number} is not driven by a stream."
        raise OptionError("MP310", message, hint=f"The statements that a stream drives: {listed}.")
    if any(flow.join is not None for flow, _ in found):
        hint = "Trace the statement without the join, or store one of the streams in a table."
        raise NotYetError("MP901", "Tracing a join of streams is not supported in this version.", hint=hint)
    return found


def _event(plan: Plan, flow: FlowPlan, text: str) -> pa.Table:
    """The event as a record of the flow's source; MP504 if it cannot be read."""
    from millpond.sources.records.text_parsing import Texts, Uncertain, parse_json

    source = plan.source(flow.source)
    hint = "Write one JSON object with the columns of the stream, such as --event '{\"id\": 1}'."
    if source.columns is None:
        raise SourceError("MP504", f"The columns of {source.spec.shown} are not known.", hint="Declare them.")
    try:
        return parse_json(Texts([text.encode()], [None], [False]), source.columns)
    except Uncertain as error:
        raise SourceError("MP504", "The event cannot be read as JSON.", hint=hint) from error


def _lines(flow: FlowPlan, step: Step, findings: list[Finding]) -> list[str]:
    lines = [f"statement {step.index + 1} (line {step.place.line}), driven by {flow.name}"]
    for finding in findings:
        text = f" {finding.text}" if finding.text else ""
        lines.append(f"  {finding.part}{text}: {finding.found}")
        lines += [f"    {row}" for row in finding.rows]
    return lines


COMMAND = Command("why", "Show what a statement does with one event, and why.", configure, run)
