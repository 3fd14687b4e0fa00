"""Views that follow the parts that changes touch hold what their queries would give now, whatever changed."""

from __future__ import annotations

import random
import sqlite3
from pathlib import Path
from typing import Any

import pytest

import millpond as mp

TABLES = {
    "users": "user_id INT PRIMARY KEY, tier STRING, boss INT",
    "orders": "id INT PRIMARY KEY, user_id INT, symbol STRING, amount INT",
    "symbols": "symbol STRING PRIMARY KEY, sector STRING",
    "notes": "user_id INT, note STRING",
}
# Each view with what `explain` must say of how it follows.
VIEWS = {
    "by_tier": (
        "SELECT u.tier, SUM(o.amount) AS total, COUNT(*) AS n, MIN(o.amount) AS low, MAX(o.amount) AS high"
        " FROM orders o JOIN users u ON u.user_id = o.user_id GROUP BY u.tier",
        "for the affected groups (tier)",
    ),
    "often": (
        "SELECT user_id, symbol, COUNT(DISTINCT amount) AS amounts, MAX(symbol) AS last FROM orders"
        " GROUP BY user_id, symbol HAVING COUNT(*) > 1",
        "for the affected groups (user_id, symbol)",
    ),
    "sectors": (
        "SELECT s.sector, u.tier, COUNT(o.id) AS n, SUM(o.amount) FILTER (WHERE o.amount > 5) AS large FROM orders o"
        " JOIN users u ON u.user_id = o.user_id JOIN symbols s ON s.symbol = o.symbol GROUP BY s.sector, u.tier",
        "for the affected groups (sector, tier)",
    ),
    "with_users": (
        "SELECT o.id, o.amount * 2 AS twice, u.tier FROM orders o LEFT JOIN users u ON u.user_id = o.user_id",
        "for the affected keys (id)",
    ),
    "counted": (
        "SELECT u.tier, COUNT(o.id) AS n, COUNT(*) AS all_rows FROM users u"
        " LEFT JOIN orders o ON o.user_id = u.user_id AND o.amount > 3 GROUP BY u.tier",
        "for the affected groups (tier)",
    ),
    "bosses": (
        "SELECT a.user_id, b.tier AS boss_tier FROM users a, users b WHERE a.boss = b.user_id AND a.tier <> b.tier",
        "for the affected keys (user_id)",
    ),
    "tiers": ("SELECT DISTINCT tier FROM users WHERE tier IS NOT NULL", "for the affected keys (tier)"),
    "noted": (
        "SELECT n.note, u.tier FROM notes n JOIN users u ON u.user_id = n.user_id",
        "for the affected keys (note, tier)",
    ),
    "large": ("SELECT tier, total FROM by_tier WHERE total > 10", "for the affected keys (tier)"),
    "largest": (
        "SELECT id, user_id, amount FROM orders"
        " QUALIFY ROW_NUMBER() OVER (PARTITION BY user_id ORDER BY amount DESC, id) = 1",
        "for the affected keys (user_id)",
    ),
    "largest_of_tiers": (
        "SELECT o.id, u.tier FROM orders o LEFT JOIN users u ON u.user_id = o.user_id WHERE o.amount > 1"
        " QUALIFY RANK() OVER (PARTITION BY u.tier ORDER BY o.amount DESC) <= 2",
        "in full",
    ),
    "shares": (
        "SELECT o.id, u.tier, o.symbol, SUM(o.amount) OVER (PARTITION BY u.tier) AS total, COUNT(*) OVER w AS n"
        " FROM orders o JOIN users u ON u.user_id = o.user_id WINDOW w AS (PARTITION BY u.tier, o.symbol)",
        "for the affected keys (tier)",
    ),
    "best": (
        "SELECT user_id, symbol, SUM(amount) AS total FROM orders WHERE amount IS NOT NULL GROUP BY user_id, symbol"
        " HAVING COUNT(*) > 1 QUALIFY RANK() OVER (PARTITION BY symbol ORDER BY SUM(amount) DESC) <= 1",
        "for the affected groups (symbol)",
    ),
    "all_of_it": ("SELECT COUNT(*) AS n, SUM(amount) AS total FROM orders", "in full"),
}
# What Spark must answer: a subquery, SEMI and ANTI joins, an aggregate that Arrow does not know.
ON_SPARK = {
    "ordering": (
        "SELECT u.user_id, u.tier FROM users u WHERE EXISTS (SELECT 1 FROM orders o WHERE o.user_id = u.user_id)",
        "in full when orders changes: it is read in a subquery",
    ),
    "idle": (
        "SELECT u.user_id, u.tier FROM users u LEFT ANTI JOIN orders o ON o.user_id = u.user_id",
        "for the affected keys (user_id) when users or orders change",
    ),
    "any_large": (
        "SELECT u.tier, BOOL_OR(o.amount > 5) AS some FROM orders o JOIN users u ON u.user_id = o.user_id"
        " GROUP BY u.tier",
        "for the affected groups (tier)",
    ),
}
# How SQLite writes what it has no words for.
IN_SQLITE = {
    "largest": "SELECT id, user_id, amount FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY user_id ORDER BY amount"
    " DESC, id) AS n FROM orders) WHERE n = 1",
    "largest_of_tiers": "SELECT id, tier FROM (SELECT o.id, u.tier, RANK() OVER (PARTITION BY u.tier ORDER BY o.amount"
    " DESC) AS n FROM orders o LEFT JOIN users u ON u.user_id = o.user_id WHERE o.amount > 1) WHERE n <= 2",
    "best": "SELECT user_id, symbol, total FROM (SELECT user_id, symbol, SUM(amount) AS total, RANK() OVER (PARTITION"
    " BY symbol ORDER BY SUM(amount) DESC) AS n FROM orders WHERE amount IS NOT NULL GROUP BY user_id, symbol"
    " HAVING COUNT(*) > 1) WHERE n <= 1",
    "large": f"SELECT tier, total FROM ({VIEWS['by_tier'][0]}) WHERE total > 10",
    "idle": "SELECT user_id, tier FROM users u WHERE NOT EXISTS (SELECT 1 FROM orders o WHERE o.user_id = u.user_id)",
    "any_large": "SELECT u.tier, MAX(o.amount > 5) AS some FROM orders o JOIN users u ON u.user_id = o.user_id"
    " GROUP BY u.tier",
}
TIERS = ("GOLD", "BASIC", None)


