"""Rows that satisfy a condition: found through the key or an index where the condition allows, else by scanning."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa
from sqlglot import exp

from millpond.errors import TableError
from millpond.expressions.aggregates import compile_aggregate
from millpond.expressions.compile import NotCompilable, compile_expression
from millpond.expressions.keys import Lookup, key_lookup
from millpond.expressions.parameters import in_order, matched
from millpond.plan.functions import aggregates_in, has_aggregate
from millpond.schema import Schema
from millpond.tables.coercion import to_array
from millpond.tables.conditions import Condition, Evaluator, parsed
from millpond.tables.draft import State
from millpond.tables.hashing import null_rows
from millpond.tables.index import Ids, distinct
from millpond.tables.keys import Keys, OneKey, among

# The types whose Python values are compared as they are.
_EXACT: dict[pa.DataType, type] = {pa.string(): str, pa.int64(): int, pa.binary(): bytes}


@dataclass(frozen=True)
class Selected:
    """Some rows of a state; `through` names the key or index columns that they were found by, `asked` how
    many keys that took."""

    state: State
    ids: Ids
    through: tuple[str, ...] = ()
    asked: int = 0

    def page(self, offset: int, limit: int | None) -> Selected:
        return replace(self, ids=self.ids[offset : None if limit is None else offset + limit])

    def table(self, positions: Sequence[int]) -> pa.Table:
        if len(self.ids) == self.state.live:
            return self.state.all(positions)
        return self.state.table(self.ids, positions)

    def columns(self, names: Sequence[str]) -> pa.Table:
        return self.table([self.state.schema.position(n) for n in names])


def select(state: State, condition: Condition, parameters: Sequence[Any], evaluator: Evaluator) -> Selected:
    """The rows for which a condition is true."""
    direct = _by_equalities(state, condition, parameters)
    if direct is not None:
        return direct
    matched(condition.expression, parameters)
    narrowed = _narrowed(state, condition.expression, parameters)
    if narrowed is None:
        near = state.narrowed(condition.expression, parameters)
        everything = Selected(state, state.ids() if near is None else near)
        true = evaluator.holds(condition.expression, everything.columns, parameters)
        return replace(everything, ids=everything.ids[true])
    selected, rest = narrowed
    if rest.remainder is None:
        return selected
    if not len(selected.ids):
        evaluator.check(condition.expression, parameters)
        return selected
    true = evaluator.holds(rest.remainder, selected.columns, rest.parameters)
    return replace(selected, ids=selected.ids[true])


def _by_equalities(state: State, condition: Condition, given: Sequence[Any]) -> Selected | None:
    """The rows of a condition such as `user_id = ?` on just the columns of the key or of an index, with values of
    these columns' own types: no types to reconcile."""
    names = condition.equalities
    if len(names) != len(given) or not names or len(set(names)) < len(names):
        return None
    schema = state.schema
    for columns in (tuple(schema.position(n) for n in schema.key), *state.indexed_columns):
        asked = [schema.columns[p] for p in columns]
        if len(asked) != len(names) or any(c.name.lower() not in names for c in asked):
            continue
        values = tuple([given[names.index(c.name.lower())] for c in asked])
        if not all(is_exact(v, c.type) for v, c in zip(values, asked, strict=True)):
            return None
        key = OneKey(values, [c.type for c in asked])
        through = tuple(c.name for c in asked)
        found = state.locate(key) if through == schema.key else state.locate_by(columns, key)
        return None if found is None else Selected(state, found[found >= 0], through, 1)
    return None


def is_exact(value: Any, type_: pa.DataType | None) -> bool:
    """Whether a value is compared as it is."""
    if type(value) is not _EXACT.get(type_):
        return False
    return type(value) is not str or value.isascii() or value.encode(errors="replace").decode() == value


def _narrowed(state: State, condition: exp.Expression, given: Sequence[Any]) -> tuple[Selected, Lookup] | None:
    """The rows that the key or an index leaves, and what else must hold for them; None when all rows must be read."""
    schema = state.schema
    key = tuple(schema.position(n) for n in schema.key)
    for columns in (key, *state.indexed_columns):
        wanted = key_lookup(condition, [schema.columns[p] for p in columns], given) if columns else None
        if wanted is None:
            continue
        names = tuple(schema.columns[p].name for p in columns)
        keys = Keys(tuple(to_array([k[i] for k in wanted.keys], schema.columns[p]) for i, p in enumerate(columns)))
        found = state.locate(keys) if columns == key else state.locate_by(columns, keys)
        assert found is not None
        return Selected(state, distinct(found[found >= 0]), names, len(keys)), wanted
    return None


def scan_for(state: State, columns: tuple[int, ...], keys: Keys) -> Ids:
    """The rows whose columns have one of the values, without an index."""
    table = state.all(columns).combine_chunks()
    own = Keys(tuple(c.combine_chunks() for c in table.columns))
    return state.ids()[among(own, keys)] if len(own) else state.ids()


def without_nulls(keys: Keys) -> Keys:
    """The keys that have no NULL in them."""
    missing = null_rows(keys.columns)
    return Keys(keys.at(np.flatnonzero(~missing))) if missing.any() else keys


def aggregate(evaluator: Evaluator, text: str, selected: Selected, parameters: Sequence[Any]) -> Any:
    """An expression over aggregates of the selected rows, such as SUM(volume) or ROUND(AVG(price), 2)."""
    expression = parsed(text).expression
    if not has_aggregate(expression):
        raise TableError("MP220", f"'{text}' has no aggregate.", hint="Write one, such as SUM(volume) or COUNT(*).")
    matched(expression, parameters)
    try:
        found = _by_arrow(evaluator.schema, expression, selected, parameters)
    except NotCompilable as error:
        # A query of aggregates over the rows is one row, in which the whole expression is evaluated.
        found = evaluator.by_spark(expression, selected.columns, parameters, error)
    return found[0].as_py(maps_as_pydicts="lossy")


def _by_arrow(schema: Schema, written: exp.Expression, selected: Selected, parameters: Sequence[Any]) -> pa.Array:
    """The aggregates by themselves, then the expression around them."""
    expression = written.copy()
    given = dict(zip(map(id, in_order(expression)), parameters, strict=True))
    found: dict[str, pa.Array] = {}
    calls: list[Any] = list(aggregates_in(expression))
    for call in calls:
        name = f"_aggregate_{len(found)}"
        own = [given[id(place)] for place in in_order(call)]
        compiled = compile_aggregate(call, schema, own)
        found[name] = pa.array([compiled.evaluate(selected.columns(compiled.columns or schema.names[:1]), own)])
        if call is expression:
            return found[name]
        call.replace(exp.column(name))
    rows = pa.table(found)
    own = [given[id(place)] for place in in_order(expression)]
    return compile_expression(expression, Schema.from_arrow(rows.schema), own).evaluate(rows, own)


def split_parameters(expression: str, parameters: Sequence[Any]) -> tuple[Sequence[Any], Sequence[Any]]:
    """The parameters of an expression, and those of the condition after it."""
    own = len(list(in_order(parsed(expression).expression)))
    return parameters[:own], parameters[own:]
