"""OpenTelemetry traces: a span for each batch, if the extra `millpond[otel]` is installed."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any

from millpond.errors import MillpondError

NAME = "millpond"


@cache
def _tracer() -> Any:
    """The tracer of the process; None without OpenTelemetry."""
    try:
        from opentelemetry import trace
    except ImportError:
        return None
    return trace.get_tracer(NAME)


@contextmanager
def batch_span(app: str, flow: str, batch: int) -> Iterator[None]:
    """Inside, a batch is processed. A failure is recorded by its code, because messages may quote values."""
    tracer = _tracer()
    if tracer is None:
        yield
        return
    attributes = {"millpond.app": app, "millpond.flow": flow, "millpond.batch": batch}
    with tracer.start_as_current_span(
        "millpond.batch", attributes=attributes, record_exception=False, set_status_on_exception=False
    ) as span:
        try:
            yield
        except Exception as error:
            from opentelemetry.trace import StatusCode

            code = error.code if isinstance(error, MillpondError) else type(error).__name__
            span.set_attribute("millpond.error", code)
            span.set_status(StatusCode.ERROR, code)
            raise
