"""Check: warns if keeping the order of events is slow, or if a result depends on how events are batched."""

from __future__ import annotations

from collections.abc import Iterator

from millpond.errors import Problem, Severity
from millpond.plan.change_model import ChangeGroup
from millpond.plan.checks.subject import Subject
from millpond.plan.flow_plans import INTO_TABLES, behind_views
from millpond.plan.model import FlowPlan, Step, StepKind
from millpond.plan.statement_groups import CHANGING, takes_batches

CODE = "MP229"


def check(subject: Subject) -> Iterator[Problem]:
    for flow in subject.flows:
        steps = {step.index: step for step in flow.steps}
        for group in flow.groups:
            yield from _slow(subject, group, steps)
        yield from _as_of_the_batch(subject, flow)
        yield from _by_batch(subject, flow)


def _slow(subject: Subject, group: ChangeGroup, steps: dict[int, Step]) -> Iterator[Problem]:
    """Warn about a statement that cannot be folded by key."""
    for writer in group.writers:
        if writer.action is None:
            how = "one event at a time" if writer.one_by_one else "in runs of events, between those of other statements"
            message = f"This statement changes '{group.table}' {how}, which is slower than by key: {writer.reason}."
            key = ", ".join(subject.tables[group.table.lower()].spec.schema.key)
            hint = f"If possible, compare the whole key ({key}) with values of the event." if key else ""
            yield subject.problem(CODE, message, steps[writer.index].place, hint, Severity.NOTE)


def _as_of_the_batch(subject: Subject, flow: FlowPlan) -> Iterator[Problem]:
    """Warn about a statement that reads what an earlier one changes."""
    changed: dict[str, int] = {}
    for step in flow.steps:
        read = {a.table.lower() for a in step.reads}
        for name in sorted(behind_views(read, subject.tables) & set(changed) - {step.target.lower()}):
            table = subject.tables[name].name
            message = f"This reads '{table}', which the statement in line {changed[name]} changes for the same stream."
            hint = "It sees the table after that statement has processed the whole batch, not event by event."
            yield subject.problem(CODE, message, step.place, hint, Severity.NOTE)
        if step.kind in INTO_TABLES and step.target.lower() in subject.tables:
            changed.setdefault(step.target.lower(), step.place.line)


def _by_batch(subject: Subject, flow: FlowPlan) -> Iterator[Problem]:
    """Warn about a statement that changes a table once per batch, between others that change it by each event."""
    changing = [step for step in flow.steps if step.kind in CHANGING and step.target.lower() in subject.tables]
    for step in changing:
        table = subject.tables[step.target.lower()]
        others = [s for s in changing if s.index != step.index and s.target.lower() == step.target.lower()]
        # INSERTs into a table without a key do not depend on each other.
        is_ordered = table.spec.schema.key or {s.kind for s in (step, *others)} != {StepKind.INSERT}
        if others and is_ordered and takes_batches(step):
            line = others[0].place.line
            message = f"This statement changes '{table.name}' once per batch, while the one in line {line} changes it "
            message += "too: the result depends on how events are divided into batches."
            hint = "Write its groups to a table of their own." if step.aggregate else "Remove ORDER BY and LIMIT."
            yield subject.problem(CODE, message, step.place, hint, Severity.NOTE)
