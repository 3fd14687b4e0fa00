"""How messages are written: JSON, CSV, text, bytes and Avro, in values and keys, read and written."""

import io
import json
from collections.abc import Callable, Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import fastavro
import pytest
from tests.kafka.registry import Registry

import millpond as mp

pytestmark = pytest.mark.spark

ORDER = {
    "type": "record",
    "name": "order",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "price", "type": {"type": "bytes", "logicalType": "decimal", "precision": 12, "scale": 2}},
        {"name": "note", "type": ["null", "string"]},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-micros"}},
    ],
}
KEY = {"type": "record", "name": "k", "fields": [{"name": "a", "type": "long"}, {"name": "b", "type": "string"}]}
ROW = {"id": 1, "price": Decimal("10.50"), "note": None, "at": 1_767_323_045_000_000}


@pytest.fixture
def registry() -> Iterator[Registry]:
    made = Registry()
    yield made
    made.stop()


def avro(schema: Any, value: Any, number: int | None = None) -> bytes:
    out = io.BytesIO()
    out.write(b"" if number is None else b"\x00" + number.to_bytes(4, "big"))
    fastavro.schemaless_writer(out, fastavro.parse_schema(schema), value)
    return out.getvalue()


def unpacked(value: bytes, registry: Registry) -> Any:
    schema = json.loads(registry.schemas[int.from_bytes(value[1:5], "big") - 1])
    return fastavro.schemaless_reader(io.BytesIO(value[5:]), fastavro.parse_schema(schema), None)


def test_avro_is_read_and_written_by_text_file_and_registry(
    topic: Callable[..., Any], spark: Any, tmp_path: Path, registry: Registry
) -> None:
    texts, files, wired, out = topic(), topic(), topic(), topic()
    texts.send(avro(ORDER, ROW), b"rubbish")
    files.send(avro(ORDER, ROW | {"note": "x"}))
    number, key = registry.add(json.dumps(ORDER)), registry.add(json.dumps(KEY))
    wired.send((avro(KEY, {"a": 7, "b": "x"}, key), avro(ORDER, ROW, number)))
    wired.send((avro(KEY, {"a": 8, "b": "y"}, key), avro(ORDER, ROW, number)))
    wired.send((avro(KEY, {"a": 7, "b": "x"}, key), None), b"\x00\x00\x00\x00\x63x")
    (tmp_path / "order.avsc").write_text(json.dumps(ORDER))
    (tmp_path / "app.sql").write_text(f"""
        CREATE STREAM texts FROM {texts.uri} WITH ('format' = 'avro', 'avro.schema' = '{json.dumps(ORDER)}');
        CREATE STREAM files FROM {files.uri} WITH ('format' = 'avro', 'avro.schema.file' = 'order.avsc');
        CREATE TABLE one (id BIGINT, price DECIMAL(12,2), note STRING, at TIMESTAMP);
        INSERT INTO one SELECT * FROM texts;
        INSERT INTO one SELECT * FROM files;
        CREATE TABLE wired AS SELECT * FROM {wired.uri} WITH
          ('format' = 'avro', 'schema.registry.url' = '{registry.url}', 'key' = 'a,b', 'key.format' = 'avro');
        INSERT INTO {out.uri} WITH ('format' = 'avro', 'schema.registry.url' = '{registry.url}', 'key' = 'id',
          'key.format' = 'avro') SELECT id, price, at, array(note, 'y') AS notes FROM files;
    """)
    app = mp.App(tmp_path / "app.sql", spark=spark)
    app.run_once()
    rows = app.query("SELECT id, price, note, unix_micros(at) AS at FROM one ORDER BY note NULLS FIRST").rows()
    assert rows == [ROW, ROW | {"note": "x"}]
    ask = "SELECT a, b, id, price, CAST(at AS STRING) AS at FROM wired"
    assert app.query(ask).rows() == [
        {"a": 8, "b": "y", "id": 1, "price": Decimal("10.50"), "at": "2026-01-02 03:04:05"}
    ]
    letters = app.query("SELECT reason, raw, partition, position FROM dead_letters ORDER BY reason").rows()
    assert [row["reason"] for row in letters] == [
        "the message value: not Avro of this schema: EOFError",
        "the message value: the schema registry knows no schema 99 (404)",
    ]
    assert [(bytes(row["raw"])[:7], row["partition"], row["position"]) for row in letters] == [
        (b"rubbish", "0", "1"),
        (b"\x00\x00\x00\x00\x63x", "0", "3"),
    ]
    app.stop()
    (message,) = out.read()
    found = unpacked(message.value(), registry)
    assert (found["id"], found["price"], found["notes"]) == (1, Decimal("10.50"), ["x", "y"])
    assert found["at"].isoformat() == "2026-01-02T03:04:05+00:00"
    assert unpacked(message.key(), registry) == 1
    assert set(registry.subjects) == {f"{out.name}-key", f"{out.name}-value"}
