"""`GET /metrics`: the statistics of an app in Prometheus's format.

Metrics are declared in one list, from which the documentation is generated. They are read from the same statistics as
`/api/stats`, at the time of the request; nothing is counted twice.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest
from starlette.responses import Response

from millpond import __version__
from millpond.engine.dead_letters import NAME as DEAD_LETTERS
from millpond.engine.progress import AppProgress, FlowProgress, SinkProgress, SourceProgress
from millpond.histogram import Durations
from millpond.serve.endpoints import Call, Endpoint

GAUGE, COUNTER, HISTOGRAM = "gauge", "counter", "histogram"
# The values of `state` labels; each object has one of them.
TABLE_STATES = ("missing", "retrying", "loading", "ready", "stale", "failed")
FLOW_STATES = ("waiting", "retrying", "running", "finished", "stopped", "failed")
SOURCE_STATES = ("ready", "waiting", "retrying", "missing", "loading", "stopped", "failed", "running")

# The labels of a sample and its value; None is left out.
Sample = tuple[tuple[str, ...], Any]
Named = TypeVar("Named", FlowProgress, SourceProgress, SinkProgress)


@dataclass(frozen=True)
class Declared:
    """One metric, whose samples are read from the statistics of a moment."""

    name: str
    kind: str
    help: str
    labels: tuple[str, ...]
    samples: Callable[[AppProgress], Iterable[Sample]]


def _of(collection: str, label: str, field: str) -> Callable[[AppProgress], Iterator[Sample]]:
    """One value for each table, flow, source or sink."""

    def samples(progress: AppProgress) -> Iterator[Sample]:
        for item in getattr(progress, collection):
            yield (getattr(item, label),), getattr(item, field)

    return samples


def _states(collection: str, known: tuple[str, ...]) -> Callable[[AppProgress], Iterator[Sample]]:
    """1 for the current state of each, 0 for the others, so that a change is visible in both."""

    def samples(progress: AppProgress) -> Iterator[Sample]:
        for item in getattr(progress, collection):
            for state in dict.fromkeys((*known, item.state)):
                yield (item.name, state), int(item.state == state)

    return samples


def _since(collection: str) -> Callable[[AppProgress], Iterator[Sample]]:
    def samples(progress: AppProgress) -> Iterator[Sample]:
        now = time.time()
        for item in getattr(progress, collection):
            yield (item.name,), None if item.updated_at is None else max(0.0, now - item.updated_at)

    return samples


def _by_engine(field: str) -> Callable[[AppProgress], Iterator[Sample]]:
    def samples(progress: AppProgress) -> Iterator[Sample]:
        for flow in progress.flows:
            for engine in ("arrow", "spark"):
                yield (flow.name, engine), getattr(flow, f"{engine}_{field}")

    return samples


def _batch_seconds(progress: AppProgress) -> Iterator[Sample]:
    for flow in progress.flows:
        for engine, durations in flow.durations.items():
            yield (flow.name, engine), durations


def _watermark_delay(progress: AppProgress) -> Iterator[Sample]:
    for flow in progress.flows:
        yield (flow.name,), None if flow.watermark is None else time.time() - flow.watermark


def _load_share(progress: AppProgress) -> Iterator[Sample]:
    for table in progress.tables:
        load = table.load
        yield (table.name,), load.done / load.total if load is not None and load.total else None


def _dead_letters(progress: AppProgress) -> Iterator[Sample]:
    yield (), next((t.rows for t in progress.tables if t.name == DEAD_LETTERS), None)


_TABLE, _FLOW, _SOURCE, _SINK = ("table",), ("flow",), ("source",), ("sink",)

METRICS: tuple[Declared, ...] = (
    Declared(
        "millpond_info",
        GAUGE,
        "1, with the app and its version.",
        ("app", "version"),
        lambda p: [((p.name, __version__), 1)],
    ),
    Declared("millpond_up_seconds", GAUGE, "Seconds since the app was started.", (), lambda p: [((), p.seconds)]),
    Declared(
        "millpond_failures", GAUGE, "Failures that have not been repaired.", (), lambda p: [((), len(p.failures))]
    ),
    Declared("millpond_warnings", GAUGE, "Warnings of this run.", (), lambda p: [((), len(p.problems))]),
    Declared("millpond_dead_letters", GAUGE, "Rows in dead_letters.", (), _dead_letters),
    Declared("millpond_table_rows", GAUGE, "Rows of a table.", _TABLE, _of("tables", "name", "rows")),
    Declared("millpond_table_bytes", GAUGE, "Bytes of a table.", _TABLE, _of("tables", "name", "bytes")),
    Declared(
        "millpond_table_version",
        GAUGE,
        "The version of a table.",
        _TABLE,
        _of("tables", "name", "version"),
    ),
    Declared(
        "millpond_table_state",
        GAUGE,
        "1 for the state of a table.",
        ("table", "state"),
        _states("tables", TABLE_STATES),
    ),
    Declared(
        "millpond_table_seconds_since_change",
        GAUGE,
        "Seconds since a table was last changed.",
        _TABLE,
        _since("tables"),
    ),
    Declared("millpond_table_loaded_ratio", GAUGE, "How much of a table is loaded, 0 to 1.", _TABLE, _load_share),
    Declared(
        "millpond_flow_state", GAUGE, "1 for the state of a flow.", ("flow", "state"), _states("flows", FLOW_STATES)
    ),
    Declared("millpond_flow_rows", COUNTER, "Records that a flow has processed.", _FLOW, _of("flows", "name", "rows")),
    Declared(
        "millpond_flow_rows_per_second", GAUGE, "The rate, over a minute.", _FLOW, _of("flows", "name", "rows_per_s")
    ),
    Declared(
        "millpond_flow_batches", COUNTER, "Batches of a flow by engine.", ("flow", "engine"), _by_engine("batches")
    ),
    Declared("millpond_flow_engine_rows", COUNTER, "Rows of those batches.", ("flow", "engine"), _by_engine("rows")),
    Declared("millpond_batch_seconds", HISTOGRAM, "Durations of batches.", ("flow", "engine"), _batch_seconds),
    Declared("millpond_flow_lag_records", GAUGE, "Records not processed yet.", _FLOW, _of("flows", "name", "lag")),
    Declared("millpond_flow_lag_seconds", GAUGE, "Age of the oldest of them.", _FLOW, _of("flows", "name", "lag_s")),
    Declared(
        "millpond_flow_bad_records", COUNTER, "Records that were rejected.", _FLOW, _of("flows", "name", "bad_records")
    ),
    Declared(
        "millpond_flow_outside_history",
        COUNTER,
        "Events whose time was before the history of a table.",
        _FLOW,
        _of("flows", "name", "outside_history"),
    ),
    Declared("millpond_flow_watermark_delay_seconds", GAUGE, "Seconds behind the clock.", _FLOW, _watermark_delay),
    Declared(
        "millpond_flow_seconds_since_batch", GAUGE, "Seconds since the last batch of a flow.", _FLOW, _since("flows")
    ),
    Declared(
        "millpond_source_state",
        GAUGE,
        "1 for the state of a source.",
        ("source", "state"),
        _states("sources", SOURCE_STATES),
    ),
    Declared(
        "millpond_source_healthy",
        GAUGE,
        "1 for a source that can be read, 0 for one that is disconnected or missing.",
        _SOURCE,
        lambda p: [((s.name,), int(s.health == "healthy")) for s in p.sources],
    ),
    Declared("millpond_source_rows", COUNTER, "Records read.", _SOURCE, _of("sources", "name", "rows")),
    Declared("millpond_source_bytes", COUNTER, "Bytes read.", _SOURCE, _of("sources", "name", "bytes")),
    Declared("millpond_source_lag_records", GAUGE, "Records not read yet.", _SOURCE, _of("sources", "name", "lag")),
    Declared(
        "millpond_source_lag_seconds", GAUGE, "Age of the oldest of them.", _SOURCE, _of("sources", "name", "lag_s")
    ),
    Declared(
        "millpond_source_log_unread_bytes",
        GAUGE,
        "Bytes of a database's log that change capture has not read yet.",
        _SOURCE,
        _of("sources", "name", "log_unread"),
    ),
    Declared(
        "millpond_source_log_kept_bytes",
        GAUGE,
        "Bytes of its log that a database keeps for a replication slot.",
        _SOURCE,
        _of("sources", "name", "log_kept"),
    ),
    Declared(
        "millpond_source_retries",
        COUNTER,
        "Attempts to reach a source again.",
        _SOURCE,
        _of("sources", "name", "retries"),
    ),
    Declared(
        "millpond_source_bad_records", COUNTER, "Records rejected.", _SOURCE, _of("sources", "name", "bad_records")
    ),
    Declared("millpond_sink_rows", COUNTER, "Rows written to a sink.", _SINK, _of("sinks", "name", "rows")),
    Declared("millpond_sink_batches", COUNTER, "Batches written to a sink.", _SINK, _of("sinks", "name", "batches")),
    Declared("millpond_commit_seconds", HISTOGRAM, "Durations of commits.", (), lambda p: [((), p.store.commits)]),
    Declared(
        "millpond_sync_seconds",
        HISTOGRAM,
        "Durations of writing and syncing the log record of a commit.",
        (),
        lambda p: [((), p.store.syncs)],
    ),
    Declared(
        "millpond_open_transactions", GAUGE, "Transactions open now.", (), lambda p: [((), p.store.open_transactions)]
    ),
    Declared(
        "millpond_memory_bytes",
        GAUGE,
        "Memory of the process and of its Java process.",
        ("process",),
        lambda p: [(("python",), p.memory.python), (("java",), p.memory.java)],
    ),
)


def families(progress: AppProgress) -> Iterator[Metric]:
    """Every metric with its samples."""
    named = replace(progress, flows=_distinct(progress.flows), sources=_distinct(progress.sources))
    named = replace(named, sinks=_distinct(progress.sinks))
    for declared in METRICS:
        samples = {labels: value for labels, value in declared.samples(named) if value is not None}
        yield _family(declared, samples)


def _distinct(items: tuple[Named, ...]) -> tuple[Named, ...]:
    """Two flows over unnamed streams, or two sources, may have the same name: the second and later ones get a
    number."""
    seen: Counter[str] = Counter()
    found = []
    for item in items:
        seen[item.name] += 1
        found.append(replace(item, name=f"{item.name} ({seen[item.name]})") if seen[item.name] > 1 else item)
    return tuple(found)


def _family(declared: Declared, samples: Mapping[tuple[str, ...], Any]) -> Metric:
    if declared.kind == HISTOGRAM:
        histogram = HistogramMetricFamily(declared.name, declared.help, labels=declared.labels)
        for labels, durations in samples.items():
            assert isinstance(durations, Durations)
            histogram.add_metric(labels, list(durations.cumulative()), durations.seconds)
        return histogram
    make = CounterMetricFamily if declared.kind == COUNTER else GaugeMetricFamily
    family = make(declared.name, declared.help, labels=declared.labels)
    for labels, value in samples.items():
        family.add_metric(labels, value)
    return family


class _Collector:
    """The collector of prometheus_client for one request."""

    def __init__(self, progress: AppProgress) -> None:
        self._progress = progress

    def collect(self) -> Iterator[Metric]:
        return families(self._progress)


def exposition(progress: AppProgress) -> bytes:
    """The metrics as text."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Collector(progress))
    return generate_latest(registry)


async def metrics(call: Call) -> Response:
    text = await call.served.in_thread(lambda: exposition(call.app.progress()))
    return Response(text, headers={"content-type": CONTENT_TYPE_LATEST})


ENDPOINTS = (
    Endpoint(
        "GET",
        "/metrics",
        "The statistics of the app, for Prometheus.",
        metrics,
        answers={"text/plain": "Prometheus's text format."},
    ),
)
