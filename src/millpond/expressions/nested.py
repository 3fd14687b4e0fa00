"""Arrays, maps and structs: size, one element, membership and fields."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from millpond.expressions.coercion import FLOATS, INT
from millpond.expressions.failures import NotCompilable, RowError
from millpond.expressions.frames import Datum
from millpond.expressions.kernels import Kernel, Run, Site, elementwise, simple


def field(value: Datum, name: str) -> Datum:
    """A field of a struct; NULL where the struct is."""
    names = [f.name.lower() for f in value.type]
    return pc.struct_field(value, names.index(name.lower()))


def _size(value: Datum) -> Datum:
    if pa.types.is_map(value.type):
        value = value.cast(pa.list_(value.type.field(0).type)) if isinstance(value, pa.Array) else value
    return pc.cast(pc.list_value_length(value), INT)


def _element(*, from_one: bool) -> Callable[[Site], Run]:
    def make(site: Site) -> Run:
        holder = site.takes[0]
        if pa.types.is_map(holder):
            if holder.key_type in FLOATS or pa.types.is_nested(holder.key_type):
                raise NotCompilable("a map with keys of this type")
            return elementwise(_map_item, site.gives)
        return elementwise(_from_one if from_one else _from_zero, site.gives)

    return make


def _map_item(entries: list[tuple[Any, Any]], key: Any) -> Any:
    return next((item for found, item in entries if found == key), None)


def _from_zero(items: list[Any], place: int) -> Any:
    if not 0 <= place < len(items):
        raise RowError(f"the array has no element at {place}")
    return items[place]


def _from_one(items: list[Any], place: int) -> Any:
    if place == 0 or abs(place) > len(items):
        raise RowError(f"the array has no element at {place}")
    return items[place - 1 if place > 0 else place]


def _contains(site: Site) -> Run:
    if site.takes[1] in FLOATS or pa.types.is_nested(site.takes[1]):
        raise NotCompilable("membership of values of this type")
    return elementwise(_holds, site.gives)


def _holds(items: list[Any], wanted: Any) -> bool | None:
    return True if wanted in items else (None if None in items else False)


KERNELS: dict[str, Any] = {
    "size": simple(_size),
    "[]": Kernel(_element(from_one=False), fallible=True),
    "element_at": Kernel(_element(from_one=True), fallible=True),
    "array_contains": Kernel(_contains),
}
