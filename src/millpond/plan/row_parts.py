"""Splits the expressions of a statement into what they read of the row of a key, and of the event."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

import pyarrow as pa
from sqlglot import exp

from millpond.plan.change_model import EVENT, HERE, ROW, Branch, Effect
from millpond.plan.expression_types import type_of, with_type
from millpond.plan.model import Step, StepKind
from millpond.schema import Schema, type_name
from millpond.sql.conditions import all_of
from millpond.sql.parser import parse_expression


def matches_by_key(
    query: exp.Query, condition: exp.Expr, columns: tuple[str, ...], target: str, schema: Schema
) -> bool:
    """Whether ON compares exactly the key columns, each with the value that is written to it."""
    found = compared_columns(query, condition, columns, target, schema)
    return bool(schema.key) and {name.lower() for name in found} == {name.lower() for name in schema.key}


def compared_columns(
    query: exp.Query, condition: exp.Expr, columns: tuple[str, ...], target: str, schema: Schema
) -> tuple[str, ...]:
    """The columns that ON compares, each with the value that is written to it; none if ON has other conditions, because
    a written row might not be found by the next event."""
    if not isinstance(query, exp.Select) or len(columns) != len(query.expressions):
        return ()
    written = {name.lower(): e.unalias() for name, e in zip(columns, query.expressions, strict=True)}
    found = [_compared(part, target) for part in all_of(condition)]
    if not all(name and written.get(name) == value and same_type(schema[name].type, value) for name, value in found):
        return ()
    return tuple(dict.fromkeys(schema[name].name for name, _ in found))


def _compared(part: exp.Expr, target: str) -> tuple[str, exp.Expr | None]:
    """The target's column of `column = value` and the value; ("", None) for anything else."""
    if isinstance(part, exp.EQ):
        for own, other in ((part.this, part.expression), (part.expression, part.this)):
            if is_own(own, target) and not any(is_own(c, target) for c in other.find_all(exp.Column)):
                return own.name.lower(), other
    return "", None


def is_own(node: exp.Expr, target: str) -> bool:
    """Whether a node is a column of the changed table."""
    return isinstance(node, exp.Column) and node.table.lower() == target.lower()


def same_type(own: pa.DataType | None, value: exp.Expr | None) -> bool:
    """Whether a value equals the column if and only if it does after the cast to the column's type."""
    given = type_of(value) if value is not None else None
    if own is None or given is None:
        return False
    if pa.types.is_floating(own) or pa.types.is_nested(own):
        # NaN and -0.0 are equal to values with other bits.
        return False
    return bool(own == given or (pa.types.is_integer(own) and pa.types.is_integer(given)))


# The node classes of queries inside of expressions.
QUERIES = (exp.Subquery, exp.Exists, exp.In, exp.Any, exp.All)


class NotByKey(Exception):
    """Raised with the reason if a statement does not find its rows by key; `reads_itself`: its result depends on rows
    of other keys."""

    def __init__(self, reason: str, *, reads_itself: bool = False) -> None:
        super().__init__(reason)
        self.reads_itself = reads_itself


def exists() -> exp.Column:
    """Whether there is a row of the key."""
    return exp.column(HERE, table=ROW, quoted=True)


def put(schema: Schema, values: Mapping[str, exp.Expr], matched: bool | None, condition: exp.Expr | None) -> Branch:
    """The branch that writes a whole row; columns without a value get their default."""
    whole = {c.name: values.get(c.name) or default_of(schema, c.name) for c in schema}
    return Branch(Effect.PUT, matched, condition, whole)


def default_of(schema: Schema, name: str) -> exp.Expr:
    """The value of a column for which none is given."""
    default = schema[name].default
    value: exp.Expr = parse_expression(default) if default is not None else exp.Null()
    return exp.cast(value, type_name(schema[name].type), dialect="spark")


def reads_table(expression: exp.Expr, name: str) -> bool:
    """Whether a query, or a subquery in an expression, reads a table."""
    return any(table.name.lower() == name.lower() for table in expression.find_all(exp.Table))


def mentions(expression: exp.Expr, alias: str) -> bool:
    """Whether an expression reads columns of a relation."""
    return any(column.table.lower() == alias.lower() for column in expression.find_all(exp.Column))


