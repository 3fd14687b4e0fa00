"""What was last known of an app's flows, sources and tables, for whoever asks when it is stopped."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, replace
from typing import Any, TypeVar

from millpond.contracts.table import Store
from millpond.runtime.figures.progress import (
    FAILED,
    FINISHED,
    STALE,
    STOPPED,
    AppProgress,
    FlowProgress,
    SourceProgress,
)
from millpond.runtime.keeping.ledger import LAST

Figures = TypeVar("Figures")


def remember(store: Store, progress: AppProgress) -> None:
    """Called when the app has started, so that something is known after a crash, and when it has stopped."""
    states = {t.name.lower(): t.state for t in progress.tables if t.state in (FAILED, STALE)}
    flows = [asdict(replace(f, state=_rested(f.state), rows_per_s=0.0, lag=None)) for f in progress.flows]
    sources = [asdict(replace(s, state=_rested(s.state), lag=None)) for s in progress.sources]
    with store.begin() as tx:
        tx.put(LAST, {"tables": states, "flows": flows, "sources": sources})
        tx.commit()


def _rested(state: str) -> str:
    return state if state in (FAILED, FINISHED) else STOPPED


def with_last_known(progress: AppProgress, store: Store) -> AppProgress:
    """The figures of a stopped app, with what it was when it stopped."""
    found = store.get(LAST)
    if found is None:
        return progress
    tables = tuple(replace(t, state=found["tables"].get(t.name.lower(), t.state)) for t in progress.tables)
    flows, sources = _read(FlowProgress, found["flows"]), _read(SourceProgress, found["sources"])
    return replace(progress, tables=tables, flows=flows, sources=sources)


def _read(kind: Callable[..., Figures], entries: list[dict[str, Any]]) -> tuple[Figures, ...]:
    """Figures that another version wrote may have other columns: those are not told."""
    found = []
    for entry in entries:
        try:
            found.append(kind(**entry))
        except TypeError:
            continue
    return tuple(found)
