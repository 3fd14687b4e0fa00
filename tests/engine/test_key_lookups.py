"""A table looked up by the batch's keys gives the same rows as the table read whole."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest

import millpond as mp
from millpond.engine import key_lookups
from millpond.plan.model import AccessKind

APP = """
CREATE STREAM events (id INT, k INT, j STRING, n INT) FROM 'file://./events.jsonl';
CREATE TABLE users (k INT PRIMARY KEY, name STRING, score INT);
CREATE TABLE pairs (k INT, j STRING, v INT, PRIMARY KEY (k, j));
CREATE TABLE many (j STRING, v INT, INDEX (j));
CREATE STREAM shifted AS SELECT id, k + 1 AS next, j FROM events WHERE n > 2;
CREATE STREAM parts AS SELECT id, explode(array(j, 'j1')) AS part FROM events;
{statements}
"""
# Each names the tables that its hint is about; it must give the same rows whichever way they are read.
QUERIES = (
    ("u", "SELECT {hint} e.id, u.name FROM events e JOIN users u ON u.k = e.k"),
    (
        "u p",
        "SELECT {hint} e.id, u.name, p.v FROM events e LEFT JOIN users u ON e.k = u.k AND u.score > 2 "
        "LEFT JOIN pairs p ON p.k = e.k AND p.j = e.j",
    ),
    ("m", "SELECT {hint} e.id, m.v FROM events e JOIN many m ON m.j = e.j WHERE m.v <> e.n"),
    ("u", "SELECT {hint} e.id FROM events e LEFT ANTI JOIN users u ON u.k = e.k + 1"),
    ("u", "SELECT {hint} e.id, u.score FROM events e, users u WHERE u.k = e.k AND u.score > 3"),
    (
        "u a",
        "SELECT {hint} e.id, a.name AS x, u.name AS y FROM events e LEFT JOIN users u ON u.k = e.k "
        "LEFT JOIN users a ON a.k = e.n",
    ),
    (
        "u",
        "SELECT {hint} e.id, (SELECT MAX(v) FROM many m WHERE m.j = e.j) AS top, u.score FROM events e "
        "LEFT JOIN users u ON u.k = e.k",
    ),
    (
        "u",
        "SELECT {hint} e.id, u.k FROM events e JOIN users u ON u.k = e.k "
        "WHERE EXISTS (SELECT 1 FROM pairs p WHERE p.k = e.k AND p.j = e.j) "
        "OR e.n > ALL (SELECT v FROM many m WHERE m.j = e.j)",
    ),
    ("u", "SELECT {hint} s.id, u.name FROM shifted s JOIN users u ON u.k = s.next"),
    ("m", "SELECT {hint} p.id, m.v FROM parts p JOIN many m ON m.j = p.part"),
    (
        "m",
        "SELECT {hint} e.id, m.v FROM events e, many m LATERAL VIEW explode(array(e.j, 'j2')) x AS part "
        "WHERE m.j = x.part AND m.v > e.n",
    ),
)


# Tables that hints name, each time one is looked up; tables of subqueries are not named.
FETCHED = sum(len(aliases.split()) for aliases, _ in QUERIES)


def statement(number: int, way: str) -> str:
    aliases, query = QUERIES[number]
    hint = "/*+ " + ", ".join(f"{way}({alias})" for alias in aliases.split()) + " */"
    return f"INSERT INTO 'file://./{way}{number}' {query.format(hint=hint)};"


def fill(app: Any, chance: random.Random) -> None:
    app.table("users").insert([{"k": k, "name": f"n{k % 7}", "score": k % 6} for k in range(0, 60, 2)])
    app.table("pairs").insert([{"k": k, "j": f"j{k % 5}", "v": k} for k in range(40)])
    app.table("many").insert([{"j": f"j{chance.randrange(6)}", "v": chance.randrange(9)} for _ in range(50)])


def sink_rows(folder: Path) -> list[str]:
    lines = [line for file in folder.glob("*.jsonl") for line in file.read_text().splitlines()]
    return sorted(json.dumps(json.loads(line), sort_keys=True) for line in lines)


@pytest.mark.spark
def test_lookups_and_snapshots_give_the_same_rows(spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    chance = random.Random(11)
    events = [
        {"id": i, "k": chance.choice([None, *range(20)]), "j": f"j{chance.randrange(7)}", "n": chance.randrange(9)}
        for i in range(60)
    ]
    (tmp_path / "events.jsonl").write_text("".join(json.dumps(e) + "\n" for e in events))
    # Without Arrow's own answers; tests/relational compares those with Spark's.
    monkeypatch.setenv("MILLPOND_ENGINE", "spark")
    monkeypatch.setattr(key_lookups, "KEYS_BY_SPARK_ROWS", 0)
    fetched: list[str] = []
    whole = key_lookups.Lookups._rows

    def counted(self: Any, lookup: Any, table: Any, access: Any) -> Any:
        rows = whole(self, lookup, table, access)
        if rows is not None:
            fetched.append(table.name)
            assert rows.num_rows <= len(table)
        return rows

    monkeypatch.setattr(key_lookups.Lookups, "_rows", counted)
    statements = [statement(number, way) for number in range(len(QUERIES)) for way in ("LOOKUP", "SNAPSHOT")]
    (tmp_path / "app.sql").write_text(APP.format(statements="\n".join(statements)))
    app = mp.App(tmp_path / "app.sql", state=tmp_path / "state", spark=spark)
    assert {a.how for f in app.plan.flows for s in f.steps for a in s.reads} == {AccessKind.LOOKUP, AccessKind.SNAPSHOT}
    fill(app, chance)
    app.run_once()
    assert {"users", "many"} <= set(fetched)
    assert len(fetched) == FETCHED
    for number, (_, query) in enumerate(QUERIES):
        looked_up = sink_rows(tmp_path / f"LOOKUP{number}")
        assert looked_up == sink_rows(tmp_path / f"SNAPSHOT{number}"), query
        assert looked_up, query
