"""An app's figures at this moment, collected from its tables, flows and sources."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from millpond.contracts.source import SourceStatus, without_identity
from millpond.contracts.table import Table
from millpond.plan.model import TablePlan
from millpond.runtime.context import Context
from millpond.runtime.figures.measured import MeasuredSink
from millpond.runtime.figures.meter import FIVE_MINUTES_S
from millpond.runtime.figures.progress import (
    LOADING,
    MISSING,
    READY,
    RETRYING,
    RUNNING,
    WAITING,
    AppProgress,
    FlowProgress,
    LoadProgress,
    SinkProgress,
    SourceProgress,
    TableProgress,
)
from millpond.runtime.flows.flow import Flow
from millpond.runtime.loading.load import Loader


def progress_of(
    context: Context, state: str, seconds: float, flows: Sequence[Flow], loaders: Sequence[Loader]
) -> AppProgress:
    """Everything SHOW, the terminal and `--json` tell; callable from any thread."""
    loading = {loader.plan.name.lower(): loader for loader in loaders}
    tables = [context.store.table(name) for name in context.store.names()]
    shown = [t for t in tables if not t.spec.hidden]
    made = {t.name.lower() for t in shown}
    waiting = [t for t in context.plan.tables if t.name.lower() in context.held - made and not t.spec.hidden]
    return AppProgress(
        context.plan.name,
        state,
        seconds,
        (*(_table(context, t, loading.get(t.name.lower())) for t in shown), *(_waiting(context, t) for t in waiting)),
        tuple(_flow(f) for f in flows),
        tuple(_sources(flows, loaders)),
        (*context.plan.warnings, *context.notices),
        tuple(_sinks(context)),
    )


def _table(context: Context, table: Table, loader: Loader | None) -> TableProgress:
    stats, load = table.stats(), loader.load_progress() if loader is not None else None
    state = context.table_states.get(table.name.lower(), "ready")
    return TableProgress(
        table.name,
        state,
        stats.rows,
        stats.version,
        table.spec.backend,
        ", ".join(without_identity(table.schema).key),
        _loaded(state, load),
        stats.updated_at,
        # Of a table that lives elsewhere, what it takes there.
        stats.bytes_memory + stats.bytes_spilled or stats.bytes_disk,
        load,
    )


def _waiting(context: Context, table: TablePlan) -> TableProgress:
    """A table that cannot be made yet: its columns hang on a source that is empty or not there."""
    state = context.table_states.get(table.name.lower(), MISSING)
    return TableProgress(table.name, state, 0, 0, table.spec.backend, ", ".join(table.spec.schema.key), "", None, 0)


def _loaded(state: str, load: LoadProgress | None) -> str:
    if load is None:
        return ""
    return str(load) if state == LOADING else load.share


def _flow(flow: Flow) -> FlowProgress:
    status = flow.reader.status() if flow.reader is not None else SourceStatus()
    # A flow that waits for a broker or its source tells it, or nobody would know why nothing happens.
    away = flow.interruption.error if flow.state == RUNNING else None
    error = flow.error or away or (flow.opening.error if flow.opening.is_pending else None)
    return FlowProgress(
        flow.plan.name,
        flow.source.name,
        flow.state if away is None else RETRYING,
        len(flow.plan.steps),
        flow.meter.batches,
        flow.meter.rows,
        flow.meter.rate(),
        round(flow.meter.batch_ms, 1),
        status.lag,
        f"{error.code} {error.problems[0].message}" if error else "",
        flow.meter.rate(FIVE_MINUTES_S),
        flow.meter.bad,
        flow.meter.updated_at,
        _seconds(status.lag_s),
    )


def _sources(flows: Sequence[Flow], loaders: Sequence[Loader]) -> list[SourceProgress]:
    """One line per source; several flows and loads may read one, each for itself."""
    users: list[Flow | Loader] = [*flows, *loaders]
    ids = dict.fromkeys(user.source.id for user in users)
    return [_source([user for user in users if user.source.id == id_]) for id_ in ids]


def _source(users: Sequence[Flow | Loader]) -> SourceProgress:
    source, meters = users[0].source, [user.meter for user in users]
    statuses = [_status(user) for user in users]
    status = statuses[0]
    times = [s.updated_at for s in statuses if s.updated_at] + [m.updated_at for m in meters if m.updated_at]
    return SourceProgress(
        source.name,
        source.type,
        status.state,
        status.health,
        max(*(s.rows for s in statuses), *(m.rows for m in meters)),
        max(times, default=None),
        status.lag,
        max(s.retries for s in statuses),
        max(*(s.bad_records for s in statuses), *(m.bad for m in meters)),
        max(s.bytes for s in statuses),
        _seconds(status.lag_s),
        max(meter.rate() for meter in meters),
        max(meter.rate(FIVE_MINUTES_S) for meter in meters),
    )


def _status(user: Flow | Loader) -> SourceStatus:
    if user.reader is None:
        return user.opening.status()
    status = user.reader.status()
    if user.source.columns is None and status.state == READY:
        # There but empty: its columns are found when its first records come.
        status = replace(status, state=WAITING)
    status = replace(status, retries=status.retries + user.opening.retries)
    return user.interruption.shown(status) if isinstance(user, Flow) else status


def _sinks(context: Context) -> Iterator[SinkProgress]:
    for sink in context.plan.sinks:
        opened = context.sinks.get(sink.id)
        if isinstance(opened, MeasuredSink):
            meter = opened.meter
            yield SinkProgress(
                sink.spec.shown,
                sink.type,
                sink.guarantee,
                meter.rows,
                meter.batches,
                meter.updated_at,
                meter.rate(),
                meter.rate(FIVE_MINUTES_S),
            )


def _seconds(value: float | None) -> float | None:
    return None if value is None else round(value, 3)
