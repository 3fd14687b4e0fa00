"""The type rules of functions of arrays, maps and structs: argument types and result types."""

from __future__ import annotations

import pyarrow as pa

from millpond.expressions.coercion import (
    BOOLEAN,
    DATE,
    DAY_TIME,
    INT,
    INTEGERS,
    STRING,
    VOID,
    YEAR_MONTH,
    common,
    is_list,
    is_number,
    wider,
)
from millpond.expressions.rules import Operand, Operands, Rule, Signature, fits, types_of
from millpond.expressions.terms import Constant, Reference
from millpond.schema import TIMESTAMP


def size_rule(operands: Operands) -> Signature | None:
    (type_,) = types_of(operands)
    return Signature((type_,), INT) if is_list(type_) or pa.types.is_map(type_) else None


def array_size_rule(operands: Operands) -> Signature | None:
    return size_rule(operands) if is_list(operands[0].type) else None


def element_rule(operands: Operands) -> Signature | None:
    holder, place = types_of(operands)
    if is_list(holder) and place in INTEGERS[:3]:
        return Signature((holder, INT), holder.value_type)
    if pa.types.is_map(holder) and _is_key(operands[1], holder):
        return Signature((holder, holder.key_type), holder.item_type)
    return None


def _is_key(operand: Operand, holder: pa.DataType) -> bool:
    key, given = holder.key_type, operand.type
    return bool(given == key or (is_number(given) and is_number(key) and wider(given, key) == key))


def get_rule(operands: Operands) -> Signature | None:
    return element_rule(operands) if is_list(operands[0].type) else None


def bracket_rule(operands: Operands) -> Signature | None:
    """`holder[index]`, which for a struct is a field by its name."""
    holder = operands[0].type
    if not pa.types.is_struct(holder):
        return element_rule(operands)
    name = _text(operands[1])
    found = [f.type for f in holder if name is not None and f.name.lower() == name.lower()]
    return Signature((holder, STRING), found[0]) if len(found) == 1 else None


def holds_rule(operands: Operands) -> Signature | None:
    return None if operands[1].type == VOID else item_rule(BOOLEAN)(operands)


def item_rule(gives: pa.DataType | None = None) -> Rule:
    """An array and a value that becomes one of its elements; the result is a fixed type, or the array's."""

    def rule(operands: Operands) -> Signature | None:
        holder, item = types_of(operands)
        if not is_list(holder) or wider(holder.value_type, item) != holder.value_type:
            return None
        return Signature((holder, holder.value_type), holder if gives is None else gives)

    return rule


def insert_rule(operands: Operands) -> Signature | None:
    holder, place, item = types_of(operands)
    if not is_list(holder) or place not in INTEGERS[:3] or wider(holder.value_type, item) != holder.value_type:
        return None
    return Signature((holder, INT, holder.value_type), holder)


def list_rule(operands: Operands) -> Signature | None:
    """One array, and an array of the same type."""
    (type_,) = types_of(operands)
    return Signature((type_,), type_) if is_list(type_) else None


def item_of_rule(operands: Operands) -> Signature | None:
    (type_,) = types_of(operands)
    return Signature((type_,), type_.value_type) if is_list(type_) else None


def flatten_rule(operands: Operands) -> Signature | None:
    (type_,) = types_of(operands)
    return Signature((type_,), type_.value_type) if is_list(type_) and is_list(type_.value_type) else None


def lists_rule(gives: pa.DataType | None = None) -> Rule:
    """Two arrays that become one type."""

    def rule(operands: Operands) -> Signature | None:
        type_ = common(types_of(operands))
        if len(operands) != 2 or type_ is None or not is_list(type_):
            return None
        return Signature((type_, type_), type_ if gives is None else gives)

    return rule


def array_rule(operands: Operands) -> Signature | None:
    type_ = common(types_of(operands))
    return None if type_ is None else Signature((type_,) * len(operands), pa.list_(type_))


def repeat_rule(operands: Operands) -> Signature | None:
    item, times = operands
    return Signature((item.type, INT), pa.list_(item.type)) if times.type == INT else None


def join_rule(operands: Operands) -> Signature | None:
    holder, *rest = operands
    strings = is_list(holder.type) and holder.type.value_type == STRING
    if not strings or not 1 <= len(rest) <= 2 or not all(fits(o, STRING) for o in rest):
        return None
    return Signature((holder.type, *(STRING,) * len(rest)), STRING)


def slice_rule(operands: Operands) -> Signature | None:
    holder, start, length = operands
    if not is_list(holder.type) or not (fits(start, INT) and fits(length, INT)):
        return None
    return Signature((holder.type, INT, INT), holder.type)


