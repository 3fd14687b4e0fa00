"""How each table is read, and why: what `explain` says of keys, indexes, derived streams and chains of joins."""

from __future__ import annotations

import pytest
from tests.plan.planning import HEAD, plan_of

from millpond.plan.model import Access, AccessKind
from millpond.plan.table_access import find_lookups

MORE = """\
CREATE TABLE tiers (tier STRING PRIMARY KEY, discount INT);
CREATE TABLE prices (symbol STRING, price INT, INDEX (symbol));
CREATE TABLE plain (symbol STRING, price INT);
CREATE INDEX ON notes (text);
CREATE STREAM large AS SELECT upper(user_id) AS who, symbol, tags FROM trades WHERE quantity > 100;
CREATE STREAM tagged AS SELECT symbol, explode(tags) AS tag FROM large;
"""
KEY = "{} is its key: only rows of the batch's keys are read (a small table as a whole)"
INDEX = "{} is an index of it: only rows of the batch's keys are read (a small table as a whole)"


def reads(select: str) -> dict[str, Access]:
    plan = plan_of(f"{HEAD}{MORE}INSERT INTO 'file://./out' {select};")
    assert [str(p) for p in plan.errors] == []
    (step,) = [s for f in plan.flows for s in f.steps if s.kind == "sink"]
    return {access.table: access for access in step.reads}


@pytest.mark.parametrize(
    ("select", "table", "reason"),
    [
        ("SELECT u.name FROM trades t JOIN users u ON u.user_id = t.user_id", "users", KEY.format("user_id")),
        ("SELECT u.name FROM trades t JOIN users u ON u.user_id = lower(t.user_id)", "users", KEY.format("user_id")),
        ("SELECT u.name FROM large l JOIN users u ON u.user_id = l.who", "users", KEY.format("user_id")),
        ("SELECT u.name FROM tagged t JOIN users u ON u.user_id = t.tag", "users", KEY.format("user_id")),
        (
            "SELECT u.name FROM trades t, users u LATERAL VIEW explode(t.tags) x AS tag WHERE u.user_id = x.tag",
            "users",
            KEY.format("user_id"),
        ),
        ("SELECT l.symbol FROM large l WHERE l.who IN (SELECT 'x')", "", ""),
        (
            "SELECT l.symbol FROM large l WHERE EXISTS (SELECT 1 FROM users u WHERE u.user_id = l.who)",
            "users",
            KEY.format("user_id"),
        ),
        ("SELECT p.price FROM trades t JOIN prices p ON p.symbol = t.symbol", "prices", INDEX.format("symbol")),
        ("SELECT n.n FROM trades t JOIN notes n ON n.text = t.symbol", "notes", INDEX.format("text")),
    ],
)
def test_a_table_tied_by_its_key_or_an_index_is_looked_up(select: str, table: str, reason: str) -> None:
    found = reads(select)
    if table:
        assert (found[table].how, found[table].reason) == (AccessKind.LOOKUP, reason)
    else:
        assert found == {}


def test_without_an_index_the_reason_says_which_one_would_help() -> None:
    access = reads("SELECT p.price FROM trades t JOIN plain p ON p.symbol = t.symbol")["plain"]
    assert access.how is AccessKind.SNAPSHOT
    assert access.reason == (
        "the whole table is read, once per version: there is no index on symbol"
        " (CREATE INDEX ON plain (symbol) would avoid it)"
    )


def test_without_an_equality_the_reason_says_so() -> None:
    access = reads("SELECT p.price FROM trades t JOIN plain p ON p.price > t.quantity")["plain"]
    assert (
        access.reason
        == "the whole table is read, once per version: no column of it is compared with the batch by equality"
    )


def test_a_table_behind_another_is_looked_up_on_the_driver() -> None:
    found = reads(
        "SELECT d.discount FROM trades t JOIN users u ON u.user_id = t.user_id JOIN tiers d ON d.tier = u.tier"
    )
    assert found["tiers"].how is AccessKind.LOOKUP
    assert found["tiers"].reason.startswith("tier is its key, and is compared with columns of joined tables")


def test_a_query_over_tables_has_no_batch_to_be_tied_to() -> None:
    plan = plan_of(f"{HEAD}SELECT name FROM users WHERE user_id = 'u1';")
    assert [access.reason for access in plan.one_shots[0].reads] == ["the version when the statement runs"]


@pytest.mark.parametrize(
    "select",
    [
        # Evaluated twice, the key would not be the same.
        "SELECT u.name FROM trades t JOIN users u ON u.user_id = concat(t.user_id, uuid())",
        "SELECT u.name FROM (SELECT concat(user_id, rand()) AS who FROM trades) t JOIN users u ON u.user_id = t.who",
        "SELECT u.name FROM (SELECT user_id AS who FROM trades LIMIT 3) t JOIN users u ON u.user_id = t.who",
        # The batch's columns are NULL beside a row of notes that met nothing: 'x' is no key of the batch.
        "SELECT u.name FROM trades t RIGHT JOIN notes n ON n.text = t.symbol "
        "JOIN users u ON u.user_id = coalesce(t.user_id, 'x')",
        "SELECT u.name FROM notes n LEFT JOIN trades t ON n.text = t.symbol "
        "JOIN users u ON u.user_id = coalesce(t.user_id, 'x')",
        "SELECT (SELECT u.name FROM users u WHERE u.user_id = coalesce(t.user_id, 'x')) AS name "
        "FROM trades t FULL JOIN notes n ON n.text = t.symbol",
    ],
)
def test_what_is_not_exact_is_not_looked_up(select: str) -> None:
    plan = plan_of(f"{HEAD}INSERT INTO 'file://./out' {select};")
    assert [str(p) for p in plan.errors] == []
    (step,) = [s for f in plan.flows for s in f.steps if s.kind == "sink"]
    assert [k for k in find_lookups(step.query) if k.node.name == "users"] == []
