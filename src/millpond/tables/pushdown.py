"""The parts of a condition that a database evaluates like Spark: integers and texts compared with values of their type.

Decimals, doubles, times, LIKE, arithmetic and functions differ between databases, and are evaluated here."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import pyarrow as pa
from sqlglot import exp

from millpond.expressions.parameters import placeholders
from millpond.schema import Schema
from millpond.sql.conditions import all_of

_COMPARED: dict[type[exp.Expression], str] = {
    exp.EQ: "=",
    exp.NEQ: "<>",
    exp.LT: "<",
    exp.LTE: "<=",
    exp.GT: ">",
    exp.GTE: ">=",
}
_MIRRORED = {"<": ">", "<=": ">=", ">": "<", ">=": "<="}
_BIGINT_MAX = 2**63 - 1


@dataclass(frozen=True)
class SqlRules:
    """How a database writes conditions: names, the place of a value, and what makes it compare texts by their bytes."""

    quoted: Callable[[str], str]
    mark: str = "?"
    by_bytes: str = ""


@dataclass(frozen=True)
class Pushed:
    """A condition for a database and the values of its marks. A row that it rejects cannot satisfy the whole
    condition."""

    sql: str
    values: tuple[Any, ...]


@dataclass(frozen=True)
class Comparison:
    """A column compared with a value of its kind."""

    column: str
    word: str
    value: Any


@dataclass(frozen=True)
class IsNull:
    """A column that is NULL."""

    column: str


@dataclass(frozen=True)
class Joined:
    """Several conditions, joined by AND or OR."""

    word: str
    parts: tuple[Part, ...]


Part: TypeAlias = Comparison | IsNull | Joined


def pushed_part(condition: exp.Expression, schema: Schema, parameters: Sequence[Any]) -> Part | None:
    """The conjuncts that a server evaluates like Spark, or None if there are none."""
    translator = _Translator(schema, placeholders(condition), parameters)
    parts = [translator.condition(part) for part in all_of(condition)]
    known = tuple(part for part in parts if part is not None)
    return Joined("AND", known) if known else None


def pushed(
    condition: exp.Expression, schema: Schema, parameters: Sequence[Any], rules: SqlRules | None = None
) -> Pushed | None:
    """The same in the SQL of a database."""
    part = pushed_part(condition, schema, parameters)
    return None if part is None else _in_sql(part, rules or SQLITE)


def whole_part(condition: exp.Expression, schema: Schema) -> Part | None:
    """A condition that a server evaluates like Spark as a whole; None if a part of it is evaluated here."""
    return _Translator(schema, placeholders(condition), ()).condition(condition)


def in_sql(part: Part, rules: SqlRules) -> Pushed:
    """A condition in the SQL of a database."""
    return _in_sql(part, rules)


def _in_sql(part: Part, rules: SqlRules) -> Pushed:
    if isinstance(part, IsNull):
        return Pushed(f"{rules.quoted(part.column)} IS NULL", ())
    if isinstance(part, Joined):
        parts = [_in_sql(each, rules) for each in part.parts]
        sql = f" {part.word} ".join(f"({each.sql})" for each in parts)
        return Pushed(sql, tuple(value for each in parts for value in each.values))
    # Equal texts are equal bytes under every deterministic collation, and an index serves them.
    how = rules.by_bytes if isinstance(part.value, str) and part.word not in ("=", "<>") else ""
    return Pushed(f"{rules.quoted(part.column)}{how} {part.word} {rules.mark}", (part.value,))


@dataclass(frozen=True)
class Range:
    """The values of a column that may satisfy a condition, both ends included; None for no bound."""

    column: str
    type: pa.DataType
    low: Any = None
    high: Any = None


def ranges(
    condition: exp.Expression, schema: Schema, parameters: Sequence[Any], columns: Sequence[str]
) -> Iterator[Range]:
    """The ranges of some columns that a condition has as a whole, for a server with ordered values."""
    translator = _Translator(schema, placeholders(condition), parameters)
    for part in all_of(condition):
        node: Any = part.unnest()
        if isinstance(node, exp.Between) and not node.args.get("symmetric"):
            bounds = [(node.this, ">=", node.args["low"]), (node.this, "<=", node.args["high"])]
        elif type(node) in _COMPARED and not isinstance(node, exp.NEQ):
            bounds = [(node.this, _COMPARED[type(node)], node.expression)]
        else:
            continue
        found = [translator.bound(*bound) for bound in bounds]
        known = [each for each in found if each is not None and each.column in columns]
        if known:
            low = next((each.low for each in known if each.low is not None), None)
            yield Range(known[0].column, known[0].type, low, next((e.high for e in known if e.high is not None), None))


@dataclass(frozen=True)
class _Translator:
    schema: Schema
    places: dict[int, int]
    parameters: Sequence[Any]

    def condition(self, node: Any) -> Part | None:
        node = node.unnest()
        if isinstance(node, exp.And | exp.Or):
            word = "AND" if isinstance(node, exp.And) else "OR"
            return _all(word, [self.condition(node.this), self.condition(node.expression)])
        if type(node) in _COMPARED:
            return self._comparison(node.this, _COMPARED[type(node)], node.expression)
        if isinstance(node, exp.Between) and not node.args.get("symmetric"):
            low = self._comparison(node.this, ">=", node.args["low"])
            return _all("AND", [low, self._comparison(node.this, "<=", node.args["high"])])
        if isinstance(node, exp.In) and node.expressions and not node.args.get("query"):
            return _all("OR", [self._comparison(node.this, "=", item) for item in node.expressions])
        if isinstance(node, exp.Is) and isinstance(node.expression, exp.Null):
            name = self._column(node.this)
            return IsNull(name) if name else None
        return None

    def _comparison(self, left: Any, word: str, right: Any) -> Part | None:
        if not self._column(left):
            left, word, right = right, _MIRRORED.get(word, word), left
        name = self._column(left)
        value = self._value(right)
        if not name or value is None or not _same_kind(self.schema[name].type, value):
            return None
        return Comparison(name, word, value)

    def bound(self, left: Any, word: str, right: Any) -> Range | None:
        """The range of a comparison of a column with a value of its kind."""
        if not self._column(left):
            left, word, right = right, _MIRRORED.get(word, word), left
        name = self._column(left)
        if not name:
            return None
        type_ = self.schema[name].type
        value = self._ordered(right, type_)
        if value is None:
            return None
        return Range(name, type_, None if word[0] == "<" else value, None if word[0] == ">" else value)

    def _ordered(self, node: Any, type_: pa.DataType) -> Any:
        """A whole number for a column of whole numbers, or a moment or day for a column of such."""
        node = node.unnest()
        if pa.types.is_integer(type_):
            value = self._value(node)
            return value if type(value) is int and abs(value) <= _BIGINT_MAX else None
        if not (pa.types.is_timestamp(type_) or pa.types.is_date(type_)):
            return None
        if isinstance(node, exp.Cast) and isinstance(node.this, exp.Literal):
            node = node.this
        value = self._value(node)
        try:
            value = dt.datetime.fromisoformat(value) if isinstance(value, str) else value
        except ValueError:
            return None
        if pa.types.is_date(type_):
            return value if type(value) is dt.date else None
        if not isinstance(value, dt.datetime):
            return None
        zoned = value if value.tzinfo is not None else value.replace(tzinfo=dt.UTC)
        return zoned if type_.tz is not None else zoned.replace(tzinfo=None)

    def _column(self, node: Any) -> str:
        node = node.unnest()
        if not isinstance(node, exp.Column) or len(node.parts) != 1 or node.name not in self.schema:
            return ""
        return self.schema[node.name].name

    def _value(self, node: Any) -> Any:
        node = node.unnest()
        if isinstance(node, exp.Neg):
            value = self._value(node.this)
            return -value if type(value) is int else None
        if isinstance(node, exp.Placeholder):
            place = self.places[id(node)]
            return self.parameters[place] if place < len(self.parameters) else None
        if not isinstance(node, exp.Literal):
            return None
        if node.is_string:
            return node.this
        return int(node.this) if node.this.isdecimal() else None


def _all(word: str, parts: Sequence[Part | None]) -> Part | None:
    known = tuple(part for part in parts if part is not None)
    return Joined(word, known) if len(known) == len(parts) else None


def _same_kind(type_: pa.DataType, value: Any) -> bool:
    if pa.types.is_integer(type_):
        return type(value) is int and abs(value) <= _BIGINT_MAX
    return pa.types.is_string(type_) and type(value) is str


def quoted(name: str) -> str:
    """A quoted name for SQLite."""
    return '"' + name.replace('"', '""') + '"'


SQLITE = SqlRules(quoted)
