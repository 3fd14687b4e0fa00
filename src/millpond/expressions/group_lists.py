"""COLLECT_LIST, COLLECT_SET and LISTAGG: the values of each group as one array or text."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from millpond.expressions.coercion import FLOATS, STRING
from millpond.expressions.failures import NotCompilable
from millpond.expressions.group_inputs import Aggregate, Inputs, by_group
from millpond.expressions.sort_ranks import combined, ranks

# A longer list is Spark's.
ITEMS_MAX = 2**31 - 1


def _lists(inputs: Inputs) -> pa.Array:
    """The values of each group, NULLs left out, in the order of the rows."""
    known = inputs.known([0])
    rows = by_group(known)
    if len(rows.rows) > ITEMS_MAX:
        raise NotCompilable("very long arrays")
    offsets = np.concatenate([rows.starts, [len(rows.rows)]]).astype(np.int32)
    values = known.values.take(pa.array(rows.rows))
    return pa.ListArray.from_arrays(pa.array(offsets), values, type=pa.list_(values.type))


def _sets(inputs: Inputs) -> pa.Array:
    known = inputs.known([0])
    codes = combined([known.groups, ranks(known.values)], len(known.groups))
    _, firsts = np.unique(codes, return_index=True)
    return _lists(known.take(np.sort(firsts)))


def _texts(inputs: Inputs) -> pa.Array:
    """LISTAGG: the texts in the order of WITHIN GROUP, joined by the delimiter; NULL if there are none."""
    between = inputs.constants[1] if len(inputs.arguments) > 1 else ""
    if between is None:
        raise NotCompilable("a delimiter that is not a literal")
    known = inputs.known([0])
    if known.order:
        known = known.take(np.lexsort(tuple(_key(values, descending) for values, descending in known.order[::-1])))
    found = [str(between).join(items) if items else None for items in _lists(known).to_pylist()]
    return pa.array(found, STRING)


def _key(values: pa.Array, descending: bool) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    places = ranks(values)
    return -places if descending else places


def _one(types: Sequence[pa.DataType], ordered: bool) -> bool:
    return len(types) == 1 and not ordered


def _comparable(types: Sequence[pa.DataType], ordered: bool) -> bool:
    """Spark keeps zeros and NaNs of a set apart in its own way."""
    return _one(types, ordered) and _is_exact(types[0])


def _is_exact(type_: pa.DataType) -> bool:
    if pa.types.is_map(type_) or type_ in FLOATS:
        return False
    return all(_is_exact(type_.field(place).type) for place in range(type_.num_fields))


def _strings(types: Sequence[pa.DataType], ordered: bool) -> bool:
    return 1 <= len(types) <= 2 and all(type_ == STRING for type_ in types)


AGGREGATES: dict[str, Aggregate] = {
    "collect_list": Aggregate(_lists, _one),
    "collect_set": Aggregate(_sets, _comparable),
    "listagg": Aggregate(_texts, _strings),
}
