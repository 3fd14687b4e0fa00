"""Topics in Debezium's envelope: keyed tables follow creates, updates, deletes and tombstones."""

import json
from collections.abc import Callable
from typing import Any

import pytest

from millpond.kafka.debezium import envelope_of, fields_of, payload_of


def change(op: str, before: Any = None, after: Any = None) -> dict[str, Any]:
    return {"before": before, "after": after, "source": {"table": "users"}, "op": op, "ts_ms": 1700000000000}


def with_schema(envelope: dict[str, Any], *fields: dict[str, Any]) -> dict[str, Any]:
    rows = [{"type": "struct", "fields": list(fields), "optional": True, "field": f} for f in ("before", "after")]
    return {"schema": {"type": "struct", "fields": rows}, "payload": envelope}


def test_numbers_stay_as_they_are() -> None:
    text = b'{"op": "c", "after": {"a": 1.10, "b": 12345678901234567890.123, "c": {"x": [1e400]}}, "before": null}'
    assert envelope_of(text).row == '{"a": 1.10, "b": 12345678901234567890.123, "c": {"x": [1e400]}}'


def test_a_schema_gives_dates_times_and_decimals_their_meaning() -> None:
    fields = (
        {"field": "d", "type": "int32", "name": "io.debezium.time.Date"},
        {"field": "t", "type": "int64", "name": "io.debezium.time.MicroTimestamp"},
        {"field": "m", "type": "int64", "name": "io.debezium.time.Timestamp"},
        {"field": "n", "type": "bytes", "name": "org.apache.kafka.connect.data.Decimal", "parameters": {"scale": "2"}},
        {"field": "v", "type": "struct", "name": "io.debezium.data.VariableScaleDecimal"},
        {"field": "x", "type": "int32"},
    )
    row = {
        "d": 19723,
        "t": 1704067200123456,
        "m": 1704067200123,
        "n": "AMg=",
        "v": {"scale": 1, "value": "Dw=="},
        "x": 1,
    }
    found = envelope_of(json.dumps(with_schema(change("u", None, row), *fields)).encode())
    assert found.operation == "update"
    assert json.loads(found.row or "") == {
        "d": "2024-01-01",
        "t": "2024-01-01T00:00:00.123456Z",
        "m": "2024-01-01T00:00:00.123000Z",
        "n": 2.0,
        "v": 1.5,
        "x": 1,
    }


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (b"[1]", "not a JSON object"),
        (b'{"a" 1}', "not a JSON object"),
        (b'{"n": 1}', "no 'op'"),
        (b'{"op": "t"}', "operation 't'"),
        (b'{"op": "c", "after": null}', "no 'after'"),
        (b"\xff", "utf-8"),
    ],
)
def test_what_is_no_envelope_has_a_reason(text: bytes, reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        envelope_of(text)


def test_keys_have_a_payload_or_not() -> None:
    assert payload_of(b'{"schema": {}, "payload": {"id": 1}}') == '{"id": 1}'
    assert payload_of(b'{"id": 1}') == '{"id": 1}'
    assert fields_of('{"a\\"b": "}", "c": null}') == {'a"b': '"}"', "c": "null"}


@pytest.mark.spark
@pytest.mark.parametrize("wrap", [lambda envelope: envelope, with_schema])
def test_a_keyed_table_follows_creates_updates_deletes_and_tombstones(
    topic: Callable[..., Any], run: Callable[..., Any], wrap: Callable[[dict[str, Any]], dict[str, Any]]
) -> None:
    users = topic()

    def send(*changes: tuple[int, dict[str, Any] | None]) -> None:
        users.send(*((json.dumps({"id": key}), None if found is None else wrap(found)) for key, found in changes))

    ann, bo = {"id": 1, "name": "Ann"}, {"id": 2, "name": "Bo"}
    send((1, change("r", None, ann)), (2, change("c", None, bo)), (3, change("c", None, {"id": 3, "name": "Cy"})))
    sql = f"""
        CREATE TABLE users PRIMARY KEY (id) AS SELECT id, name FROM {users.uri} WITH ('format' = 'debezium');
        CREATE STREAM changes (id INT, name STRING) FROM {users.uri} WITH ('format' = 'debezium');
        CREATE TABLE log (id INT, name STRING, op STRING, was STRING, n BIGINT);
        INSERT INTO log SELECT id, name, _op, _before.name, _offset FROM changes;
    """
    ask = "SELECT id, name FROM users ORDER BY id"
    assert [row["id"] for row in run(sql, ask)] == [1, 2, 3]
    send(
        (2, change("u", bo, {"id": 2, "name": "Bob"})),
        (1, change("d", ann)),
        (1, None),
        (3, change("d", {"id": 3, "name": "Cy"})),
    )
    users.send((json.dumps({"id": 9}), {"op": "?"}))
    assert run(sql, ask) == [{"id": 2, "name": "Bob"}]
    found = run(sql, "SELECT id, name, op, was FROM log ORDER BY n")
    assert [tuple(row.values()) for row in found] == [
        (1, "Ann", "snapshot", None),
        (2, "Bo", "insert", None),
        (3, "Cy", "insert", None),
        (2, "Bob", "update", "Bo"),
        (1, "Ann", "delete", "Ann"),
        (3, "Cy", "delete", "Cy"),
    ]
    (letters,) = run(sql, "SELECT count(*) AS n, max(reason) AS why FROM dead_letters")
    assert letters["n"] == 2
    assert "the operation '?'" in letters["why"]
