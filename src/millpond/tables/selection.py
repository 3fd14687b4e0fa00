"""Selection of a table's rows by a condition, through key or index if possible, and evaluation of expressions."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from sqlglot import exp

from millpond.contracts.table import Fallback
from millpond.errors import BindError, TableError, did_you_mean
from millpond.expressions.aggregates import compile_aggregate
from millpond.expressions.compile import Compiled, NotCompilable, compile_expression
from millpond.expressions.key_conditions import Lookup, key_lookup
from millpond.expressions.parameters import in_order, matched
from millpond.plan.function_names import aggregates_in, has_aggregate
from millpond.plan.path_uses import with_paths
from millpond.schema import Column, Schema
from millpond.sql.parser import parse_expression
from millpond.tables.draft import State
from millpond.tables.hashing import null_rows
from millpond.tables.index import Ids, distinct
from millpond.tables.lookup_keys import Keys, OneKey, among
from millpond.tables.row_conversion import to_array
from millpond.tables.value_conversion import cast_array

# The sizes of the caches of parsed texts (least recently used) and of compiled expressions per table (oldest).
_PARSED_MAX = 1024
_COMPILED_MAX = 256

Reader = Callable[[Sequence[str]], pa.Table]


@dataclass(frozen=True)
class Condition:
    """A parsed condition, for any table and any parameters."""

    text: str
    expression: exp.Expression

    def __str__(self) -> str:
        return self.text

    @cached_property
    def equalities(self) -> tuple[str, ...]:
        """The columns of a condition of the form `a = ? AND b = ?`, in order; none for any other condition."""
        parts = list(self.expression.flatten()) if isinstance(self.expression, exp.And) else [self.expression]
        columns = [_compared_with_placeholder(part) for part in parts]
        return tuple(c for c in columns if c) if all(columns) else ()


def _compared_with_placeholder(part: object) -> str:
    if not isinstance(part, exp.EQ) or not isinstance(part.expression, exp.Placeholder):
        return ""
    column = part.this
    return column.name.lower() if isinstance(column, exp.Column) and len(column.parts) == 1 else ""


@lru_cache(_PARSED_MAX)
def parsed(text: str) -> Condition:
    """Parse the text of a condition; MP1xx if it is invalid."""
    return Condition(text, parse_expression(text))


def as_condition(condition: Any) -> Condition | None:
    """A condition from a caller's argument: None, text, an expression, or a condition."""
    if condition is None or isinstance(condition, Condition):
        return condition
    if isinstance(condition, str):
        return parsed(condition)
    if isinstance(condition, exp.Expression):
        return Condition(condition.sql("spark"), condition)
    hint = "Pass SQL text such as \"tier = 'GOLD'\", or the result of table.condition(text)."
    raise TableError("MP409", f"A condition of type {type(condition).__name__} is not supported.", hint=hint)


def _check_of_one_row(expression: exp.Expression) -> None:
    """MP220 and MP224 for aggregates and subqueries, which cannot be evaluated for a single row."""
    if has_aggregate(expression):
        message = f"'{expression.sql('spark')}' is evaluated for each row, where an aggregate is not allowed."
        raise BindError("MP220", message, hint="Use table.scalar, or app.query with GROUP BY and HAVING.")
    other = next((table.name for table in expression.find_all(exp.Table)), None)
    if other is not None:
        message = f"A condition on one table cannot read '{other}'."
        raise BindError("MP224", message, hint="Use app.query or app.execute, where subqueries read all tables.")


