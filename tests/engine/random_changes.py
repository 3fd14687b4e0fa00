"""Random statements that change keyed tables by one stream, and what each does to one event, in plain Python."""

from __future__ import annotations

import operator
import random
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

Row = dict[str, Any]
DECLARED = """
CREATE STREAM c (id INT, k STRING, op STRING, v INT, g INT) FROM 'memory://c';
CREATE TABLE t (id INT PRIMARY KEY, v INT CHECK (v < 42), w INT NOT NULL DEFAULT 5, g INT);
CREATE TABLE u (id INT, k STRING, n INT, PRIMARY KEY (id, k));
CREATE TABLE ref (id INT PRIMARY KEY, x INT);
"""
REF: dict[Any, Any] = {0: 40, 1: 41, 5: None}
MORE_FROM = 1000
NEW: Row = {"id": None, "v": None, "w": 5, "g": None}
KEYS, REQUIRED = {"t": ("id",), "u": ("id", "k")}, {"t": ("id", "w"), "u": ("id", "k")}


class Refused(Exception):
    """The event is a dead letter of the statement."""


@dataclass
class World:
    """The tables as one event after another leaves them: rows by key."""

    t: dict[tuple[Any, ...], Row] = field(default_factory=dict)
    u: dict[tuple[Any, ...], Row] = field(default_factory=dict)
    letters: int = 0

    def put(self, table: str, row: Row) -> None:
        if any(row[name] is None for name in REQUIRED[table]) or not less(row.get("v") or 0, 42):
            raise Refused
        getattr(self, table)[tuple(row[name] for name in KEYS[table])] = row


@dataclass(frozen=True)
class Part:
    """A piece of SQL over the event `c` and the row `t`, and its value in Python; None is NULL."""

    sql: str
    value: Callable[[Row, Row], Any]


@dataclass(frozen=True)
class Change:
    """A statement, and what it does with one event."""

    sql: str
    apply: Callable[[World, Row], None]


def known(function: Callable[..., Any]) -> Callable[..., Any]:
    """NULL if an operand is."""
    return lambda *values: None if None in values else function(*values)


more, less, same, plus = known(operator.gt), known(operator.lt), known(operator.eq), known(operator.add)
ON_EVENT = [
    Part("TRUE", lambda e, r: True),
    Part("c.op = 'i'", lambda e, r: same(e["op"], "i")),
    Part("c.op <> 'd'", lambda e, r: e["op"] != "d"),
    Part("c.v > 2", lambda e, r: more(e["v"], 2)),
    Part("(c.k IS NULL OR c.g = 1)", lambda e, r: e["k"] is None or same(e["g"], 1)),
]
ON_ROW = [
    Part("TRUE", lambda e, r: True),
    Part("t.v > c.v", lambda e, r: more(r["v"], e["v"])),
    Part("t.w < 9", lambda e, r: less(r["w"], 9)),
    Part("t.g = c.g", lambda e, r: same(r["g"], e["g"])),
    Part("(t.v IS NULL OR t.w > c.v)", lambda e, r: r["v"] is None or more(r["w"], e["v"])),
]
OF_EVENT = [
    Part("c.v", lambda e, r: e["v"]),
    Part("c.g", lambda e, r: e["g"]),
    Part("c.v + 1", lambda e, r: plus(e["v"], 1)),
    Part("coalesce(c.v, 7)", lambda e, r: 7 if e["v"] is None else e["v"]),
    Part("3", lambda e, r: 3),
]
OF_ROW = [
    *OF_EVENT,
    Part("t.v + c.v", lambda e, r: plus(r["v"], e["v"])),
    Part("coalesce(t.v, 0) + 1", lambda e, r: (r["v"] or 0) + 1),
    Part("t.w + c.g", lambda e, r: plus(r["w"], e["g"])),
    Part("CASE WHEN t.w > c.v THEN t.w ELSE c.v END", lambda e, r: r["w"] if more(r["w"], e["v"]) else e["v"]),
]
OF_CONFLICT = [
    Part("excluded.v", lambda new, r: new["v"]),
    Part("excluded.w + 1", lambda new, r: new["w"] + 1),
    Part("t.v + excluded.v", lambda new, r: plus(r["v"], new["v"])),
    Part("coalesce(v, 0) + w", lambda new, r: (r["v"] or 0) + r["w"]),
    Part("t.g", lambda new, r: r["g"]),
]
ON_CONFLICT = [
    Part("TRUE", lambda new, r: True),
    Part("t.v > excluded.v", lambda new, r: more(r["v"], new["v"])),
    Part("(g IS NULL OR t.w < 9)", lambda new, r: r["g"] is None or more(9, r["w"])),
]
NO_ROW: Row = {"id": None, "v": None, "w": None, "g": None}


