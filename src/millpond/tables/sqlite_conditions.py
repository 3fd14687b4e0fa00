"""The parts of a condition that SQLite decides as we do: whole numbers and texts compared with values of their kind.

Decimals, doubles, times, LIKE, arithmetic and functions differ there, and are left to our own evaluation."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

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
class Pushed:
    """A condition for SQLite and the values of its `?`. Every row that it leaves out fails the whole condition."""

    sql: str
    values: tuple[Any, ...]


def pushed(condition: exp.Expression, schema: Schema, parameters: Sequence[Any]) -> Pushed | None:
    """The conjuncts that SQLite decides as we do, or None when there are none."""
    translator = _Translator(schema, placeholders(condition), parameters)
    parts = [translator.condition(part) for part in all_of(condition)]
    known = [part for part in parts if part is not None]
    return _joined("AND", known) if known else None


def _joined(word: str, parts: Sequence[Pushed]) -> Pushed:
    sql = f" {word} ".join(f"({part.sql})" for part in parts)
    return Pushed(sql, tuple(value for part in parts for value in part.values))


@dataclass(frozen=True)
class _Translator:
    schema: Schema
    places: dict[int, int]
    parameters: Sequence[Any]

    def condition(self, node: Any) -> Pushed | None:
        node = node.unnest()
        if isinstance(node, exp.And | exp.Or):
            parts = [self.condition(node.this), self.condition(node.expression)]
            known = [part for part in parts if part is not None]
            return _joined("AND" if isinstance(node, exp.And) else "OR", known) if len(known) == 2 else None
        if type(node) in _COMPARED:
            return self._comparison(node.this, _COMPARED[type(node)], node.expression)
        if isinstance(node, exp.Between) and set(node.args) <= {"this", "low", "high"}:
            low = self._comparison(node.this, ">=", node.args["low"])
            high = self._comparison(node.this, "<=", node.args["high"])
            return _joined("AND", [low, high]) if low and high else None
        if isinstance(node, exp.In) and node.expressions and not node.args.get("query"):
            parts = [self._comparison(node.this, "=", item) for item in node.expressions]
            known = [part for part in parts if part is not None]
            return _joined("OR", known) if len(known) == len(parts) else None
        if isinstance(node, exp.Is) and isinstance(node.expression, exp.Null):
            name = self._column(node.this)
            return Pushed(f"{quoted(name)} IS NULL", ()) if name else None
        return None

    def _comparison(self, left: Any, word: str, right: Any) -> Pushed | None:
        if not self._column(left):
            left, word, right = right, _MIRRORED.get(word, word), left
        name = self._column(left)
        value = self._value(right)
        if not name or value is None or not _same_kind(self.schema[name].type, value):
            return None
        return Pushed(f"{quoted(name)} {word} ?", (value,))

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


def _same_kind(type_: pa.DataType, value: Any) -> bool:
    if pa.types.is_integer(type_):
        return type(value) is int and abs(value) <= _BIGINT_MAX
    return pa.types.is_string(type_) and type(value) is str


def quoted(name: str) -> str:
    """A name as SQLite takes it."""
    return '"' + name.replace('"', '""') + '"'
