"""The statistics of an app: the current ones, and the last stored ones of a stopped app."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, replace
from typing import Any, TypeVar

from millpond.app.open_sinks import MeasuredSink
from millpond.contracts.evaluator import Engine
from millpond.contracts.source import SourceStatus, without_identity
from millpond.contracts.table import Store, Table
from millpond.engine.app_context import Context
from millpond.engine.engine_use import EngineUse, statement_lines
from millpond.engine.flow import Flow
from millpond.engine.ledger import ENGINES, LAST
from millpond.engine.load import Loader
from millpond.engine.progress import (
    FAILED,
    FINISHED,
    FIVE_MINUTES_S,
    LOADING,
    MISSING,
    READY,
    RETRYING,
    RUNNING,
    STALE,
    STOPPED,
    WAITING,
    AppProgress,
    FlowProgress,
    LoadProgress,
    MemoryUse,
    SinkProgress,
    SourceProgress,
    TableProgress,
)
from millpond.engine.spark.process import java_memory, resident_bytes
from millpond.plan.model import TablePlan
from millpond.registry import find

Figures = TypeVar("Figures")


def remember(store: Store, progress: AppProgress, uses: Iterable[EngineUse]) -> None:
    """Store the statistics; called after the start, so that there are some after a crash, and after the stop."""
    states = {t.name.lower(): t.state for t in progress.tables if t.state in (FAILED, STALE)}
    flows = [asdict(replace(f, state=_rested(f.state), rows_per_s=0.0, lag=None)) for f in progress.flows]
    sources = [
        asdict(replace(s, state=_rested(s.state), lag=None, log_unread=None, log_kept=None)) for s in progress.sources
    ]
    with store.begin() as tx:
        tx.put(LAST, {"tables": states, "flows": flows, "sources": sources})
        for use in uses:
            use.put(tx, now=True)
        tx.commit()


def _rested(state: str) -> str:
    return state if state in (FAILED, FINISHED) else STOPPED


def with_last_known(progress: AppProgress, store: Store) -> AppProgress:
    """The statistics of a stopped app, completed by those that were stored when it stopped."""
    found = store.get(LAST)
    if found is None:
        return progress
    tables = tuple(replace(t, state=found["tables"].get(t.name.lower(), t.state)) for t in progress.tables)
    flows, sources = _read(FlowProgress, found["flows"]), _read(SourceProgress, found["sources"])
    statements = tuple(line for entry in store.items(ENGINES).values() for line in statement_lines(entry))
    return replace(progress, tables=tables, flows=flows, sources=sources, statements=statements)


def _read(kind: Callable[..., Figures], entries: list[dict[str, Any]]) -> tuple[Figures, ...]:
    """The stored statistics; those that another version wrote with other columns are left out."""
    found = []
    for entry in entries:
        try:
            found.append(kind(**entry))
        except TypeError:
            continue
    return tuple(found)


def progress_of(
    context: Context, state: str, seconds: float, flows: Sequence[Flow], loaders: Sequence[Loader]
) -> AppProgress:
    """The statistics for SHOW, the terminal and `--json`; callable from any thread."""
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
        statements=tuple(line for flow in flows for line in statement_lines(flow.commits.use.as_json())),
        store=context.store.stats(),
        memory=MemoryUse(resident_bytes(os.getpid()), java_memory()),
    )


def _table(context: Context, table: Table, loader: Loader | None) -> TableProgress:
    stats, load = table.stats(), loader.load_progress() if loader is not None else None
    state = context.table_states.get(table.name.lower(), "ready")
    is_looked_up = find("backend", table.spec.backend).capabilities.looked_up
    return TableProgress(
        table.name,
        state,
        None if is_looked_up else stats.rows,
        stats.version,
        table.spec.backend,
        ", ".join(without_identity(table.schema).key),
        _loaded(state, load),
        stats.updated_at,
        # For a table in a database of its own, the size there.
        stats.bytes_memory + stats.bytes_spilled or stats.bytes_disk,
        load,
    )


def _waiting(context: Context, table: TablePlan) -> TableProgress:
    """A table that cannot be created yet, because its columns depend on a source that is empty or missing."""
    state = context.table_states.get(table.name.lower(), MISSING)
    return TableProgress(table.name, state, 0, 0, table.spec.backend, ", ".join(table.spec.schema.key), "", None, 0)


def _loaded(state: str, load: LoadProgress | None) -> str:
    if load is None:
        return ""
    return str(load) if state == LOADING else load.share


def _flow(flow: Flow) -> FlowProgress:
    status = flow.reader.status() if flow.reader is not None else SourceStatus()
    # A flow that waits for a broker or its source reports the reason, or its idleness would be unexplained.
    away = flow.interruption.error if flow.state == RUNNING else None
    arrow, spark = (flow.commits.use.batches[engine] for engine in (Engine.ARROW, Engine.SPARK))
    error = flow.error or away or (flow.opening.error if flow.opening.is_pending else None)
    watermark = flow.commits.entry.watermark
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
        arrow.batches,
        arrow.rows,
        arrow.batch_ms,
        spark.batches,
        spark.rows,
        spark.batch_ms,
        flow.meter.rate(FIVE_MINUTES_S),
        flow.meter.bad,
        flow.meter.updated_at,
        _seconds(status.lag_s),
        None if watermark is None else watermark / 1_000_000,
        {str(engine): found.read() for engine, found in flow.commits.use.durations.items()},
        flow.plan.id,
        flow.commits.use.outside,
    )


def _sources(flows: Sequence[Flow], loaders: Sequence[Loader]) -> list[SourceProgress]:
    """One entry per source; several flows and loads may read the same one."""
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
        status.log_unread,
        status.log_kept,
        source.id,
    )


def _status(user: Flow | Loader) -> SourceStatus:
    if isinstance(user, Loader):
        status = user.status()
    elif user.reader is not None:
        status = user.reader.status()
    else:
        return user.opening.status()
    if user.source.columns is None and status.state == READY:
        # The source is empty: its columns are discovered when its first records arrive.
        status = replace(status, state=WAITING)
    if isinstance(user, Loader):
        return status
    return user.interruption.shown(replace(status, retries=status.retries + user.opening.retries))


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
                sink.id,
            )


def _seconds(value: float | None) -> float | None:
    return None if value is None else round(value, 3)
