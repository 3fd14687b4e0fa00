"""Traces of batches."""

from __future__ import annotations

import pytest
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

import millpond as mp
from millpond.engine import tracing
from millpond.errors import FlowError

TEXT = """
CREATE STREAM orders (id INT, parts INT) FROM memory://orders;
CREATE TABLE shares (id INT PRIMARY KEY, share DOUBLE);
UPSERT INTO shares SELECT id, 1.0 FROM orders;
"""


@pytest.fixture
def spans(monkeypatch: pytest.MonkeyPatch) -> InMemorySpanExporter:
    exporter = InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    tracer = provider.get_tracer("test")
    monkeypatch.setattr(tracing, "_tracer", lambda: tracer)
    return exporter


def test_a_batch_is_a_span(spans: InMemorySpanExporter) -> None:
    app = mp.App(sql=TEXT)
    app.start()
    try:
        app.feed("memory://orders").send([{"id": 1, "parts": 2}])
        app.drain()
    finally:
        app.stop()
    found = [span for span in spans.get_finished_spans() if span.name == "millpond.batch"]
    assert found
    assert {dict(span.attributes or {})["millpond.flow"] for span in found} == {"orders"}


def test_a_failure_is_recorded_by_its_code_alone(spans: InMemorySpanExporter) -> None:
    with pytest.raises(FlowError), tracing.batch_span("app", "orders", 7):
        raise FlowError("MP701", "The value 'secret' is wrong.")
    (span,) = spans.get_finished_spans()
    assert dict(span.attributes or {})["millpond.error"] == "MP701"
    assert "secret" not in span.to_json()


def test_without_opentelemetry_nothing_is_traced(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tracing, "_tracer", lambda: None)
    with tracing.batch_span("app", "orders", 1):
        pass