class Draw:
    """Random statements."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)
        # Only for later seeds, because those that have found something are to draw the same apps as then.
        self._more = [self.insert_by_all, self.insert_by_row] if seed >= MORE_FROM else []

    def one(self, parts: list[Any]) -> Any:
        return self._random.choice(parts)

    def app(self, count: int) -> list[Change]:
        kinds: list[Callable[[], Change]] = [
            self.insert, self.insert_some, self.upsert_some, self.upsert_by_key, self.update, self.update, self.delete,
            self.delete, self.insert_new, self.insert_joined, self.insert_beside, self.update_joined, self.pairs,
            self.update_others, self.delete_others, self.insert_few, self.upsert_on, self.divide, self.pairs,
            self.merge, self.merge, self.merge_others, self.conflict, self.conflict, *self._more, *self._more,
        ]  # fmt: skip
        return [self.one(kinds)() for _ in range(count)]

    def events(self, count: int) -> list[Row]:
        pick = self.one
        return [
            {
                "id": pick([0, 0, 1, 1, 2, 3, 4, None]),
                "k": pick(["a", "b", None]),
                "op": pick(["i", "u", "d", "d"]),
                "v": pick([None, -1, 0, 1, 2, 3, 5, 8]),
                "g": pick([0, 0, 1, 2, None]),
            }
            for _ in range(count)
        ]

    def insert(self) -> Change:
        values, when = [self.one(OF_EVENT) for _ in range(3)], self.one(ON_EVENT)
        word = self.one(["INSERT", "UPSERT"])
        sql = f"{word} INTO t SELECT c.id, {', '.join(v.sql for v in values)} FROM c WHERE {when.sql};"

        def apply(world: World, e: Row) -> None:
            if when.value(e, NO_ROW):
                world.put("t", {"id": e["id"], **dict(zip("vwg", (v.value(e, NO_ROW) for v in values), strict=True))})

        return Change(sql, apply)

    def insert_some(self) -> Change:
        value, when = self.one(OF_EVENT), self.one(ON_EVENT)
        sql = f"INSERT INTO t (g, id) SELECT {value.sql}, c.id FROM c WHERE {when.sql};"

        def apply(world: World, e: Row) -> None:
            if when.value(e, NO_ROW):
                world.put("t", {**NEW, "id": e["id"], "g": value.value(e, NO_ROW)})

        return Change(sql, apply)

    def upsert_some(self, on: str = "") -> Change:
        name, value, when = self.one(["v", "w", "g"]), self.one(OF_EVENT), self.one(ON_EVENT)
        sql = f"UPSERT INTO t (id, {name}) SELECT c.id, {value.sql} AS x FROM c WHERE {when.sql}{on};"

        def apply(world: World, e: Row) -> None:
            if when.value(e, NO_ROW):
                row = world.t.get((e["id"],), {**NEW, "id": e["id"]})
                world.put("t", {**row, name: value.value(e, NO_ROW)})

        return Change(sql, apply)

    def upsert_by_key(self) -> Change:
        return self.upsert_some(" ON t.id = c.id")

    def _changing(self, world: World, e: Row, rows: list[Row], sets: dict[str, Part]) -> None:
        new = [{**r, **{n: v.value(e, r) for n, v in sets.items()}} for r in rows]
        if any(r["w"] is None or not less(r["v"] or 0, 42) for r in new):
            raise Refused
        for row in new:
            world.put("t", row)

    def _sets(self, count: int) -> dict[str, Part]:
        return {name: self.one(OF_ROW) for name in self._random.sample(["v", "w", "g"], count)}

    def update(self, by: str = "id") -> Change:
        sets, when, row_when = self._sets(self.one([1, 2])), self.one(ON_EVENT), self.one(ON_ROW)
        text = ", ".join(f"{n} = {v.sql}" for n, v in sets.items())
        sql = f"UPDATE t SET {text} FROM c WHERE t.{by} = c.{by} AND {when.sql} AND {row_when.sql};"

        def apply(world: World, e: Row) -> None:
            met = [r for r in world.t.values() if same(r[by], e[by]) and when.value(e, r) and row_when.value(e, r)]
            self._changing(world, e, met, sets)

        return Change(sql, apply)

    def update_others(self) -> Change:
        return self.update("g")

    def update_joined(self) -> Change:
        when = self.one(ON_ROW)
        sql = (
            f"UPDATE t SET v = r.x + coalesce(t.v, 0) FROM c JOIN ref r ON r.id = c.g WHERE t.id = c.id AND {when.sql};"
        )

        def apply(world: World, e: Row) -> None:
            row = world.t.get((e["id"],))
            if row is not None and e["g"] in REF and when.value(e, row):
                world.put("t", {**row, "v": plus(REF[e["g"]], row["v"] or 0)})

        return Change(sql, apply)

    def divide(self) -> Change:
        sql = "UPDATE t SET v = t.w DIV c.v FROM c WHERE t.id = c.id WITH ('on.error' = 'dead-letter');"

        def apply(world: World, e: Row) -> None:
            row = world.t.get((e["id"],))
            if row is None:
                return
            if e["v"] == 0:
                raise Refused
            world.put("t", {**row, "v": None if e["v"] is None else int(row["w"] / e["v"])})

        return Change(sql, apply)

    def delete(self, by: str = "id") -> Change:
        when, row_when = self.one(ON_EVENT[1:]), self.one(ON_ROW)
        sql = f"DELETE FROM t USING c WHERE t.{by} = c.{by} AND {when.sql} AND {row_when.sql};"

        def apply(world: World, e: Row) -> None:
            for key, r in list(world.t.items()):
                if same(r[by], e[by]) and when.value(e, r) and row_when.value(e, r):
                    del world.t[key]

        return Change(sql, apply)

    def delete_others(self) -> Change:
        return self.delete("g")

    def insert_new(self) -> Change:
        when, found = self.one(ON_EVENT), self.one(ON_ROW)
        word = self.one(["NOT EXISTS", "EXISTS"])
        inner = f"{word} (SELECT 1 FROM t WHERE t.id = c.id AND {found.sql})"
        sql = f"INSERT INTO t SELECT c.id, c.v, coalesce(c.v, 7), c.g FROM c WHERE {when.sql} AND {inner};"

        def apply(world: World, e: Row) -> None:
            row = world.t.get((e["id"],))
            is_found = row is not None and bool(found.value(e, row))
            if when.value(e, NO_ROW) and is_found == (word == "EXISTS"):
                world.put("t", {"id": e["id"], "v": e["v"], "w": 7 if e["v"] is None else e["v"], "g": e["g"]})

        return Change(sql, apply)

    def insert_beside(self) -> Change:
        """A running total: the row that it writes is joined."""
        side, when = self.one(["LEFT JOIN", "JOIN"]), self.one(ON_EVENT)
        more_on = self.one(["", " AND coalesce(o.v, 0) < 20"])
        where = f"WHERE {when.sql}{more_on if side == 'JOIN' else ''}"
        sql = (
            f"INSERT INTO t SELECT c.id, coalesce(o.v, 0) + c.v, coalesce(o.w, 1), c.g "
            f"FROM c {side} t o ON o.id = c.id {where};"
        )

        def apply(world: World, e: Row) -> None:
            row = world.t.get((e["id"],))
            if not when.value(e, NO_ROW) or (side == "JOIN" and (row is None or (more_on and (row["v"] or 0) >= 20))):
                return
            row = row or {**NO_ROW, "w": 1}
            world.put("t", {"id": e["id"], "v": plus(row["v"] or 0, e["v"]), "w": row["w"], "g": e["g"]})

        return Change(sql, apply)

    def insert_joined(self) -> Change:
        sql = "INSERT INTO t (id, v) SELECT c.id, r.x FROM c LEFT JOIN ref r ON r.id = c.g WHERE c.op = 'u';"

        def apply(world: World, e: Row) -> None:
            if e["op"] == "u":
                world.put("t", {"id": e["id"], "v": REF.get(e["g"]), "w": 5, "g": None})

        return Change(sql, apply)

    def insert_few(self) -> Change:
        limit = self.one([2, 4])
        sql = f"INSERT INTO t SELECT c.id, c.v, 1, c.g FROM c WHERE c.op = 'i' AND (SELECT COUNT(*) FROM t) < {limit};"

        def apply(world: World, e: Row) -> None:
            if e["op"] == "i" and len(world.t) < limit:
                world.put("t", {"id": e["id"], "v": e["v"], "w": 1, "g": e["g"]})

        return Change(sql, apply)

    def insert_by_all(self) -> Change:
        """Reads all rows of its target, in one of the ways to write it."""
        over = self.one([
            ("c.v > ALL (SELECT v FROM t WHERE v IS NOT NULL)", lambda v, vs: all(v > o for o in vs)),
            ("c.v <= ANY (SELECT t.v FROM t WHERE t.v IS NOT NULL)", lambda v, vs: any(v <= o for o in vs)),
            ("c.v > coalesce((SELECT MAX(v) FROM t), 1)", lambda v, vs: v > max(vs, default=1)),
            ("EXISTS (SELECT 1 FROM t o WHERE o.v < c.v)", lambda v, vs: any(o < v for o in vs)),
            ("c.v NOT IN (SELECT v FROM t WHERE v IS NOT NULL)", lambda v, vs: v not in vs),
        ])  # fmt: skip
        sql = f"INSERT INTO t (id, v) SELECT c.id, c.v FROM c WHERE c.v IS NOT NULL AND c.op <> 'd' AND {over[0]};"

        def apply(world: World, e: Row) -> None:
            there = [r["v"] for r in world.t.values() if r["v"] is not None]
            if e["v"] is not None and e["op"] != "d" and over[1](e["v"], there):
                world.put("t", {**NEW, "id": e["id"], "v": e["v"]})

        return Change(sql, apply)

    def insert_by_row(self) -> Change:
        """Compares the row that it writes with a table, or with values, by ANY and ALL."""
        word, holds = self.one([("ANY", any), ("ALL", all)])
        sql = (
            "INSERT INTO t SELECT c.id, c.v, 6, c.g FROM c LEFT JOIN t o ON o.id = c.id "
            f"WHERE coalesce(o.v, 0) < {word} (SELECT x FROM ref WHERE x > 40 OR id = c.g);"
        )

        def apply(world: World, e: Row) -> None:
            row = world.t.get((e["id"],))
            value = 0 if row is None or row["v"] is None else row["v"]
            if holds(value < x for id_, x in REF.items() if x is not None and (x > 40 or id_ == e["g"])):
                world.put("t", {"id": e["id"], "v": e["v"], "w": 6, "g": e["g"]})

        return Change(sql, apply)

    def upsert_on(self) -> Change:
        when = self.one(ON_EVENT)
        sql = f"UPSERT INTO t SELECT c.id, c.v, 2 AS w, c.g FROM c WHERE {when.sql} ON t.g = c.g;"

        def apply(world: World, e: Row) -> None:
            if not when.value(e, NO_ROW):
                return
            met = [r for r in world.t.values() if same(r["g"], e["g"])]
            for row in met:
                world.put("t", {**row, "v": e["v"], "w": 2, "g": e["g"]})
            if not met:
                if e["id"] is None or (e["id"],) in world.t:
                    raise Refused
                world.put("t", {"id": e["id"], "v": e["v"], "w": 2, "g": e["g"]})

        return Change(sql, apply)

    def merge(self, by: str = "id") -> Change:
        goes, stays, sets = self.one(ON_EVENT[1:]), self.one(ON_ROW), self._sets(self.one([1, 2]))
        changes, adds, value = self.one(ON_ROW), self.one(ON_EVENT), self.one(OF_EVENT)
        text = ", ".join(f"{n} = {v.sql}" for n, v in sets.items())
        sql = (
            f"MERGE INTO t USING c ON c.{by} = t.{by} WHEN MATCHED AND {goes.sql} AND {stays.sql} THEN DELETE "
            f"WHEN MATCHED AND {changes.sql} THEN UPDATE SET {text} "
            f"WHEN NOT MATCHED AND {adds.sql} THEN INSERT (id, v, w, g) VALUES (c.id, {value.sql}, DEFAULT, c.g);"
        )

        def apply(world: World, e: Row) -> None:
            met = [r for r in world.t.values() if same(r[by], e[by])]
            gone = [r for r in met if goes.value(e, r) and stays.value(e, r)]
            self._changing(world, e, [r for r in met if r not in gone and changes.value(e, r)], sets)
            for row in gone:
                del world.t[row["id"],]
            if not met and adds.value(e, NO_ROW):
                if (e["id"],) in world.t:
                    raise Refused
                world.put("t", {"id": e["id"], "v": value.value(e, NO_ROW), "w": 5, "g": e["g"]})

        return Change(sql, apply)

    def merge_others(self) -> Change:
        return self.merge("g")

    def conflict(self) -> Change:
        value, when, names = self.one(OF_EVENT), self.one(ON_EVENT), self._random.sample(["v", "w", "g"], 2)
        sets, where = {name: self.one(OF_CONFLICT) for name in names}, self.one(ON_CONFLICT)
        does = self.one([True, True, False])
        text = f"UPDATE SET {', '.join(f'{n} = {v.sql}' for n, v in sets.items())} WHERE {where.sql}"
        sql = (
            f"INSERT INTO t (id, v) SELECT c.id, {value.sql} FROM c WHERE {when.sql} "
            f"ON CONFLICT (id) DO {text if does else 'NOTHING'};"
        )

        def apply(world: World, e: Row) -> None:
            new = {**NEW, "id": e["id"], "v": value.value(e, NO_ROW)}
            row = world.t.get((e["id"],))
            if not when.value(e, NO_ROW):
                return
            if row is None:
                world.put("t", new)
            elif does and where.value(new, row):
                world.put("t", {**row, **{n: v.value(new, row) for n, v in sets.items()}})

        return Change(sql, apply)

    def pairs(self) -> Change:
        """A table with a key of two columns."""
        return self.one([self._put_pair, self._count_pair, self._drop_pair])()

    def _put_pair(self) -> Change:
        when = self.one(ON_EVENT)
        return Change(
            f"INSERT INTO u SELECT c.id, c.k, c.v FROM c WHERE {when.sql};",
            lambda w, e: w.put("u", {"id": e["id"], "k": e["k"], "n": e["v"]}) if when.value(e, NO_ROW) else None,
        )

    def _count_pair(self) -> Change:
        def apply(world: World, e: Row) -> None:
            row = world.u.get((e["id"], e["k"]))
            if row is not None and e["op"] != "d":
                world.put("u", {**row, "n": (row["n"] or 0) + 1})

        sql = "UPDATE u SET n = coalesce(u.n, 0) + 1 FROM c WHERE u.k = c.k AND c.id = u.id AND c.op <> 'd';"
        return Change(sql, apply)

    def _drop_pair(self) -> Change:
        def apply(world: World, e: Row) -> None:
            row = world.u.get((e["id"], e["k"]))
            if row is not None and more(row["n"], 3):
                del world.u[e["id"], e["k"]]

        return Change("DELETE FROM u USING c WHERE u.id = c.id AND u.k = c.k AND u.n > 3;", apply)


def expected(changes: list[Change], events: list[Row]) -> World:
    """Each event through all statements, then the next."""
    world = World()
    for event in events:
        for change in changes:
            try:
                change.apply(world, event)
            except Refused:
                world.letters += 1
    return world
