"""The sinks of an app: opens them with counters, and publishes at the start what the last commits staged."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, TextIO

import pyarrow as pa

from millpond.contracts.sink import Mark, Sink
from millpond.contracts.stored_json import JsonObject, StoredJson
from millpond.contracts.table import Store
from millpond.engine.app_context import Context
from millpond.engine.dead_letters import NAME as DEAD_LETTERS
from millpond.engine.dead_letters import Letters
from millpond.engine.ledger import CHANGES, FLOW, ONCE
from millpond.engine.progress import Meter
from millpond.engine.rejected_rows import as_text
from millpond.errors import MillpondError, Severity, SinkError
from millpond.plan.model import Plan, SinkPlan, StepKind
from millpond.registry import find
from millpond.schema import Schema

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


class MeasuredSink:
    """A Sink that delegates to another one and counts its rows."""

    def __init__(self, sink: Sink) -> None:
        self._sink = sink
        self.meter = Meter()
        self.marks_rows = sink.marks_rows

    def require(self, spark: Callable[[], SparkSession]) -> None:
        self._sink.require(spark)

    def prepare(self, rows: pa.Table) -> pa.Table:
        return self._sink.prepare(rows)

    def takes_arrow(self, rows: pa.Table) -> bool:
        return self._sink.takes_arrow(rows)

    def stage(self, rows: pa.Table | DataFrame, mark: Mark) -> JsonObject | None:
        # The terminal sink prints in `stage` and has nothing to publish.
        with self._counted():
            return self._sink.stage(rows, mark)

    def publish(self, staged: dict[str, StoredJson]) -> None:
        with self._counted():
            self._sink.publish(staged)

    @contextmanager
    def _counted(self) -> Iterator[None]:
        before = self._sink.rows_written()
        yield
        if rows := self._sink.rows_written() - before:
            self.meter.add(rows)

    def discard(self) -> None:
        self._sink.discard()

    def rows_written(self) -> int:
        return self._sink.rows_written()


# The folder of the state directory with what sinks remember.
SINKS = "sinks"


def open_sinks(sinks: Sequence[SinkPlan], context: Context, output: TextIO, *, json: bool) -> dict[str, MeasuredSink]:
    """Open sinks of the plan, each with counters; bare SELECTs write to `output`."""
    opened_sinks: dict[str, MeasuredSink] = {}
    for sink in sinks:
        plugin = find("sink", sink.type, sink.place)
        folder = context.state.path / SINKS / sink.id
        # Executors write there.
        context.state.share(folder, plugin.staging)
        spec = replace(
            sink.spec,
            writer=context.state.id,
            folder=folder,
            columns=_columns(context.plan, sink),
            reject=partial(_reject, context, sink),
            at_stop=context.endings.append,
            warn=context.notices.append,
            output=output,
            prints_json=json,
        )
        assert plugin.open is not None, "the plan has only sinks that can run"
        opened_sinks[sink.id] = MeasuredSink(plugin.open(spec))
    return opened_sinks


def _columns(plan: Plan, sink: SinkPlan) -> tuple[Schema, ...]:
    """The columns of each statement that writes to a sink."""
    steps = [*(step for flow in plan.flows for step in flow.steps), *(change.step for change in plan.changes)]
    return tuple(step.schema for step in steps if step.kind is StepKind.SINK and step.target == sink.id)


def _reject(context: Context, sink: SinkPlan, rows: pa.Table, reason: str, flow: str, statement: int) -> None:
    """Store rows that a sink has rejected as dead letters, in a commit of their own."""
    plan = next((found for found in context.plan.flows if found.id == flow), None)
    step = next((s for f in context.plan.flows for s in f.steps if f.id == flow and s.index == statement), None)
    most = context.plan.settings["dead.letters.max"]
    letters = Letters(context.store, plan.name if plan is not None else flow, sink.spec.shown, most)
    letters = letters.of(plan, step).without_record() if plan is not None and step is not None else letters
    with context.store.begin(locks=[DEAD_LETTERS]) as tx:
        letters.add(tx, rows, ["MP603"] * rows.num_rows, [reason] * rows.num_rows, as_text(rows))
        tx.commit()


def end_sinks(context: Context) -> None:
    """Let sinks do what they have to do when the app stops. What fails is durable, and done at the next start."""
    endings, context.endings[:] = list(context.endings), []
    for end in endings:
        try:
            end()
        except MillpondError as error:
            context.notices.extend(replace(problem, severity=Severity.WARNING) for problem in error.problems)


def recover_sinks(store: Store, sinks: dict[str, Sink]) -> None:
    """Publish what the last commit of each flow staged, because a crash may have prevented it, then remove the rest."""
    for prefix in (FLOW, ONCE, CHANGES):
        for entry in store.items(prefix).values():
            for staged in entry.get("sinks", ()) if isinstance(entry, dict) else ():
                if staged["sink"] in sinks:
                    _publish(sinks[staged["sink"]], staged["staged"])
    for sink in sinks.values():
        sink.discard()


def _publish(sink: Sink, staged: dict[str, Any]) -> None:
    """Publish again. A sink that cannot be reached keeps what it has; the flow that writes to it tries again."""
    try:
        sink.publish(staged)
    except SinkError as error:
        if error.code != "MP602":
            raise
