"""Queries that go on without a table, as the SQL that Spark is given."""

from __future__ import annotations

from pathlib import Path

import pytest

from millpond.app.planning import plan_text
from millpond.plan.missing import Absent, can_do_without, rewrite_missing, without_tables
from millpond.plan.model import Step
from millpond.sql.spark import render

APP = """
CREATE TABLE users (user_id STRING PRIMARY KEY, tier STRING);
CREATE TABLE limits (user_id STRING PRIMARY KEY, most INT);
CREATE STREAM trades (id INT, user_id STRING) FROM 'memory://trades';
CREATE TABLE gone AS SELECT * FROM 'file:gone.csv';
INSERT INTO 'file:out' {query};
"""


def step(query: str, folder: Path) -> Step:
    plan = plan_text(APP.format(query=query), base=folder)
    assert not plan.errors, "\n".join(map(str, plan.errors))
    return plan.flows[0].steps[0]


def rendered(query: str, folder: Path, policy: str, *unknown: str) -> str:
    absent = Absent(frozenset({"users", *unknown}), frozenset(unknown), policy)
    return render(rewrite_missing(without_tables(step(query, folder).query, absent))).replace("`", "")


JOINS = {
    "JOIN users u ON u.user_id = t.user_id": "LEFT JOIN users AS u ON u.user_id = t.user_id",
    "RIGHT JOIN users u ON u.user_id = t.user_id": "LEFT JOIN users AS u ON u.user_id = t.user_id",
    "FULL JOIN users u ON u.user_id = t.user_id": "FULL JOIN users AS u ON u.user_id = t.user_id",
    "CROSS JOIN users u": "LEFT JOIN users AS u ON TRUE",
    ", users u": "LEFT JOIN users AS u ON TRUE",
    "JOIN (SELECT * FROM users) u ON u.user_id = t.user_id": "LEFT JOIN (SELECT",
    "JOIN users u ON u.user_id = t.user_id WITH ('on.missing' = 'skip')": " JOIN users AS u ON u.user_id = t.user_id",
}


@pytest.mark.parametrize("join", JOINS)
def test_every_join_with_an_absent_table_gives_nulls_unless_it_says_otherwise(join: str, tmp_path: Path) -> None:
    text = rendered(f"SELECT t.id, u.user_id FROM trades t {join}", tmp_path, "nulls")
    assert JOINS[join] in text
    assert ("LEFT JOIN" in text) == ("LEFT JOIN" in JOINS[join])


def test_joins_with_other_tables_stay_as_they_are(tmp_path: Path) -> None:
    query = (
        "SELECT t.id FROM trades t JOIN limits l ON l.user_id = t.user_id SEMI JOIN users u ON u.user_id = t.user_id"
    )
    assert "LEFT JOIN" not in rendered(query, tmp_path, "nulls")


def test_defaults_stand_where_the_columns_stood(tmp_path: Path) -> None:
    join = "JOIN users u ON u.user_id = t.user_id WITH ('default.tier' = 'BASIC')"
    query = f"SELECT t.id, u.tier FROM trades t {join} WITH ('on.table.missing' = 'default')"
    assert "IF(u.__mp_found IS NULL, CAST('BASIC' AS STRING), u.tier) AS tier" in rendered(query, tmp_path, "default")


def test_a_table_whose_columns_nobody_knows_has_those_that_are_asked_for(tmp_path: Path) -> None:
    query = "SELECT t.id, g.Tier FROM trades t JOIN gone g ON g.user_id = t.user_id WHERE g.tier > 1"
    text = rendered(query, tmp_path, "nulls", "gone")
    assert "gone" not in text
    assert text.count("CAST(NULL AS STRING) AS") == 2
    assert can_do_without(step(query, tmp_path).query)
    assert not can_do_without(step("SELECT t.id, g.* FROM trades t JOIN gone g ON g.k = t.user_id", tmp_path).query)
