"""The statistics of the last fifteen minutes, for the charts of the page."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from starlette.responses import Response

from millpond.engine.progress import AppProgress
from millpond.serve.endpoints import Call, Endpoint, Served, answer_json

INTERVAL_S = 2.0
KEPT_S = 900.0


@dataclass(frozen=True)
class Sample:
    """Totals at one moment, by the ids of flows; the duration of the last batch is in ms, the lag in records."""

    at: float
    rows: dict[str, int]
    batches: dict[str, int]
    batch_ms: dict[str, float]
    lag: dict[str, int | None]

    @classmethod
    def of(cls, progress: AppProgress) -> Sample:
        flows = progress.flows
        return cls(
            round(time.time(), 2),
            {flow.id: flow.rows for flow in flows},
            {flow.id: flow.batches for flow in flows},
            {flow.id: flow.batch_ms for flow in flows},
            {flow.id: flow.lag for flow in flows},
        )


async def record(served: Served) -> None:
    """Take samples until the server is stopped; runs in the server's loop."""
    while not served.stopping.is_set():
        served.samples.append(Sample.of(await served.in_thread(served.app.progress)))
        while len(served.samples) > KEPT_S / INTERVAL_S:
            served.samples.popleft()
        with suppress(TimeoutError):
            await asyncio.wait_for(served.stopping.wait(), INTERVAL_S)


async def history(call: Call) -> Response:
    return answer_json(as_json(list(call.served.samples)))


def as_json(samples: Sequence[Sample]) -> dict[str, Any]:
    """The samples by flow and value."""
    flows = dict.fromkeys(id_ for sample in samples for id_ in sample.rows)
    return {
        "interval_s": INTERVAL_S,
        "at": [sample.at for sample in samples],
        "flows": {
            id_: {
                "rows": [sample.rows.get(id_) for sample in samples],
                "batch_ms": list(_batch_ms(samples, id_)),
                "lag": [sample.lag.get(id_) for sample in samples],
            }
            for id_ in flows
        },
    }


def _batch_ms(samples: Sequence[Sample], flow: str) -> Iterator[float | None]:
    """The duration of the last batch at each sample; 0 if there was none since the previous sample, and in the first
    one, where the last batch may be an old one."""
    before: int | None = None
    for sample in samples:
        batches = sample.batches.get(flow)
        yield 0.0 if batches is not None and before in (None, batches) else sample.batch_ms.get(flow)
        before = batches


ENDPOINTS = (
    Endpoint("GET", "/api/history", "Rows, batch times and lag of each flow over the last fifteen minutes.", history),
)