class Evaluator:
    """Evaluates expressions over a table's rows; `fallback` evaluates what Arrow does not support exactly."""

    def __init__(self, schema: Schema, fallback: Fallback | None) -> None:
        self.schema = schema
        self.fallback = fallback
        # Compiled once per parsed expression; the entry keeps a reference to it, so that its id is not reused.
        self._compiled: OrderedDict[int, Compiled] = OrderedDict()
        # Expressions with their paths expanded; each entry also keeps the original.
        self._expanded: OrderedDict[int, tuple[exp.Expression, exp.Expression]] = OrderedDict()

    def expanded(self, condition: Condition) -> Condition:
        """The condition with its wildcard paths expanded by the types of the columns."""
        known = self._expanded.get(id(condition.expression))
        if known is None:
            known = (condition.expression, with_paths(condition.expression, self.schema))
            self._expanded[id(condition.expression)] = known
            if len(self._expanded) > _COMPILED_MAX:
                self._expanded.popitem(last=False)
        return condition if known[1] is condition.expression else Condition(condition.text, known[1])

    def values(self, expression: exp.Expression, read: Reader, parameters: Sequence[Any]) -> pa.Array:
        """One value per row; `read` returns the rows with the requested columns."""
        try:
            compiled = self._compile(expression, parameters)
            names = compiled.columns or self.schema.names[:1]
            result = compiled.evaluate(read(names), parameters)
        except NotCompilable as error:
            _check_of_one_row(expression)
            result = self.by_spark(expression, read, parameters, error)
        return result.combine_chunks() if isinstance(result, pa.ChunkedArray) else result

    def over(self, expression: exp.Expression, rows: pa.Table) -> pa.Array:
        """One value per row of a table in memory."""
        return self.values(expression, rows.select, ())

    def check(self, expression: exp.Expression, parameters: Sequence[Any]) -> None:
        """Raise the errors of an expression without evaluating it, so that they do not depend on whether there are
        rows."""
        try:
            self._compile(expression, parameters)
        except NotCompilable:
            _check_of_one_row(expression)
            self._check_columns(expression)

    def by_spark(
        self, expression: exp.Expression, read: Reader, parameters: Sequence[Any], why: NotCompilable
    ) -> pa.Array:
        """The values of an expression as Spark evaluates it; MP409 without Spark."""
        if self.fallback is None:
            message = f"'{expression.sql('spark')}' requires Spark: {why}."
            raise TableError("MP409", message, hint="Use it in an app, which has a Spark session.") from why
        self._check_columns(expression)
        return self.fallback(expression, read(self.schema.names), parameters)

    def _check_columns(self, expression: exp.Expression) -> None:
        """MP202 for a name that is not a column, before Spark would report it in its own words."""
        own = {name.name for lambda_ in expression.find_all(exp.Lambda) for name in lambda_.expressions}
        for column in expression.find_all(exp.Column):
            if not column.table and column.name not in self.schema and column.name not in own:
                hint = (
                    did_you_mean(column.name, self.schema.names) or f"The columns are: {', '.join(self.schema.names)}."
                )
                raise BindError("MP202", f"There is no column '{column.name}'.", hint=hint)

    def holds(self, expression: exp.Expression, read: Reader, parameters: Sequence[Any]) -> np.ndarray[Any, Any]:
        """For which rows a condition is true; NULL is not true."""
        values = self.values(expression, read, parameters)
        if pa.types.is_null(values.type):
            return np.zeros(len(values), dtype=np.bool_)
        if not pa.types.is_boolean(values.type):
            message = f"'{expression.sql('spark')}' is not a condition, because it is not BOOLEAN."
            raise TableError("MP409", message, hint="Write a comparison.")
        return np.asarray(pc.fill_null(values, False).to_numpy(zero_copy_only=False))

    def default(self, column: Column, rows: int) -> pa.Array:
        """A column's default for each row; NULL if it has none."""
        if column.default is None or not rows:
            return pa.nulls(rows, column.type)
        # Evaluated for each row, because two rows must not share the result of uuid().
        blank = pa.table([pa.nulls(rows, c.type) for c in self.schema], schema=self.schema.arrow())
        return cast_array(self.values(parsed(column.default).expression, blank.select, ()), column)

    def _compile(self, expression: exp.Expression, parameters: Sequence[Any]) -> Compiled:
        known = self._compiled.get(id(expression))
        if known is None:
            known = compile_expression(expression, self.schema, parameters)
            self._compiled[id(expression)] = known
            if len(self._compiled) > _COMPILED_MAX:
                self._compiled.popitem(last=False)
        return known


# The types whose Python values can be compared without conversion.
_EXACT: dict[pa.DataType, type] = {pa.string(): str, pa.int64(): int, pa.binary(): bytes}


@dataclass(frozen=True)
class Selected:
    """Some rows of a state; `through` are the key or index columns by which they were found, `asked` is the number of
    keys that were looked up."""

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
    condition = evaluator.expanded(condition)
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
    """The rows of a condition such as `user_id = ?` on exactly the columns of the key or of an index, with values of
    the columns' own types, so that no conversion is necessary."""
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
    """Whether a value can be compared without conversion."""
    if type(value) is not _EXACT.get(type_):
        return False
    return type(value) is not str or value.isascii() or value.encode(errors="replace").decode() == value


def _narrowed(state: State, condition: exp.Expression, given: Sequence[Any]) -> tuple[Selected, Lookup] | None:
    """The rows that were found by the key or an index, and the remaining condition; None if all rows must be read."""
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
    """The keys without NULL."""
    missing = null_rows(keys.columns)
    return Keys(keys.at(np.flatnonzero(~missing))) if missing.any() else keys


def aggregate(evaluator: Evaluator, text: str, selected: Selected, parameters: Sequence[Any]) -> Any:
    """An expression over aggregates of the selected rows, such as SUM(volume) or ROUND(AVG(price), 2)."""
    expression = evaluator.expanded(parsed(text)).expression
    if not has_aggregate(expression):
        raise TableError(
            "MP220", f"'{text}' contains no aggregate.", hint="Write one, such as SUM(volume) or COUNT(*)."
        )
    matched(expression, parameters)
    try:
        found = _by_arrow(evaluator.schema, expression, selected, parameters)
    except NotCompilable as error:
        # An aggregate query without GROUP BY returns one row, in which the whole expression is evaluated.
        found = evaluator.by_spark(expression, selected.columns, parameters, error)
    return found[0].as_py(maps_as_pydicts="lossy")


def _by_arrow(schema: Schema, written: exp.Expression, selected: Selected, parameters: Sequence[Any]) -> pa.Array:
    """Evaluate the aggregates, then the expression around them."""
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
