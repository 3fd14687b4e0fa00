"""An app's figures at this moment, collected from its tables, flows and sources."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from millpond.contracts.source import SourceStatus, without_identity
from millpond.contracts.table import Table
from millpond.plan.model import SourcePlan, TablePlan
from millpond.runtime.context import Context
from millpond.runtime.flow import Flow
from millpond.runtime.load import Loader
from millpond.runtime.progress import MISSING, AppProgress, FlowProgress, SourceProgress, TableProgress


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
    )


def _table(context: Context, table: Table, loader: Loader | None) -> TableProgress:
    stats = table.stats()
    return TableProgress(
        table.name,
        context.table_states.get(table.name.lower(), "ready"),
        stats.rows,
        stats.version,
        table.spec.backend,
        ", ".join(without_identity(table.schema).key),
        _loaded(loader),
        stats.updated_at,
        # Of a table that lives elsewhere, what it takes there.
        stats.bytes_memory + stats.bytes_spilled or stats.bytes_disk,
    )


def _waiting(context: Context, table: TablePlan) -> TableProgress:
    """A table that cannot be made yet: its columns hang on a source that is empty or not there."""
    state = context.table_states.get(table.name.lower(), MISSING)
    return TableProgress(table.name, state, 0, 0, table.spec.backend, ", ".join(table.spec.schema.key), "", None, 0)


def _loaded(loader: Loader | None) -> str:
    if loader is None or loader.reader is None:
        return ""
    progress = loader.reader.progress()
    return f"{progress.done}" if progress.total is None else f"{progress.done} of {progress.total}"


def _flow(flow: Flow) -> FlowProgress:
    lag = flow.reader.status().lag if flow.reader is not None else None
    return FlowProgress(
        flow.plan.name,
        flow.source.name,
        flow.state,
        len(flow.plan.steps),
        flow.meter.batches,
        flow.meter.rows,
        round(flow.meter.rate(), 1),
        round(flow.meter.batch_ms, 1),
        lag,
        f"{flow.error.code} {flow.error.problems[0].message}" if flow.error else "",
    )


def _sources(flows: Sequence[Flow], loaders: Sequence[Loader]) -> list[SourceProgress]:
    found: dict[str, SourceProgress] = {}
    users: list[Flow | Loader] = [*flows, *loaders]
    for user in users:
        status = user.reader.status() if user.reader is not None else user.opening.status()
        status = replace(status, retries=status.retries + user.opening.retries) if user.reader is not None else status
        found.setdefault(user.source.id, _source(user.source, status, user.meter.rows))
    return list(found.values())


def _source(source: SourcePlan, status: SourceStatus, rows: int) -> SourceProgress:
    return SourceProgress(
        source.name,
        source.type,
        status.state,
        status.health,
        max(rows, status.rows),
        None,
        status.lag,
        status.retries,
        status.bad_records,
    )
