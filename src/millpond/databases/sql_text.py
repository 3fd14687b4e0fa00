"""Statements for a database: names quoted, values bound, and the conditions that it evaluates as Spark does."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from decimal import Decimal
from typing import Any

import pyarrow as pa

from millpond.contracts.source import Predicate, SourceSpec
from millpond.databases.address import parameters
from millpond.errors import SourceError
from millpond.schema import Schema

# In place of a value that is bound.
MARK = "?"


@dataclass(frozen=True)
class Statement:
    """A text with a MARK for each value; marks inside quotes and comments are none."""

    text: str
    values: tuple[Any, ...] = ()

    def numbered(self, mark: Callable[[int], str]) -> str:
        """The text with the marks of a driver: `mark(n)` for the n-th value, counted from 0."""
        parts = divided(self.text)
        return "".join(part + (mark(n) if n < len(parts) - 1 else "") for n, part in enumerate(parts))


def divided(text: str) -> list[str]:
    """A text, divided at its marks. Quoted texts and names, dollar quotes and comments are left alone."""
    parts, start, at = [], 0, 0
    while at < len(text):
        behind = _quoted(text, at)
        if behind is not None:
            at = behind
        elif text[at] == MARK:
            parts.append(text[start:at])
            start = at = at + 1
        else:
            at += 1
    return [*parts, text[start:]]


def _quoted(text: str, at: int) -> int | None:
    """Where something ends that is quoted or a comment and starts here."""
    if text[at] in "'\"`":
        end = at + 1
        while (end := text.find(text[at], end)) >= 0 and text[end : end + 2] == text[at] * 2:
            end += 2
        return len(text) if end < 0 else end + 1
    for start, stop in (("--", "\n"), ("/*", "*/")):
        if text.startswith(start, at):
            end = text.find(stop, at)
            return len(text) if end < 0 else end + len(stop)
    if (
        text[at] == "$"
        and (end := text.find("$", at + 1)) >= 0
        and text[at + 1 : end].replace("_", "a").isalnum() | (end == at + 1)
    ):
        tag = text[at : end + 1]
        close = text.find(tag, end + 1)
        return close + len(tag) if close >= 0 else None
    return None


@dataclass(frozen=True)
class Dialect:
    """How a database writes statements. `quote` encloses names; `strings` are the operators by which it finds at least
    the texts that Spark finds; `others` are columns that are texts only here, on which no condition is sent."""

    quote: str = '"'
    strings: tuple[str, ...] = ("=", "in")
    others: frozenset[str] = frozenset()

    def name(self, text: str) -> str:
        return self.quote + text.replace(self.quote, self.quote * 2) + self.quote

    def accepts(self, predicate: Predicate, type_: pa.DataType | None) -> bool:
        """Whether the database finds at least the rows that Spark would."""
        if type_ is None or predicate.operator in ("is null", "is not null"):
            return predicate.operator in ("is null", "is not null")
        return (
            predicate.column not in self.others
            and all(_fits(value, type_) for value in predicate.values)
            and (not pa.types.is_string(type_) or predicate.operator in self.strings)
        )


def _fits(value: Any, type_: pa.DataType) -> bool:
    """Whether a constant has the kind of a column: nothing is to be cast."""
    if isinstance(value, bool):
        return bool(pa.types.is_boolean(type_))
    if isinstance(value, int):
        return bool(pa.types.is_integer(type_) or pa.types.is_decimal(type_)) and -(2**63) <= value < 2**63
    if isinstance(value, Decimal):
        return bool(pa.types.is_decimal(type_))
    if isinstance(value, dt.date):
        return bool(pa.types.is_date(type_))
    return isinstance(value, str) and bool(pa.types.is_string(type_))


@dataclass(frozen=True)
class Selection:
    """What is read: a table or query, the columns that are wanted, and conditions beside the user's own."""

    spec: SourceSpec
    dialect: Dialect
    columns: Schema | None
    # What is selected for each column, where that is not the column itself.
    expressions: Mapping[str, str] = field(default_factory=dict)
    more: tuple[tuple[str, tuple[Any, ...]], ...] = ()
    # What is selected beside the columns.
    beside: tuple[str, ...] = ()
    # Another query in place of what the spec reads.
    inner: Statement | None = None

    @property
    def names(self) -> tuple[str, ...] | None:
        """The columns that are sent; None for all, in the order of the database."""
        if self.columns is None:
            return self.spec.wanted.columns
        wanted = self.spec.wanted.columns
        # If no column is needed, the rows still count.
        return tuple(c.name for c in self.columns if wanted is None or c.name in wanted) or self.columns.names[:1]

    def where(self, text: str, *values: Any) -> Selection:
        """With one more condition."""
        return replace(self, more=(*self.more, (text, values)))

    def source(self) -> Statement:
        """The table, or the query in brackets."""
        values = self.spec.values
        if self.inner is not None or values.get("query"):
            inner = self.inner or Statement(values["query"], tuple(bound(self.spec)))
            text = inner.text.strip().rstrip(";").rstrip()
            return Statement(f"({text}\n) AS q", inner.values)
        parts = [values["schema"], values["table"]] if values.get("schema") else [values["table"]]
        return Statement(".".join(self.dialect.name(part) for part in parts))

    def statement(self) -> Statement:
        """The SELECT."""
        names = self.names
        listed = [self._selected(name) for name in names] if names is not None else ["*"]
        source = self.source()
        text, values = f"SELECT {', '.join([*listed, *self.beside]) or '1'} FROM {source.text}", list(source.values)
        conditions = self._conditions()
        if conditions:
            text += " WHERE " + " AND ".join(condition for condition, _ in conditions)
            values += [value for _, given in conditions for value in given]
        if self.spec.values.get("order.by"):
            text += f" ORDER BY {self.spec.values['order.by']}"
        if self.spec.values.get("limit") is not None:
            text += f" LIMIT {int(self.spec.values['limit'])}"
        return Statement(text, tuple(values))

    def _selected(self, name: str) -> str:
        expression = self.expressions.get(name)
        quoted = self.dialect.name(name)
        return quoted if expression is None else f"{expression} AS {quoted}"

    def _conditions(self) -> list[tuple[str, tuple[Any, ...]]]:
        found: list[tuple[str, tuple[Any, ...]]] = []
        if self.spec.values.get("where") and self.inner is None:
            found.append((f"({self.spec.values['where']}\n)", ()))
        # Conditions on the rows that a limit has chosen are evaluated here: the server would choose others.
        if self.spec.values.get("limit") is None:
            found += [self._rendered(p) for p in self.spec.wanted.predicates if self._is_sent(p)]
        return [*found, *self.more]

    def _is_sent(self, predicate: Predicate) -> bool:
        if self.columns is None:
            return True
        column = self.columns.get(predicate.column)
        return column is not None and self.dialect.accepts(predicate, column.type)

    def _rendered(self, predicate: Predicate) -> tuple[str, tuple[Any, ...]]:
        name = self.dialect.name(predicate.column)
        if predicate.operator in ("is null", "is not null"):
            return f"{name} {predicate.operator.upper()}", ()
        if predicate.operator == "in":
            return f"{name} IN ({', '.join(MARK * len(predicate.values))})", predicate.values
        return f"{name} {predicate.operator.upper()} {MARK}", predicate.values