@dataclass
class Parts:
    """Collects the parts of expressions: columns of the row, and the values that are needed of the event."""

    target: str
    alias: str
    keys: Mapping[str, exp.Expr]
    # Converts a subquery over the target to an expression over the row, or raises NotByKey.
    own_query: Callable[[exp.Expr, Parts], exp.Expr]
    extra: dict[str, exp.Expr] = field(default_factory=dict)

    def over_row(self, expression: exp.Expr) -> exp.Expr:
        """The expression over ROW and EVENT."""
        return expression.copy().transform(self._placed)

    def _placed(self, node: exp.Expr) -> exp.Expr:
        if isinstance(node, QUERIES) and node.find(exp.Select) is not None:
            if reads_table(node, self.target):
                return self.own_query(node, self)
            return self.event(self._by_event(node))
        if isinstance(node, exp.Binary) and isinstance(node.expression, exp.Any | exp.All):
            return self._compared(node)
        if not isinstance(node, exp.Column):
            return node
        if node.table.lower() == self.alias.lower():
            return of_row(node)
        return self.event(node)

    def _compared(self, node: exp.Binary) -> exp.Expr:
        """`x > ANY (subquery)`, which cannot be split."""
        if reads_table(node, self.target) or mentions(node, self.alias):
            raise NotByKey("a comparison with ANY or ALL reads the row")
        return self.event(node)

    def _by_event(self, node: exp.Expr) -> exp.Expr:
        """A subquery over other tables that reads only the key of the row, which the event has too."""
        if not mentions(node, self.alias):
            return node
        keys = {name.lower(): value for name, value in self.keys.items()}

        def known(inner: exp.Expr) -> exp.Expr:
            if isinstance(inner, exp.Column) and inner.table.lower() == self.alias.lower():
                if inner.name.lower() not in keys:
                    raise NotByKey(f"a subquery reads {inner.table}.{inner.name}")
                return keys[inner.name.lower()].copy()
            return inner

        return node.copy().transform(known)

    def event(self, node: exp.Expr) -> exp.Expr:
        """A value that an item must contain."""
        name = next((name for name, found in self.extra.items() if found == node), f"__mp_e{len(self.extra)}")
        self.extra.setdefault(name, node.copy())
        return with_type(exp.column(name, table=EVENT, quoted=True), type_of(node))


def compared(node: exp.Expr) -> exp.Expr:
    """The whole comparison, if a subquery has ANY or ALL."""
    return node.parent if isinstance(node, exp.Any | exp.All) and node.parent is not None else node


def of_row(column: exp.Column) -> exp.Expr:
    """A column of the table as a column of ROW."""
    return with_type(exp.column(column.name, table=ROW, quoted=True), type_of(column))


def items_of(
    select: exp.Select, columns: Mapping[str, exp.Expr], parts: Parts, conditions: list[exp.Expr]
) -> exp.Query:
    """The query of the relevant events: values of columns, and what else the branches read."""
    made = select.copy()
    outputs = {**columns, **parts.extra}
    made.set("expressions", [exp.alias_(value.copy(), name, quoted=True) for name, value in outputs.items()])
    made.set("where", None)
    return made.where(*(c.copy() for c in conditions)) if conditions else made


def key_values(
    conditions: Iterable[exp.Expr], alias: str, schema: Schema, wanted: Mapping[str, exp.Expr] | None = None
) -> tuple[dict[str, exp.Expr], list[exp.Expr]]:
    """The values to which conditions compare the key (only `wanted` ones, if given), and the other conditions. Raises
    NotByKey unless all key columns are compared."""
    keys: dict[str, exp.Expr] = {}
    rest: list[exp.Expr] = []
    for condition in conditions:
        name, value = _equality(condition, alias, schema)
        if value is None or name in keys or (wanted is not None and wanted[name] != value):
            rest.append(condition)
        else:
            keys[name] = value
    missing = [name for name in schema.key if name not in keys]
    if missing:
        raise NotByKey(f"no condition compares {', '.join(missing)} of its key")
    return {name: keys[name] for name in schema.key}, rest


def _equality(condition: exp.Expr, alias: str, schema: Schema) -> tuple[str, exp.Expr | None]:
    """The key column that a condition compares with a value of the event, and the value."""
    if isinstance(condition, exp.EQ):
        for own, other in ((condition.this, condition.expression), (condition.expression, condition.this)):
            is_own = isinstance(own, exp.Column) and own.table.lower() == alias.lower()
            if not is_own or mentions(other, alias) or other.find(exp.Select) is not None:
                continue
            name = schema[own.name].name if own.name in schema else ""
            if name in schema.key and same_type(schema[name].type, other):
                return name, other
    return "", None


def all_true(conditions: Iterable[exp.Expr]) -> exp.Expr | None:
    """The conjunction of several conditions."""
    found = list(conditions)
    return exp.and_(*found) if found else None


def inserting(
    step: Step, schema: Schema, values: Mapping[str, exp.Expr], condition: exp.Expr | None
) -> tuple[Branch, ...]:
    """The branches of INSERT, which replaces a row, and UPSERT, which changes the columns it lists."""
    if step.kind is not StepKind.UPSERT or len(values) == len(schema):
        return (put(schema, values, None, condition),)
    changed = {name: value for name, value in values.items() if name not in schema.key}
    return Branch(Effect.SET, True, condition, changed), put(schema, values, False, condition)
