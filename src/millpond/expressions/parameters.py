"""Parameters, the values of `?`: their SQL types and order; lists, dicts and tuples are nested values."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
from sqlglot import exp

from millpond.errors import TableError
from millpond.expressions.coercion import BIGINT, BINARY, BOOLEAN, DATE, DOUBLE, INT, STRING, VOID
from millpond.expressions.failures import NotCompilable
from millpond.expressions.literals import BIGINT_MAX, INT_MAX, decimal_constant
from millpond.expressions.terms import Constant
from millpond.schema import TIMESTAMP, Schema, type_name
from millpond.sql.parser import parse_expression

# A bool is an int and a datetime a date in Python, so the narrower class comes first.
_TYPES: tuple[tuple[type, pa.DataType], ...] = (
    (bool, BOOLEAN),
    (str, STRING),
    (float, DOUBLE),
    (bytes, BINARY),
    (datetime, TIMESTAMP),
    (date, DATE),
)

Shape = tuple[tuple[pa.DataType, int], ...]


def constant(value: object) -> Constant:
    """A Python value as a literal; a whole number is an INT when it fits, a time without a zone is UTC."""
    if value is None:
        return Constant(None, VOID)
    if isinstance(value, datetime) and value.tzinfo is None:
        return Constant(value.replace(tzinfo=UTC), TIMESTAMP)
    for class_, type_ in _TYPES:
        if isinstance(value, class_):
            return Constant(value, type_)
    if isinstance(value, int) and abs(value) <= BIGINT_MAX:
        return Constant(value, INT if abs(value) <= INT_MAX else BIGINT)
    if isinstance(value, int | Decimal):
        return _decimal(Decimal(value))
    raise NotCompilable(f"a parameter of type {type(value).__name__}")


def _decimal(value: Decimal) -> Constant:
    try:
        return decimal_constant(value)
    except (ArithmeticError, ValueError, pa.ArrowInvalid) as error:
        raise TableError("MP411", "A decimal parameter can have at most 38 digits.") from error


def scalar(value: Constant) -> pa.Scalar:
    return pa.scalar(value.value, value.type)


def shape(constants: Sequence[Constant]) -> Shape:
    """What a compiled expression depends on: the types of the parameters, and the digits of whole numbers."""
    return tuple((c.type, len(str(abs(c.value))) if isinstance(c.value, int) else 0) for c in constants)


# Nodes that keep their parts in another order than they are written in.
_WRITTEN_ORDER: dict[type[exp.Expression], tuple[str, ...]] = {
    exp.StrPosition: ("substr", "this", "position"),
    exp.Trim: ("expression", "this"),
}


def in_order(expr: exp.Expression) -> Iterator[exp.Placeholder]:
    """Every `?` of an expression in the order of the text."""
    if isinstance(expr, exp.Placeholder):
        yield expr
        return
    keys = _WRITTEN_ORDER.get(type(expr))
    parts = expr.iter_expressions() if keys is None else filter(None, map(expr.args.get, keys))
    for part in parts:
        yield from in_order(part)


def placeholders(expr: exp.Expression) -> dict[int, int]:
    """The position of each `?` of a text, by the identity of its node."""
    return {id(node): place for place, node in enumerate(in_order(expr))}


def matched(expr: exp.Expression, parameters: Sequence[object]) -> tuple[Constant, ...]:
    """The parameters of an expression as literals; MP411 unless there is one for each `?`."""
    return counted(len(placeholders(expr)), parameters)


def counted(wanted: int, parameters: Sequence[object]) -> tuple[Constant, ...]:
    """The parameters as literals; MP411 unless there are as many as wanted."""
    if wanted != len(parameters):
        raise TableError(
            "MP411",
            f"The condition has {wanted} '?', but {len(parameters)} parameters were given.",
            hint="Pass one parameter for each '?', in order.",
        )
    return tuple(constant(value) for value in parameters)


def has_nested(parameters: Sequence[Any]) -> bool:
    """Whether any of them is a nested value."""
    return any(isinstance(p, list | tuple | Mapping) for p in parameters)


def with_literals(query: exp.Query, parameters: Sequence[Any]) -> exp.Query | None:
    """The query with literals instead of its parameters; None if one has no equivalent literal."""
    if not parameters:
        return query
    made = query.copy()
    for place, value in zip(list(in_order(made)), parameters, strict=True):  # type: ignore[arg-type]
        try:
            place.replace(_literal(constant(value)))
        except NotCompilable:
            return None
    return made


def _literal(value: Constant) -> exp.Expression:
    if value.value is None:
        return exp.Null()
    if isinstance(value.value, bool):
        return exp.Boolean(this=value.value)
    if isinstance(value.value, bytes):
        return exp.HexString(this=value.value.hex())
    text = value.value.isoformat() if isinstance(value.value, date) else str(value.value)
    literal = exp.Literal.string(text)
    return literal if value.type == STRING else exp.cast(literal, type_name(value.type), dialect="spark")


def written_out(expression: Any, parameters: Sequence[Any], schema: Schema | None = None) -> tuple[Any, list[Any]]:
    """The expression with constructors instead of nested parameters, and its parameters, which are single values. A
    dict is a struct, or a map if it is compared with one; compared with a column of the schema it gets the column's
    type."""
    made = expression.copy()
    places: list[Any] = list(in_order(made))
    if len(places) != len(parameters):
        return expression, list(parameters)
    single: list[Any] = []
    # A parameter may be the whole expression, which has no parent to replace it in.
    made = exp.Paren(this=made)
    for place, value in zip(places, parameters, strict=True):
        if not has_nested([value]):
            single.append(value)
            continue
        type_ = _neighbour(place, schema)
        text = _text(value, single, type_)
        constructor = parse_expression(text if type_ is None else f"CAST({text} AS {type_name(type_)})")
        place.replace(constructor)
    return made.this, single


def _neighbour(place: exp.Expression, schema: Schema | None) -> pa.DataType | None:
    """The type of the column that a parameter is compared with."""
    parent: Any = place.parent
    if schema is None or not isinstance(parent, exp.Binary):
        return None
    other = parent.expression if parent.this is place else parent.this
    column = schema.get(other.name) if isinstance(other, exp.Column) and not other.table else None
    return column.type if column is not None and pa.types.is_nested(column.type) else None


def _text(value: Any, single: list[Any], type_: pa.DataType | None) -> str:
    """A constructor of a value; its parts are appended to the single parameters."""
    if isinstance(value, list | tuple):
        part = type_.value_type if type_ is not None and pa.types.is_list(type_) else None
        return f"array({', '.join(_text(v, single, part) for v in value)})"
    if isinstance(value, Mapping):
        return _text_of_dict(value, single, type_)
    single.append(value)
    return "?"


def _text_of_dict(value: Mapping[Any, Any], single: list[Any], type_: pa.DataType | None) -> str:
    if type_ is not None and pa.types.is_map(type_):
        pairs = [(_text(k, single, type_.key_type), _text(v, single, type_.item_type)) for k, v in value.items()]
        return f"map({', '.join(part for pair in pairs for part in pair)})"
    names = [type_.field(i) for i in range(type_.num_fields)] if type_ is not None and pa.types.is_struct(type_) else []
    types = {field.name: field.type for field in names}
    if any(not isinstance(k, str) for k in value) or (types and set(types) != set(value)):
        hint = f"It is compared with {type_name(type_)}." if type_ is not None else "Use strings as keys."
        raise TableError("MP411", "A dict parameter does not match the struct.", hint=hint)
    ordered = {name: value[name] for name in (types or value)}
    parts = [f"{exp.Literal.string(k).sql('spark')}, {_text(v, single, types.get(k))}" for k, v in ordered.items()]
    return f"named_struct({', '.join(parts)})"