def sort_rule(operands: Operands) -> Signature | None:
    holder, *ascending = types_of(operands)
    if not is_list(holder) or len(ascending) > 1 or any(t != BOOLEAN for t in ascending):
        return None
    return Signature((holder, *ascending), holder)


def zip_rule(operands: Operands) -> Signature | None:
    """ARRAYS_ZIP: an array of structs, whose fields are named after columns, and numbered where there is no column."""
    types = types_of(operands)
    if not types or not all(is_list(type_) for type_ in types):
        return None
    columns = [o.term.column if isinstance(o.term, Reference) else None for o in operands]
    names = [str(n) if column is None else column.name for n, column in enumerate(columns)]
    if len({name.lower() for name in names}) < len(names):
        return None
    fields = [(name, type_.value_type) for name, type_ in zip(names, types, strict=True)]
    return Signature(tuple(types), pa.list_(pa.struct(fields)))


def sequence_rule(operands: Operands) -> Signature | None:
    types = types_of(operands)
    if 2 <= len(types) <= 3 and all(t in (DATE, TIMESTAMP) for t in types[:2]):
        type_ = DATE if types[:2] == [DATE, DATE] else TIMESTAMP
        fits_step = len(types) == 2 or types[2] in (DAY_TIME, YEAR_MONTH)
        return Signature((type_, type_, *types[2:]), pa.list_(type_)) if fits_step else None
    if not 2 <= len(types) <= 3 or any(t not in INTEGERS for t in types):
        return None
    type_ = common(types)
    return None if type_ is None else Signature((type_,) * len(types), pa.list_(type_))


def concat_ws_rule(operands: Operands) -> Signature | None:
    """Texts and arrays of texts."""
    if not operands or not fits(operands[0], STRING):
        return None
    lists = [is_list(o.type) and o.type.value_type == STRING for o in operands]
    if not all(is_ or fits(o, STRING) for is_, o in zip(lists, operands, strict=True)) or lists[0]:
        return None
    return Signature(tuple(o.type if is_ else STRING for is_, o in zip(lists, operands, strict=True)), STRING)


def _text(operand: Operand) -> str | None:
    term = operand.term
    return term.value if isinstance(term, Constant) and isinstance(term.value, str) else None


def struct_rule(operands: Operands) -> Signature | None:
    """NAMED_STRUCT: a literal name before each value."""
    names, values = [_text(o) for o in operands[::2]], [o.type for o in operands[1::2]]
    if None in names or len(names) != len(values) or len({str(n).lower() for n in names}) < len(names):
        return None
    takes = tuple(t for type_ in values for t in (STRING, type_))
    return Signature(takes, pa.struct(list(zip(names, values, strict=True))))


def map_rule(operands: Operands) -> Signature | None:
    keys, items = common([o.type for o in operands[::2]]), common([o.type for o in operands[1::2]])
    if not operands or len(operands) % 2 or keys is None or items is None:
        return None
    return Signature((keys, items) * (len(operands) // 2), pa.map_(keys, items))


def map_part_rule(part: str) -> Rule:
    """One map, and an array of its keys, its values or its entries."""

    def rule(operands: Operands) -> Signature | None:
        (type_,) = types_of(operands)
        if not pa.types.is_map(type_):
            return None
        entry = pa.struct([("key", type_.key_type), ("value", type_.item_type)])
        return Signature((type_,), pa.list_({"key": type_.key_type, "value": type_.item_type, "entry": entry}[part]))

    return rule


def map_key_rule(operands: Operands) -> Signature | None:
    holder = operands[0].type
    if not pa.types.is_map(holder) or not _is_key(operands[1], holder):
        return None
    return Signature((holder, holder.key_type), BOOLEAN)


def map_from_arrays_rule(operands: Operands) -> Signature | None:
    keys, items = types_of(operands)
    return (
        Signature((keys, items), pa.map_(keys.value_type, items.value_type))
        if is_list(keys) and is_list(items)
        else None
    )


def map_from_entries_rule(operands: Operands) -> Signature | None:
    (type_,) = types_of(operands)
    pairs = is_list(type_) and pa.types.is_struct(type_.value_type) and type_.value_type.num_fields == 2
    if not pairs:
        return None
    key, item = list(type_.value_type)
    return Signature((type_,), pa.map_(key.type, item.type))


def map_concat_rule(operands: Operands) -> Signature | None:
    types = types_of(operands)
    same = bool(types) and pa.types.is_map(types[0]) and all(t == types[0] for t in types)
    return Signature(tuple(types), types[0]) if same else None
