"""Maps, and the places where a map and an array are read alike: element_at and [ ]."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from millpond.expressions.arrays import element
from millpond.expressions.coercion import BOOLEAN, FLOATS, VOID
from millpond.expressions.failures import NotCompilable, RowError
from millpond.expressions.kernels import Kernel, Run, Site, elementwise
from millpond.expressions.nested_rules import (
    bracket_rule,
    element_rule,
    map_concat_rule,
    map_from_arrays_rule,
    map_from_entries_rule,
    map_key_rule,
    map_part_rule,
    map_rule,
)
from millpond.expressions.signatures import Function, Functions
from millpond.expressions.structs import field

Pairs = list[tuple[Any, Any]]


def _exact_keys(type_: pa.DataType) -> None:
    if type_.key_type in FLOATS or type_.key_type == VOID or pa.types.is_nested(type_.key_type):
        raise NotCompilable("a map with keys of this type")


def _item(entries: Pairs, key: Any) -> Any:
    return next((item for found, item in entries if found == key), None)


def _element(*, from_one: bool, tolerant: bool = False) -> Kernel:
    def make(site: Site) -> Run:
        holder = site.takes[0]
        if pa.types.is_struct(holder):
            name = site.constant(1)
            return lambda value, _: field(value, name)
        if pa.types.is_map(holder):
            _exact_keys(holder)
            return elementwise(_item, site.gives)
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
        raise RowError("the keys and the values of a map are not equally many")
    return list(zip(keys, items, strict=True))


def _from_entries(site: Site) -> Run:
    _exact_keys(site.gives)

    def one(entries: list[dict[str, Any] | None]) -> Pairs | None:
        known = [tuple(entry.values()) for entry in entries if entry is not None]
        return _checked(known) if len(known) == len(entries) else None

    return elementwise(one, site.gives)


def _has_key(site: Site) -> Run:
    _exact_keys(site.takes[0])
    return elementwise(lambda entries, wanted: any(key == wanted for key, _ in entries), BOOLEAN)


def _entries(site: Site) -> Run:
    return elementwise(lambda entries: [{"key": key, "value": item} for key, item in entries], site.gives)


FUNCTIONS: Functions = {
    "[]": Function(bracket_rule).by(_element(from_one=False)),
    "element_at": Function(element_rule).by(
        _element(from_one=True), "the element of an array at a place counted from 1 or from the end, or a map's value"
    ),
    "try_element_at": Function(element_rule).by(
        _element(from_one=True, tolerant=True), "element_at, but NULL out of bounds"
    ),
    "map": Function(map_rule).by(_made(_map, nullable=True), "a map of keys and values in turn"),
    "map_keys": Function(map_part_rule("key")).by_rows(lambda entries: [k for k, _ in entries], "the keys of a map"),
    "map_values": Function(map_part_rule("value")).by_rows(
        lambda entries: [item for _, item in entries], "the values of a map"
    ),
    "map_entries": Function(map_part_rule("entry")).by(Kernel(_entries), "the entries of a map as structs"),
    "map_contains_key": Function(map_key_rule, BOOLEAN).by(Kernel(_has_key), "whether a map has a key"),
    "map_from_arrays": Function(map_from_arrays_rule).by(_made(_from_arrays), "a map of keys and of values"),
    "map_from_entries": Function(map_from_entries_rule).by(
        Kernel(_from_entries, fallible=True), "a map of an array of structs of a key and a value"
    ),
    "map_concat": Function(map_concat_rule).by(
        _made(lambda *maps: [entry for entries in maps for entry in entries]), "one map of the entries of several"
    ),
}
