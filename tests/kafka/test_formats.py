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
    texts.send(avro(ORDER, ROW), b"rubbish", avro(ORDER, ROW) + b"xx")
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
        "the message value: not valid for the Avro schema: 2 unexpected bytes at the end",
        "the message value: not valid for the Avro schema: it ends too early",
        "the message value: the schema registry has no schema 99 (404)",
    ]
    assert [(bytes(row["raw"])[:7], row["partition"], row["position"]) for row in letters[1:]] == [
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


def test_csv_text_and_bytes_with_keys_headers_and_places(topic: Callable[..., Any], run: Callable[..., Any]) -> None:
    rows, texts, raws, keyed, out, bare = topic(), topic(), topic(), topic(), topic(), topic()
    rows.send(b'1,"a,b",2.50', b"2,,", b"3,too,many,fields", ("k", b"x,y,1"), headers={"trace": b"t1"})
    texts.send(b"12", b"not a number", b"13")
    raws.send(b"\xff\x00")
    keyed.send(('{"a": 1, "b": "x"}', {"n": 1}), ('{"a": 2, "b": "y"}', {"n": 2}), ('{"b": "x", "a": 1}', None))
    found = run(
        f"""
        CREATE STREAM lines (id INT, name STRING, price DECIMAL(10,2)) FROM {rows.uri} WITH ('format' = 'csv');
        CREATE STREAM numbers (n INT) FROM {texts.uri} WITH ('format' = 'text');
        CREATE STREAM raws FROM {raws.uri} WITH ('format' = 'bytes');
        CREATE TABLE seen (id INT, name STRING, price DECIMAL(10,2), place STRING, trace STRING);
        INSERT INTO seen SELECT id, name, price, concat(_source, '/', _partition, '/', _offset),
          CAST(_headers['trace'] AS STRING) FROM lines WHERE _timestamp > TIMESTAMP '2026-01-01 00:00:00';
        INSERT INTO seen SELECT n, NULL, NULL, CAST(_key AS STRING), NULL FROM numbers;
        INSERT INTO seen SELECT 99, hex(value), NULL, NULL, NULL FROM raws;
        CREATE TABLE pairs AS SELECT * FROM {keyed.uri} WITH ('key' = 'a,b', 'key.format' = 'json');
        INSERT INTO {out.uri} WITH ('format' = 'csv', 'headers' = 'trace', 'key' = 'id,name')
          SELECT id, name, CAST(_headers['trace'] AS STRING) AS trace FROM lines WHERE id = 1;
        INSERT INTO {bare.uri} WITH ('format' = 'raw', 'key' = 'id') SELECT id, name FROM lines WHERE id = 1;
        """,
        "SELECT id, name, CAST(price AS STRING) AS price, place, trace FROM seen UNION ALL "
        "SELECT a, b, CAST(n AS STRING), NULL, NULL FROM pairs ORDER BY id, name",
    )
    assert [tuple(row.values()) for row in found] == [
        (1, "a,b", "2.50", f"{rows.name}/0/0", "t1"),
        (2, None, None, f"{rows.name}/0/1", "t1"),
        (2, "y", "2", None, None),
        (12, None, None, None, None),
        (13, None, None, None, None),
        (99, "FF00", None, None, None),
    ]
    (message,) = out.read()
    assert (message.value(), message.key()) == (b'1,"a,b"', b'{"id":1,"name":"a,b"}')
    assert dict(message.headers())["trace"] == b"t1"
    assert [(message.key(), message.value()) for message in bare.read()] == [(b"1", b"a,b")]


def test_numbers_in_a_json_key_keep_their_digits(topic: Callable[..., Any], run: Callable[..., Any]) -> None:
    keyed = topic()
    keyed.send(
        ('{"t": 1.10, "d": 12345678901234567890.123456789012345678}', {"n": 1}), ('{"t": "x", "d": -0.50}', {"n": 2})
    )
    found = run(
        f"""
        CREATE STREAM s (t STRING, d DECIMAL(38,18), n INT) FROM {keyed.uri}
          WITH ('key' = 't,d', 'key.format' = 'json');
        CREATE TABLE seen (t STRING PRIMARY KEY, d STRING);
        INSERT INTO seen SELECT t, CAST(d AS STRING) FROM s;
        """,
        "SELECT * FROM seen ORDER BY t",
    )
    assert found == [
        {"t": "1.10", "d": "12345678901234567890.123456789012345678"},
        {"t": "x", "d": "-0.500000000000000000"},
    ]


def test_topics_by_list_and_pattern_start_at_the_given_offsets(
    topic: Callable[..., Any], run: Callable[..., Any]
) -> None:
    first, second = topic(2), topic()
    first.send({"n": 1}, {"n": 2}, {"n": 3}, partition=0)
    first.send({"n": 4}, partition=1)
    second.send({"n": 5})
    both = f"'kafka://{first.brokers}/{first.name},{second.name}'"
    pattern = f"'kafka://{first.brokers}/({first.name}|{second.name})x*'"
    offsets = f'{{"{first.name}": {{"0": 2, "1": -1}}}}'
    found = run(
        f"""
        CREATE TABLE seen (what STRING, n INT);
        CREATE STREAM both (n INT) FROM {both} WITH ('starting.offsets' = '{offsets}', 'max.rows.per.batch' = '1');
        CREATE STREAM matching (n INT) FROM {pattern} WITH ('kafka.client.id' = 'x', 'group.id.prefix' = 'mp');
        INSERT INTO seen SELECT 'both', n FROM both;
        INSERT INTO seen SELECT 'matching', n FROM matching;
        """,
        "SELECT what, n FROM seen ORDER BY what, n",
    )
    assert [tuple(row.values()) for row in found] == [("both", 3), ("both", 5)] + [("matching", n) for n in range(1, 6)]
