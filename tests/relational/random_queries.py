"""Random SELECTs over the tables of test_answers: joins, groups, windows, subqueries, set operations, lateral views."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

INT, TEXT, MONEY = "int", "text", "money"
TABLES = {
    "e": {"id": INT, "k": INT, "n": INT, "g": TEXT, "p": MONEY},
    "t": {"k": INT, "score": INT, "name": TEXT, "price": MONEY},
    "m": {"v": INT, "w": INT, "g": TEXT},
    "nothing": {"v": INT, "g": TEXT},
}
# Joins whose right side can be read behind them, and those that only filter.
JOINS = ("JOIN", "JOIN", "LEFT JOIN", "LEFT JOIN", "CROSS JOIN", "RIGHT JOIN", "FULL JOIN")
FILTERS = ("LEFT SEMI JOIN", "LEFT ANTI JOIN")
COMPARISONS = ("=", "<>", "<", "<=", ">", ">=", "<=>")
LITERALS = {
    INT: ("0", "1", "3", "7", "-2", "NULL"),
    TEXT: ("'a'", "'ab'", "''", "'A'"),
    MONEY: ("1.00", "2.5", "0.05", "CAST(NULL AS DECIMAL(8,2))"),
}


@dataclass(frozen=True)
class Scope:
    """The columns that can be read, as alias.name with their kinds; `outer` those of the query around."""

    columns: tuple[tuple[str, str], ...]
    outer: tuple[tuple[str, str], ...] = ()

    def of(self, kind: str) -> list[str]:
        return [name for name, its in self.columns if its == kind]


class QueryDrawer:
    """Draws queries; the same seed draws the same ones."""

    def __init__(self, seed: int) -> None:
        self._chance = random.Random(seed)
        self._aliases = 0

    def query(self) -> str:
        """A SELECT that can stand alone."""
        self._aliases = 0
        shapes = (self._plain, self._plain, self._grouped, self._grouped, self._distinct, self._union)
        text, width = self._pick((*shapes, self._windowed, self._windowed, self._sets, self._exploded))()
        if self._maybe(0.3):
            # By all columns, so that the rows that a limit keeps are always the same.
            by = ", ".join(f"c{i}{self._pick(('', ' DESC', ' NULLS LAST'))}" for i in range(width))
            text = f"{text} ORDER BY {by}" + (f" LIMIT {self._chance.randrange(1, 9)}" if self._maybe(0.7) else "")
        return text

    def _plain(self, kinds: Sequence[str] | None = None) -> tuple[str, int]:
        source, scope = self._from()
        kinds = kinds or [self._kind() for _ in range(self._chance.randrange(1, 4))]
        items = [f"{self._value(kind, scope, 2)} AS c{i}" for i, kind in enumerate(kinds)]
        return f"SELECT {', '.join(items)} FROM {source}{self._where(scope)}", len(items)

    def _distinct(self) -> tuple[str, int]:
        text, width = self._plain()
        return text.replace("SELECT", "SELECT DISTINCT", 1), width

    def _union(self) -> tuple[str, int]:
        kinds = [self._kind() for _ in range(self._chance.randrange(1, 3))]
        (left, width), (right, _) = self._plain(kinds), self._plain(kinds)
        operation = self._pick(("UNION ALL", "UNION", "INTERSECT", "EXCEPT", "INTERSECT ALL", "EXCEPT ALL"))
        return f"{left} {operation} {right}", width

    def _windowed(self) -> tuple[str, int]:
        source, scope = self._from()
        items = [self._over(scope) for _ in range(self._chance.randrange(1, 3))]
        items.append(self._pick([name for name, _ in scope.columns]))
        named = ", ".join(f"{item} AS c{i}" for i, item in enumerate(items))
        return f"SELECT {named} FROM {source}{self._where(scope)}", len(items)

    def _over(self, scope: Scope) -> str:
        """A window function whose value does not depend on the order of equal rows: these are all in its order."""
        names = [name for name, _ in scope.columns]
        parts = f"PARTITION BY {', '.join(self._chance.sample(names, self._chance.randrange(1, 3)))} "
        partition = parts if self._maybe(0.7) else ""
        directions = ("", " DESC", " NULLS LAST", " DESC NULLS FIRST")
        order = "ORDER BY " + ", ".join(f"{name}{self._pick(directions)}" for name in names)
        column, number = self._pick(names), self._pick(scope.of(INT))
        if self._maybe(0.4):
            ranking = self._pick(("RANK()", "DENSE_RANK()", "PERCENT_RANK()", "CUME_DIST()"))
            few = f"ORDER BY {self._pick(names)}{self._pick(directions)}"
            return f"{ranking} OVER ({partition}{few})"
        value = self._pick(
            (
                f"LAG({column}, {self._chance.randrange(3)})",
                f"LEAD({column})",
                f"FIRST_VALUE({column})",
                f"LAST_VALUE({column}){self._pick(('', ' IGNORE NULLS'))}",
                f"SUM({number})",
                f"AVG({number})",
                f"COUNT({column})",
                f"MAX({column})",
                f"MIN({column})",
            )
        )
        framed = not value.startswith(("LAG", "LEAD")) and self._maybe(0.5)
        return f"{value} OVER ({partition}{order}{self._frame() if framed else ''})"

    def _frame(self) -> str:
        start = self._pick(("UNBOUNDED PRECEDING", "2 PRECEDING", "CURRENT ROW", "1 PRECEDING"))
        return f" ROWS BETWEEN {start} AND {self._pick(('CURRENT ROW', '1 FOLLOWING', 'UNBOUNDED FOLLOWING'))}"

    def _sets(self) -> tuple[str, int]:
        """ROLLUP, CUBE and GROUPING SETS."""
        source, scope = self._from()
        keys = self._chance.sample([name for name, _ in scope.columns], self._chance.randrange(1, 3))
        items = [*keys, self._aggregate(scope), "grouping_id()", f"grouping({keys[0]})"]
        named = ", ".join(f"{item} AS c{i}" for i, item in enumerate(items))
        by = ", ".join(keys)
        sets = self._pick((f"ROLLUP ({by})", f"CUBE ({by})", f"GROUPING SETS (({by}), ({keys[-1]}), ())"))
        return f"SELECT {named} FROM {source}{self._where(scope)} GROUP BY {sets}", len(items)

    def _exploded(self) -> tuple[str, int]:
        """A lateral view over an array of columns."""
        source, scope = self._from()
        number, other = self._pick(scope.of(INT)), self._pick(scope.of(INT))
        call = self._pick(("explode", "explode", "posexplode"))
        names = "x" if call == "explode" else "pos, x"
        array = self._pick((f"array({number}, NULL, {other})", f"filter(array({number}, {other}), y -> y > 3)"))
        view = f"LATERAL VIEW {self._pick(('', 'OUTER '))}{call}({array}) lv AS {names}"
        both = Scope((*scope.columns, ("lv.x", INT)))
        items = ["lv.x", self._value(INT, both, 1), self._pick([name for name, _ in scope.columns])]
        named = ", ".join(f"{item} AS c{i}" for i, item in enumerate(items))
        return f"SELECT {named} FROM {source} {view}{self._where(both)}", len(items)

    def _grouped(self) -> tuple[str, int]:
        source, scope = self._from()
        keys = self._chance.sample([name for name, _ in scope.columns], self._chance.randrange(0, 3))
        items = [*keys, *(self._aggregate(scope) for _ in range(self._chance.randrange(1, 3)))]
        named = ", ".join(f"{item} AS c{i}" for i, item in enumerate(items))
        group = f" GROUP BY {', '.join(keys)}" if keys else ""
        having = f" HAVING {self._aggregate(scope, INT)} {self._pick(COMPARISONS)} {self._chance.randrange(4)}"
        text = f"SELECT {named} FROM {source}{self._where(scope)}{group}"
        return text + (having if keys and self._maybe(0.4) else ""), len(items)

    def _from(self) -> tuple[str, Scope]:
        text, columns = self._relation()
        for _ in range(self._chance.choice((0, 0, 1, 1, 2))):
            kind = self._pick((*JOINS, *FILTERS))
            right, added = self._relation()
            both = Scope((*columns, *added))
            text = f"{text} {kind} {right}"
            if kind != "CROSS JOIN":
                text += f" ON {self._on(columns, added, both)}"
            columns = columns if kind in FILTERS else both.columns
        return text, Scope(columns)

    def _relation(self) -> tuple[str, tuple[tuple[str, str], ...]]:
        self._aliases += 1
        alias = f"r{self._aliases}"
        table = self._pick(("e", "e", "t", "m", "nothing") if self._maybe(0.2) else ("e", "e", "t", "m"))
        columns = TABLES[table]
        if self._maybe(0.15):
            inner = Scope(tuple((f"x.{name}", kind) for name, kind in columns.items()))
            return (
                f"(SELECT {', '.join(columns)} FROM {table} AS x WHERE {self._condition(inner, 0)}) AS {alias}",
                tuple((f"{alias}.{name}", kind) for name, kind in columns.items()),
            )
        return f"{table} AS {alias}", tuple((f"{alias}.{name}", kind) for name, kind in columns.items())

    def _on(self, left: Sequence[tuple[str, str]], right: Sequence[tuple[str, str]], both: Scope) -> str:
        pairs = [(a, b) for a, kind in left for b, other in right if kind == other and kind != MONEY]
        if not pairs or self._maybe(0.1):
            return self._condition(both, 0)
        equal = " = ".join(self._pick(pairs))
        return f"{equal} AND {self._condition(both, 0)}" if self._maybe(0.25) else equal

    def _where(self, scope: Scope) -> str:
        return f" WHERE {self._condition(scope, 2)}" if self._maybe(0.6) else ""

    def _condition(self, scope: Scope, depth: int) -> str:
        if depth and self._maybe(0.4):
            shape = self._pick((self._logic, self._logic, self._exists, self._in_subquery, self._quantified))
            return shape(scope, depth)
        kind = self._kind(scope)
        value = self._value(kind, scope, depth and 1)
        return self._pick(
            (
                f"{value} {self._pick(COMPARISONS)} {self._value(kind, scope, 0)}",
                f"{value} IS {self._pick(('', 'NOT '))}NULL",
                f"{value} {self._pick(('', 'NOT '))}IN ({', '.join(self._literals(kind))})",
                f"{value} BETWEEN {self._pick(LITERALS[kind])} AND {self._pick(LITERALS[kind])}",
                f"{self._value(TEXT, scope, 0)} LIKE '{self._pick(('a%', '%b', '_', '%', 'A'))}'",
            )
        )

    def _logic(self, scope: Scope, depth: int) -> str:
        left, right = self._condition(scope, depth - 1), self._condition(scope, depth - 1)
        return self._pick((f"({left} AND {right})", f"({left} OR {right})", f"NOT ({left})"))

    def _exists(self, scope: Scope, depth: int) -> str:
        source, tie, _ = self._inner(scope)
        return f"{self._pick(('', 'NOT '))}EXISTS (SELECT 1 FROM {source} WHERE {tie})"

    def _in_subquery(self, scope: Scope, depth: int) -> str:
        kind = self._pick((INT, TEXT))
        source, tie, inner = self._inner(scope, kind)
        correlated = f" WHERE {tie}" if self._maybe(0.5) else ""
        column = self._pick(inner.of(kind))
        return f"{self._value(kind, scope, 0)} {self._pick(('', 'NOT '))}IN (SELECT {column} FROM {source}{correlated})"

    def _quantified(self, scope: Scope, depth: int) -> str:
        source, tie, inner = self._inner(scope, INT)
        word = self._pick(("ANY", "ALL"))
        compared = f"{self._value(INT, scope, 0)} {self._pick(COMPARISONS[:-1])} {word}"
        return f"{compared} (SELECT {self._pick(inner.of(INT))} FROM {source} WHERE {tie})"

    def _scalar(self, kind: str, scope: Scope) -> str:
        source, tie, inner = self._inner(scope, kind)
        column = self._pick(inner.of(kind))
        value = self._pick((f"MAX({column})", f"MIN({column})", *((f"SUM({column})",) if kind == INT else ())))
        return f"(SELECT {value} FROM {source}{self._pick(('', f' WHERE {tie}', f' WHERE {tie}'))})"

    def _inner(self, scope: Scope, kind: str = INT) -> tuple[str, str, Scope]:
        """A table for a subquery, a condition that ties it to the query around, and its own columns."""
        while True:
            source, columns = self._relation()
            inner = Scope(columns)
            pairs = [(a, b) for a, its in columns for b, other in scope.columns if its == other and its != MONEY]
            if pairs and inner.of(kind):
                return source, " = ".join(self._pick(pairs)), inner

    def _aggregate(self, scope: Scope, kind: str | None = None) -> str:
        column = self._pick([name for name, _ in scope.columns])
        number = self._pick(scope.of(INT))
        counts = ("COUNT(*)", f"COUNT({column})", f"COUNT(DISTINCT {column})", f"SUM({number})")
        if kind == INT:
            return self._pick(counts)
        text = self._pick([name for name, its in scope.columns if its == TEXT] or [column])
        more = (
            f"count_if({number} > 2)",
            f"bool_and({number} > 2)",
            f"bit_or({number})",
            f"sort_array(collect_list({number}))",
            f"sort_array(collect_set({text}))",
            f"median({number})",
            f"SUM(DISTINCT {number})",
            f"COUNT({column}) FILTER (WHERE {number} > 2)",
            f"max(struct({number}, {text}))",
        )
        return self._pick((*counts, f"MIN({column})", f"MAX({column})", f"AVG({number})", *more))

    def _value(self, kind: str, scope: Scope, depth: int) -> str:
        columns = scope.of(kind)
        if not depth or self._maybe(0.5):
            return self._pick(columns) if columns and self._maybe(0.85) else self._pick(LITERALS[kind])
        shapes: list[Callable[[], str]] = [
            lambda: f"COALESCE({self._value(kind, scope, depth - 1)}, {self._pick(LITERALS[kind])})",
            lambda: self._case(kind, scope, depth),
            lambda: self._scalar(kind, scope),
        ]
        if kind != TEXT:
            operator = self._pick(("+", "-", "*") if kind == INT else ("+", "-"))
            left, right = self._value(kind, scope, depth - 1), self._value(kind, scope, 0)
            shapes += [lambda: f"({left} {operator} {right})"] * 2
        else:
            shapes += [lambda: f"upper({self._value(TEXT, scope, depth - 1)})"]
        return self._pick(shapes)()

    def _case(self, kind: str, scope: Scope, depth: int) -> str:
        when, then = self._condition(scope, 0), self._value(kind, scope, depth - 1)
        return f"CASE WHEN {when} THEN {then} ELSE {self._value(kind, scope, 0)} END"

    def _literals(self, kind: str) -> list[str]:
        return self._chance.sample([text for text in LITERALS[kind] if "NULL" not in text or self._maybe(0.3)], 2)

    def _kind(self, scope: Scope | None = None) -> str:
        kinds = [kind for kind in (INT, INT, TEXT, MONEY) if scope is None or scope.of(kind)]
        return self._pick(kinds)

    def _maybe(self, share: float) -> bool:
        return self._chance.random() < share

    def _pick(self, items: Sequence[Any]) -> Any:
        return items[self._chance.randrange(len(items))]