def bound(spec: SourceSpec) -> list[Any]:
    """The values for the marks of a query; MP508 unless there are as many of them."""
    values, marks = parameters(spec.values), len(divided(spec.values.get("query") or "")) - 1
    if len(values) != marks:
        message = f"The query of '{spec.shown}' has {marks} `?`, but 'query.params' has {len(values)} values."
        raise SourceError("MP508", message, hint="Give one value for each, several as a JSON list: '[1, \"a\"]'.")
    return values


def shown(statement: Statement) -> str:
    """A statement as people read it, with its values in place."""
    parts = divided(statement.text)
    texts = [_shown(value) for value in statement.values]
    return " ".join("".join(a + b for a, b in zip(parts, [*texts, ""], strict=False)).split())


def _shown(value: Any) -> str:
    if isinstance(value, str):
        return "'" + value.replace("'", "''") + "'"
    if isinstance(value, dt.date):
        return f"DATE '{value.isoformat()}'"
    return str(value).upper() if isinstance(value, bool) else str(value)


def missing_columns(names: Collection[str], columns: Schema) -> list[str]:
    """Names that are no columns."""
    return [name for name in names if columns.get(name) is None]


def key_of(spec: SourceSpec, columns: Schema, catalog: Sequence[str]) -> Schema:
    """The columns with their key: that of 'key', else that of the catalog. MP208 for a name that is no column."""
    wanted = spec.values.get("key") or tuple(catalog)
    absent = missing_columns(wanted, columns)
    if absent:
        hint = f"Its columns are: {', '.join(columns.names)}."
        raise SourceError(
            "MP508", f"'key' of '{spec.shown}' refers to '{absent[0]}', which is not a column.", hint=hint
        )
    return columns.with_key(tuple(columns[name].name for name in wanted))
