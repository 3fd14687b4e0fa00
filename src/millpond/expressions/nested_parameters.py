"""Lists, dicts and tuples given for a `?`: written out as arrays, maps and structs of single parameters."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa
from sqlglot import exp

from millpond.errors import TableError
from millpond.expressions.parameters import in_order
from millpond.schema import Schema, type_name
from millpond.sql.parser import parse_expression


def has_nested(parameters: Sequence[Any]) -> bool:
    """Whether any of them is more than a single value."""
    return any(isinstance(p, list | tuple | Mapping) for p in parameters)


def written_out(expression: Any, parameters: Sequence[Any], schema: Schema | None = None) -> tuple[Any, list[Any]]:
    """The expression with constructors in the place of nested parameters, and single parameters for all of it. A dict
    is a struct, or a map where it is compared with one; next to a column of the schema it takes the column's type."""
    made = expression.copy()
    places: list[Any] = list(in_order(made))
    if len(places) != len(parameters):
        return expression, list(parameters)
    single: list[Any] = []
    # A parameter may be the whole expression, which nothing around it can replace.
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
        hint = f"It is compared with {type_name(type_)}." if type_ is not None else "Give it names for keys."
        raise TableError("MP411", "A dict given as a parameter is no such struct.", hint=hint)
    ordered = {name: value[name] for name in (types or value)}
    parts = [f"{exp.Literal.string(k).sql('spark')}, {_text(v, single, types.get(k))}" for k, v in ordered.items()]
    return f"named_struct({', '.join(parts)})"