def rows_of(name: str, chance: random.Random) -> tuple[Any, ...]:
    few = chance.randrange(12)
    if name == "users":
        return few, chance.choice(TIERS), chance.choice((None, chance.randrange(12)))
    if name == "orders":
        return chance.randrange(30), chance.choice((None, few)), chance.choice("ABC"), chance.choice((None, few))
    if name == "symbols":
        return chance.choice("ABC"), chance.choice(("tech", "food", None))
    return few, chance.choice(("x", "y", None))


class Pair:
    """The app and SQLite, changed alike."""

    def __init__(self, app: mp.App, views: dict[str, tuple[str, str]]) -> None:
        self.app = app
        self.views = views
        self.judge = sqlite3.connect(":memory:")
        for name, columns in TABLES.items():
            self.judge.execute(f"CREATE TABLE {name} ({columns})")

    def change(self, tx: Any, chance: random.Random) -> None:
        name = chance.choice(list(TABLES))
        table = tx.table(name)
        row = rows_of(name, chance)
        columns = [c.split()[0] for c in TABLES[name].split(", ")]
        if chance.random() < 0.3:
            table.delete(f"{columns[0]} = ?", [row[0]])
            self.judge.execute(f"DELETE FROM {name} WHERE {columns[0]} = ?", row[:1])
        elif name == "notes":
            table.insert([dict(zip(columns, row, strict=True))])
            self.judge.execute(f"INSERT INTO {name} VALUES (?, ?)", row)
        else:
            table.upsert([dict(zip(columns, row, strict=True))])
            self.judge.execute(f"INSERT OR REPLACE INTO {name} VALUES ({', '.join('?' * len(row))})", row)

    def differences(self) -> dict[str, Any]:
        found = {}
        for name, (query, _) in self.views.items():
            held = self.app.table(name).to_arrow()
            have = sorted((tuple(row.values()) for row in held.to_pylist()), key=repr)
            want = sorted(self.judge.execute(IN_SQLITE.get(name, query)).fetchall(), key=repr)
            # SQLite has numbers for truth values, which are equal but look different.
            if sorted(have, key=lambda r: repr([int(v) if isinstance(v, bool) else v for v in r])) != want:
                found[name] = (have, want)
        return found


def follow_random_changes(folder: Path, views: dict[str, tuple[str, str]], count: int, spark: Any) -> None:
    chance = random.Random(5)
    text = [f"CREATE TABLE {name} ({columns});" for name, columns in TABLES.items()]
    text += [f"CREATE TABLE {name} AS {query};" for name, (query, _) in views.items()]
    (folder / "app.sql").write_text("\n".join([*text, "CREATE INDEX ON orders (user_id);"]))
    app = mp.App(folder / "app.sql", state=folder / "state", spark=spark)
    refreshes = {t.name: t.refresh for t in app.plan.tables}
    assert {n: refreshes[n] for n, (_, how) in views.items() if how not in refreshes[n]} == {}
    app.start()
    try:
        pair = Pair(app, views)
        for number in range(count):
            with app.transaction() as tx:
                for _ in range(chance.choice((1, 1, 2, 6))):
                    pair.change(tx, chance)
            assert pair.differences() == {}, f"after transaction {number}"
    finally:
        app.stop()


def test_views_follow_random_changes_as_a_full_computation_would(tmp_path: Path) -> None:
    follow_random_changes(tmp_path, VIEWS, 150, None)


@pytest.mark.spark
def test_views_that_spark_answers_follow_random_changes_too(tmp_path: Path, spark: Any) -> None:
    follow_random_changes(tmp_path, ON_SPARK, 12, spark)
