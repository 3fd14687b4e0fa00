"""Functions of maps and structs, and element_at and [ ], which read both maps and arrays."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from millpond.expressions.array_elements import lengths_of, relisted
from millpond.expressions.arrays import element
from millpond.expressions.coercion import BOOLEAN, FLOATS, VOID
from millpond.expressions.failures import NotCompilable, RowError
from millpond.expressions.frames import Datum, as_array, mask_of
from millpond.expressions.nested_rules import (
    bracket_rule,
    element_rule,
    map_concat_rule,
    map_from_arrays_rule,
    map_from_entries_rule,
    map_key_rule,
    map_part_rule,
    map_rule,
    struct_rule,
)
from millpond.expressions.signatures import Function, Functions, Kernel, Run, Site, elementwise, on_columns


def field(value: Datum, name: str) -> Datum:
    """A field of a struct, NULL for a NULL struct; for an array of structs, an array of that field."""
    if pa.types.is_list(value.type):
        array = as_array(value, 1, value.type)
        found = relisted(array, field(array.flatten(), name))
        return found[0] if isinstance(value, pa.Scalar) else found
    names = [f.name.lower() for f in value.type]
    return pc.struct_field(value, names.index(name.lower()))


def _named_struct(site: Site) -> Run:
    fields = list(site.gives)

    def run(*arguments: Datum) -> Datum:
        values = arguments[1::2]
        length = next((len(v) for v in values if isinstance(v, pa.Array)), 1)
        arrays = [as_array(v, length, f.type) for v, f in zip(values, fields, strict=True)]
        made = pa.StructArray.from_arrays(arrays, fields=fields)
        return made if any(isinstance(v, pa.Array) for v in values) else made[0]

    return run


STRUCT_FUNCTIONS: Functions = {
    "named_struct": Function(struct_rule).by(Kernel(_named_struct, lazy=False), "a struct of names and values"),
}


Pairs = list[tuple[Any, Any]]


def _exact_keys(type_: pa.DataType) -> None:
    if type_.key_type in FLOATS or type_.key_type == VOID or pa.types.is_nested(type_.key_type):
        raise NotCompilable("a map with keys of this type")


def _entries_of(array: pa.Array) -> tuple[pa.Array, pa.Array, pa.Array]:
    """Maps as arrays of structs, and all their keys and values one behind the other."""
    lists = array.cast(pa.list_(array.type.field(0).type))
    parts = lists.flatten()
    return lists, pc.struct_field(parts, 0), pc.struct_field(parts, 1)


def _item(array: pa.Array, key: pa.Array) -> pa.Array:
    lists, keys, items = _entries_of(array)
    rows = np.repeat(np.arange(len(array)), lengths_of(lists))
    found = np.flatnonzero(mask_of(pc.equal(keys, key.take(pa.array(rows)))))
    places = np.full(len(array), -1, np.int64)
    # The first of equal keys: of several assignments the last one counts.
    places[rows[found[::-1]]] = found[::-1]
    return items.take(pa.array(places, mask=places < 0))


def _element(*, from_one: bool, tolerant: bool = False) -> Kernel:
    def make(site: Site) -> Run:
        holder = site.takes[0]
        if pa.types.is_struct(holder):
            name = site.constant(1)
            return lambda value, _: field(value, name)
        if pa.types.is_map(holder):
            _exact_keys(holder)
            return on_columns(_item)
        return element(from_one=from_one, tolerant=tolerant)

    return Kernel(make, fallible=True)


def _checked(pairs: Pairs) -> Pairs:
    """The entries of a new map, as Spark accepts them."""
    keys = [key for key, _ in pairs]
    if None in keys:
        raise RowError("the key of a map is NULL")
    if len(set(keys)) < len(keys):
        raise RowError("a key of a map occurs twice")
    return pairs


def _made(function: Any, *, nullable: bool = False) -> Kernel:
    """A kernel that makes maps; `nullable` when its arguments may be NULL."""

    def make(site: Site) -> Run:
        _exact_keys(site.gives)
        places = range(len(site.takes)) if nullable else ()
        return elementwise(lambda *row: _checked(function(*row)), site.gives, places)

    return Kernel(make, fallible=True, lazy=not nullable)


def _map(*values: Any) -> Pairs:
    return list(zip(values[::2], values[1::2], strict=True))


def _from_arrays(keys: list[Any], items: list[Any]) -> Pairs:
    if len(keys) != len(items):
        raise RowError("the keys and the values of a map differ in number")
    return list(zip(keys, items, strict=True))


def _from_entries(site: Site) -> Run:
    _exact_keys(site.gives)

    def one(entries: list[dict[str, Any] | None]) -> Pairs | None:
        known = [tuple(entry.values()) for entry in entries if entry is not None]
        return _checked(known) if len(known) == len(entries) else None

    return elementwise(one, site.gives)


def _has_key(site: Site) -> Run:
    _exact_keys(site.takes[0])

    def find(array: pa.Array, key: pa.Array) -> pa.Array:
        lists, keys, _ = _entries_of(array)
        rows = np.repeat(np.arange(len(array)), lengths_of(lists))
        found = np.zeros(len(array), bool)
        found[rows[mask_of(pc.equal(keys, key.take(pa.array(rows))))]] = True
        return pa.array(found, mask=~mask_of(array.is_valid()) | ~mask_of(key.is_valid()))

    return on_columns(find)


def _part(place: int) -> Run:
    """The keys or the values of maps."""

    def find(array: pa.Array) -> pa.Array:
        lists, *parts = _entries_of(array)
        return relisted(lists, parts[place])

    return on_columns(find)


def _entries(site: Site) -> Run:
    fields = list(site.gives.value_type)

    def find(array: pa.Array) -> pa.Array:
        lists, keys, items = _entries_of(array)
        return relisted(lists, pa.StructArray.from_arrays([keys, items], fields=fields))

    return on_columns(find)


FUNCTIONS: Functions = {
    "[]": Function(bracket_rule).by(_element(from_one=False)),
    "element_at": Function(element_rule).by(
        _element(from_one=True),
        "the element of an array at an index from 1 or from the end, or the value of a map's key",
    ),
    "try_element_at": Function(element_rule).by(
        _element(from_one=True, tolerant=True), "element_at, but NULL out of bounds"
    ),
    "map": Function(map_rule).by(_made(_map, nullable=True), "a map of alternating keys and values"),
    "map_keys": Function(map_part_rule("key")).by_columns(_part(0), "the keys of a map"),
    "map_values": Function(map_part_rule("value")).by_columns(_part(1), "the values of a map"),
    "map_entries": Function(map_part_rule("entry")).by(Kernel(_entries), "the entries of a map as structs"),
    "map_contains_key": Function(map_key_rule, BOOLEAN).by(Kernel(_has_key), "whether a map has a key"),
    "map_from_arrays": Function(map_from_arrays_rule).by(
        _made(_from_arrays), "a map of an array of keys and an array of values"
    ),
    "map_from_entries": Function(map_from_entries_rule).by(
        Kernel(_from_entries, fallible=True), "a map of an array of structs of a key and a value"
    ),
    "map_concat": Function(map_concat_rule).by(
        _made(lambda *maps: [entry for entries in maps for entry in entries]), "one map of the entries of several"
    ),
}
