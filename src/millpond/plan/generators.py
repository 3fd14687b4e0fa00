"""Functions that make several rows of one, such as explode: the columns that they yield."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
from sqlglot import exp

from millpond.plan.functions import function_name
from millpond.plan.typed import type_of
from millpond.schema import Column, Schema

EXPLODING = ("explode", "explode_outer", "posexplode", "posexplode_outer")
INLINING = ("inline", "inline_outer")


def generated(call: exp.Expr, names: Sequence[str] = ()) -> Schema | None:
    """The columns of a generator's rows, under their own names or the given ones; None where only Spark knows them."""
    known = _columns(call)
    if not names:
        return Schema.of(known) if known else None
    types = [c.type for c in known] if len(known) == len(names) else [None] * len(names)
    return Schema.of(Column(name, type_) for name, type_ in zip(names, types, strict=True))


def _columns(call: exp.Expr) -> list[Column]:
    name, of = function_name(call), _type_of_argument(call)
    if name in INLINING and of is not None and pa.types.is_list(of) and pa.types.is_struct(of.value_type):
        return [Column(f.name, f.type) for f in of.value_type]
    if name not in EXPLODING or of is None:
        return []
    position = [Column("pos", pa.int32())] if name.startswith("pos") else []
    if pa.types.is_list(of):
        return [*position, Column("col", of.value_type)]
    return [*position, Column("key", of.key_type), Column("value", of.item_type)] if pa.types.is_map(of) else []


def _type_of_argument(call: exp.Expr) -> pa.DataType | None:
    argument = next(iter(call.iter_expressions()), None)
    return type_of(argument) if argument is not None else None


def is_generator(projection: exp.Expr) -> bool:
    """Whether an item of the SELECT list is a generator that may yield several columns."""
    return isinstance(projection, exp.Aliases) or function_name(projection) in (*EXPLODING, *INLINING)


def as_view(projection: exp.Expr, names: Sequence[str], alias: str) -> exp.Lateral:
    """A generator of the SELECT list as a lateral view."""
    columns = [exp.to_identifier(name, quoted=True) for name in names]
    named = exp.TableAlias(this=exp.to_identifier(alias, quoted=True), columns=columns)
    call = projection.this if isinstance(projection, exp.Aliases) else projection
    return exp.Lateral(this=call, view=True, outer=False, alias=named)


def names_in_list(projection: exp.Expr) -> tuple[str, ...]:
    """The columns that a bound item of the SELECT list yields if it is a generator of several, else none."""
    if isinstance(projection, exp.Aliases):
        return tuple(i.name for i in projection.expressions)
    found = _columns(projection)
    return tuple(c.name for c in found) if len(found) > 1 or function_name(projection) in INLINING else ()
