"""Values as numbers in Spark's order: NULL below all, NaN above all numbers, text by its bytes, parts one by one."""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from millpond.expressions.coercion import FLOATS, is_list
from millpond.expressions.failures import NotCompilable

Numbers: TypeAlias = npt.NDArray[np.int64]
Values: TypeAlias = pa.Array | pa.ChunkedArray

# The rank of a NULL.
NULL_RANK = -1
_BYTES = np.dtype(">u8")


def ranks(values: Values) -> Numbers:
    """The place of each value among the different ones, counted from 0: equal values have the same one."""
    array = values.combine_chunks() if isinstance(values, pa.ChunkedArray) else values
    if pa.types.is_null(array.type):
        return np.full(len(array), NULL_RANK)
    if pa.types.is_struct(array.type):
        return _of_structs(array)
    if is_list(array.type):
        return _of_lists(array)
    if array.type in FLOATS:
        return _of_floats(array)
    if pa.types.is_map(array.type):
        raise NotCompilable("maps have no order")
    return _of_plain(array)


def _of_plain(array: pa.Array) -> Numbers:
    # Each different value is placed once: far quicker for texts that repeat.
    encoded = array.dictionary_encode()
    places = pc.rank(encoded.dictionary, sort_keys="ascending", tiebreaker="dense").to_numpy(zero_copy_only=False)
    return _without_nulls(encoded, places.astype(np.int64) - 1)


def _without_nulls(encoded: pa.DictionaryArray, places: Numbers) -> Numbers:
    indices = encoded.indices.fill_null(0).to_numpy(zero_copy_only=False)
    if not len(places):
        return np.full(len(indices), NULL_RANK)
    return np.where(_valid(encoded.indices), places[indices], NULL_RANK)


def _valid(array: pa.Array) -> npt.NDArray[np.bool_]:
    return np.asarray(array.is_valid().to_numpy(zero_copy_only=False), dtype=bool)


def _of_floats(array: pa.Array) -> Numbers:
    """There is one NaN, above all, and one zero."""
    _, places = np.unique(array.fill_null(0.0).to_numpy(zero_copy_only=False), return_inverse=True)
    return np.where(_valid(array), places, NULL_RANK)


def _of_structs(array: pa.Array) -> Numbers:
    parts = [ranks(part) for part in array.flatten()]
    return np.where(_valid(array), combined(parts, len(array)), NULL_RANK)


def combined(parts: list[Numbers], length: int) -> Numbers:
    """The ranks of rows by several columns, the first one first; a NULL is a value as any other here."""
    if not parts:
        return np.zeros(length, np.int64)
    found = np.unique(parts[0], return_inverse=True)[1]
    for part in parts[1:]:
        _, more = np.unique(part, return_inverse=True)
        found = np.unique(found * (int(more.max(initial=0)) + 1) + more, return_inverse=True)[1]
    return found.astype(np.int64)


def _of_lists(array: pa.Array) -> Numbers:
    """Lists compare as the bytes of their elements' ranks do: by the first that differs, then by length."""
    elements = ranks(array.flatten()) - NULL_RANK
    lengths = pc.fill_null(pc.list_value_length(array), 0).to_numpy(zero_copy_only=False)
    offsets = np.concatenate([[0], np.cumsum(lengths)]) * _BYTES.itemsize
    if offsets[-1] >= 2**31:
        raise NotCompilable("very many elements to be ordered")
    data = pa.py_buffer(elements.astype(_BYTES).tobytes())
    texts = pa.Array.from_buffers(
        pa.binary(), len(array), [None, pa.py_buffer(offsets.astype(np.int32).tobytes()), data]
    )
    return np.where(_valid(array), _of_plain(texts), NULL_RANK)


def single_zero_and_nan(values: Values) -> Values:
    """Floats as Spark groups them: a zero without sign, and one NaN; other values as they are."""
    if values.type not in FLOATS:
        return values
    # Adding zero makes the negative one positive.
    summed = pc.add(values, pa.scalar(0.0, values.type))
    return pc.if_else(pc.is_nan(summed), pa.scalar(float("nan"), values.type), summed)
