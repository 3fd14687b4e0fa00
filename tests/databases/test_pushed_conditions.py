"""Random conditions find the same rows on every server as in memory, whatever part of them the server evaluates."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from tests.databases.servers import Database
from tests.seeds import FRESH

import millpond as mp
from millpond.contracts.table import AggregateCall, Table, TableSpec
from millpond.errors import MillpondError
from millpond.schema import Column, Schema
from millpond.sql.parser import parse_expression
from millpond.tables.postgresql import PostgresTable
from millpond.tables.pushdown import pushed_part
from millpond.tables.store import open_store

SCHEMA = Schema.of(
    [
        Column("id", pa.int64(), False),
        Column("name", pa.string()),
        Column("n", pa.int32()),
        Column("m", pa.int64()),
        Column("price", pa.decimal128(12, 2)),
        Column("ratio", pa.float64()),
    ],
    ["id"],
)
# Collations differ in case, accents, spaces at the end and the order of letters; LIKE in its escapes.
TEXTS = (
    "",
    " ",
    "a",
    "A",
    "a ",
    "ä",
    "Ä",
    "ae",
    "b",
    "B",
    "z",
    "Z",
    "_",
    "%",
    "a%b",
    "a_b",
    "a\\b",
    "10",
    "9",
    "é",
    "ß",
)
WHOLE = (None, 0, 1, -1, 2, 7, 2**31 - 1, -(2**31))
LARGE = (None, 0, -1, 3, 2**53 + 1, 2**63 - 1, -(2**63))
PRICES = (None, Decimal("0.00"), Decimal("1.10"), Decimal("-0.01"), Decimal("9999999999.99"))
RATIOS = (None, 0.0, -0.0, 0.1, 1e300, -2.5)
WORDS = ("=", "<>", "<", "<=", ">", ">=")
PATTERNS = ("a%", "%b", "_", "a_", "%\\_%", "A%", "%", "", "ä", "a\\%b")


def rows() -> list[dict[str, Any]]:
    """Rows with every text, and the other values in turn."""
    values = [*TEXTS, None] * 3
    return [
        {
            "id": n,
            "name": name,
            "n": WHOLE[n % len(WHOLE)],
            "m": LARGE[n % len(LARGE)],
            "price": PRICES[n % len(PRICES)],
            "ratio": RATIOS[n % len(RATIOS)],
        }
        for n, name in enumerate(values)
    ]


def text(value: str) -> str:
    return "'" + value.replace("\\", "\\\\").replace("'", "\\'") + "'"


def comparison(chance: random.Random) -> str:
    word = chance.choice(WORDS)
    whole = [str(v) for v in WHOLE if v is not None]
    made = (
        lambda: f"name {word} {text(chance.choice(TEXTS))}",
        lambda: f"name IN ({', '.join(text(chance.choice(TEXTS)) for _ in range(3))})",
        lambda: f"name BETWEEN {text(chance.choice(TEXTS))} AND {text(chance.choice(TEXTS))}",
        lambda: f"name LIKE {text(chance.choice(PATTERNS))}",
        lambda: f"name IS {chance.choice(['', 'NOT '])}NULL",
        lambda: f"n {word} {chance.choice(whole)}",
        lambda: f"{chance.choice(whole)} {word} n",
        lambda: f"n IN ({', '.join(chance.choice(whole) for _ in range(3))})",
        lambda: f"n BETWEEN {chance.choice(whole)} AND {chance.choice(whole)}",
        lambda: f"m {word} {chance.choice(['0', '3', '9007199254740993', '9223372036854775807', '-1'])}",
        lambda: f"n / 2 {word} {chance.choice(['0', '0.5', '1'])}",
        lambda: f"n % 3 {word} {chance.choice(['0', '1', '-1'])}",
        lambda: f"price {word} {chance.choice(['0', '1.1', '1.10', '-0.01'])}",
        lambda: f"ratio {word} {chance.choice(['0', '0.1D', '1', '-2.5D'])}",
        lambda: f"n {word} m",
        lambda: f"name {word} upper(name)",
    )
    return chance.choice(made)()


def condition(chance: random.Random, depth: int = 3) -> str:
    if depth == 0 or chance.random() < 0.3:
        return comparison(chance)
    left, right = condition(chance, depth - 1), condition(chance, depth - 1)
    return chance.choice((f"({left} AND {right})", f"({left} OR {right})", f"NOT ({left})", f"({left}) AND {right}"))


def found(table: Table, asked: str) -> Any:
    try:
        return sorted(table.values("id", asked))
    except MillpondError as error:
        return error.code


VALUES: dict[str, dict[str, Any]] = {
    "postgresql": {"pool.size": 4, "pool.max.idle": 600_000_000},
    "mysql": {"pool.size": 4, "pool.max.idle": 600_000_000, "connect.timeout": 10_000_000, "ssl.mode": "prefer"},
    "mongodb": {},
}


_COUNTS = [AggregateCall("COUNT"), AggregateCall("COUNT", "name"), AggregateCall("MIN", "n"), AggregateCall("MAX", "m")]
CALLS = {
    "postgresql": [*_COUNTS, AggregateCall("SUM", "n")],
    "mysql": [*_COUNTS, AggregateCall("SUM", "n")],
    "mongodb": _COUNTS,
}


def aggregates(table: Table, asked: str, calls: Sequence[AggregateCall]) -> list[int | None]:
    """The same, from the rows."""
    made: dict[str, Callable[[list[Any]], Any]] = {
        "COUNT": len,
        "MIN": lambda v: min(v, default=None),
        "MAX": lambda v: max(v, default=None),
        "SUM": lambda v: sum(v) if v else None,
    }
    values = [[v for v in table.values(call.column or "id", asked) if v is not None] for call in calls]
    return [made[call.function](each) for call, each in zip(calls, values, strict=True)]


@pytest.mark.parametrize("kind", ["postgresql", "mysql", "mongodb"])
def test_conditions_find_the_same_rows_as_in_memory(request: pytest.FixtureRequest, tmp_path: Path, kind: str) -> None:
    database: Database = request.getfixturevalue(kind)
    store = open_store(tmp_path / "tables")
    here = store.create(TableSpec("here", SCHEMA))
    there = store.create(TableSpec("there", SCHEMA, kind, {"url": database.uri, **VALUES[kind]}))
    for table in (here, there):
        table.insert(rows())
    asked = [condition(random.Random(seed)) for seed in (*range(100), *range(FRESH, FRESH + 50))]
    wrong = [text for text in asked if found(there, text) != found(here, text)]
    pushed = [text for text in asked if pushed_part(parse_expression(text), SCHEMA, []) is not None]
    aggregated = [text for text in asked if there.aggregated(CALLS[kind], text) is not None]
    unlike = [text for text in aggregated if there.aggregated(CALLS[kind], text) != aggregates(here, text, CALLS[kind])]
    store.close()
    assert not wrong
    assert not unlike
    # A server has evaluated something in many of them.
    assert len(pushed) > 20
    assert len(aggregated) > 10


def test_aggregates_of_a_query_are_those_of_the_server(
    postgresql: Database, run: Callable[..., mp.App], monkeypatch: pytest.MonkeyPatch
) -> None:
    app = run(
        f"CREATE TABLE t (id INT PRIMARY KEY, n INT, m BIGINT, name STRING) WITH ('backend' = 'postgresql', "
        f"'url' = '{postgresql.uri}');",
        "INSERT INTO t VALUES (1, 1, 9223372036854775807, 'a'), (2, NULL, 1, 'b'), (3, 7, 0, 'A');",
        once=True,
    )
    queries = {
        "SELECT COUNT(*) AS a, COUNT(n) AS b, MIN(n) AS c, MAX(t.m) + 1 AS d, SUM(n) AS e FROM t WHERE m < 2": {
            "a": 2, "b": 1, "c": 7, "d": 2, "e": 7
        },
        "SELECT COUNT(*) AS a, SUM(n) AS b FROM t AS x WHERE x.name = 'none'": {"a": 0, "b": None},
        "SELECT MAX(n) AS a FROM t HAVING COUNT(*) > 2": {"a": 7},
    }  # fmt: skip
    remote = PostgresTable
    with monkeypatch.context() as patched:
        for name in ("scan", "narrowed"):
            patched.setattr(remote, name, lambda *_: pytest.fail("rows were read"))
        for query, row in queries.items():
            assert app.query(query).rows() == [row], query
    with app.transaction() as tx:
        tx.table("t").delete(keys=[1])
        assert tx.table("t").aggregated([AggregateCall("COUNT")]) is None
    app.execute("INSERT INTO t VALUES (1, 1, 9223372036854775807, 'a')")
    with pytest.raises(mp.MillpondError, match="overflow"):
        app.query("SELECT SUM(m) AS a FROM t").rows()
