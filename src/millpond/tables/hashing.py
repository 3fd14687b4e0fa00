"""64-bit hashes and exact comparison of key columns, vectorized."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

Words = npt.NDArray[np.uint64]
Mask = npt.NDArray[np.bool_]

_SEED = np.uint64(0x9E3779B97F4A7C15)
_MIX = np.uint64(0xBF58476D1CE4E5B9)
_HALF = np.uint64(32)
_SEED_INT, _MIX_INT, _ALL = int(_SEED), int(_MIX), (1 << 64) - 1
_NULL = np.uint64(0x94D049BB133111EB)
# Masks for the bytes of a word that belong to a value with n bytes left.
_KEEP = np.array([(1 << (8 * n)) - 1 for n in range(9)], dtype=np.uint64)


def hash_columns(columns: Sequence[pa.Array]) -> Words:
    """One hash per row over all columns; equal keys have equal hashes, NULL counts as a value."""
    hashes = _hash_column(columns[0])
    for column in columns[1:]:
        hashes = _stir(hashes * _MIX + _hash_column(column))
    return _stir(hashes)


def hash_key(parts: Sequence[str | bytes | int]) -> int:
    """The hash of one key of texts, bytes and whole numbers, equal to that of `hash_columns`."""
    total = -1
    for part in parts:
        if isinstance(part, int):
            one = (part & _ALL) * _SEED_INT & _ALL
        else:
            one = _hash_bytes(part.encode("utf-8", "surrogatepass") if isinstance(part, str) else part)
        total = one if total < 0 else _stir_int((total * _MIX_INT + one) & _ALL)
    return _stir_int(total)


def equal_rows(left: Sequence[pa.Array], right: Sequence[pa.Array]) -> Mask:
    """Where rows are the same key: NULL equals NULL, NaN equals NaN, 0.0 equals -0.0, as in Spark's grouping."""
    same = np.ones(len(left[0]), dtype=np.bool_)
    for a, b in zip(left, right, strict=True):
        same &= _equal_column(a, b)
    return same


def null_rows(columns: Sequence[pa.Array]) -> Mask:
    """Where any column is NULL."""
    found = np.zeros(len(columns[0]), dtype=np.bool_)
    for column in columns:
        if column.null_count:
            found |= column.is_null().to_numpy(zero_copy_only=False)
    return found


def _hash_bytes(data: bytes) -> int:
    total = len(data) * _SEED_INT & _ALL
    for done in range(0, len(data), 8):
        total = (total ^ int.from_bytes(data[done : done + 8], "little")) * _SEED_INT & _ALL
        total ^= total >> 32
    return total


def _stir_int(total: int) -> int:
    total ^= total >> 32
    total = total * _MIX_INT & _ALL
    return total ^ total >> 29


def _stir(hashes: Words) -> Words:
    hashes ^= hashes >> _HALF
    hashes *= _MIX
    hashes ^= hashes >> np.uint64(29)
    return hashes


def _hash_column(column: pa.Array) -> Words:
    if _is_text(column.type):
        hashes = _hash_text(column)
    elif (words := _fixed_words(column)) is not None:
        hashes = words[0] * _SEED
        for word in words[1:]:
            hashes = _stir(hashes) ^ word * _SEED
    else:
        hashes = _hash_text(_as_text(column))
    if column.null_count:
        hashes[column.is_null().to_numpy(zero_copy_only=False)] = _NULL
    return hashes


def _equal_column(left: pa.Array, right: pa.Array) -> Mask:
    if _is_text(left.type):
        same = pc.fill_null(pc.equal(left, right), False).to_numpy(zero_copy_only=False)
    elif (words := _fixed_words(left)) is not None:
        others = _fixed_words(right)
        assert others is not None
        same = np.logical_and.reduce([a == b for a, b in zip(words, others, strict=True)])
    else:
        pairs = zip(left.to_pylist(), right.to_pylist(), strict=True)
        return np.array([_same(a) == _same(b) for a, b in pairs], dtype=np.bool_)
    if not left.null_count and not right.null_count:
        return np.asarray(same)
    no_left = left.is_null().to_numpy(zero_copy_only=False)
    no_right = right.is_null().to_numpy(zero_copy_only=False)
    return np.asarray(np.where(no_left | no_right, no_left & no_right, same))


def _is_text(type_: pa.DataType) -> bool:
    return bool(pa.types.is_string(type_) or pa.types.is_binary(type_))


def _as_text(column: pa.Array) -> pa.Array:
    """Nested keys are rare, so their printed form is hashed and their values are compared in Python."""
    return pa.array([repr(_same(value)) for value in column.to_pylist()], pa.string())


def _same(value: Any) -> Any:
    """A nested value in which NaN equals NaN and 0.0 equals -0.0."""
    if isinstance(value, dict):
        return {name: _same(part) for name, part in value.items()}
    if isinstance(value, list):
        return [_same(part) for part in value]
    if isinstance(value, float):
        return "NaN" if value != value else value + 0.0
    return value


def _hash_text(column: pa.Array) -> Words:
    """Hash eight bytes of every value per step, so that the number of steps depends on the longest value only."""
    count = len(column)
    offsets = np.frombuffer(column.buffers()[1], dtype=np.int32, count=count + 1, offset=column.offset * 4)
    starts = offsets[:-1].astype(np.int64)
    sizes = np.diff(offsets).astype(np.int64)
    hashes: Words = sizes.astype(np.uint64) * _SEED
    longest, shortest = (int(sizes.max()), int(sizes.min())) if count else (0, 0)
    words = _unaligned_words(column.buffers()[2], int(offsets[-1])) if longest else np.empty(0, np.uint64)
    for done in range(0, longest, 8):
        # While all values are long enough, no selection is necessary.
        rows = np.flatnonzero(sizes > done) if done >= shortest else slice(None)
        piece = words[starts[rows] + done]
        if done + 8 > shortest:
            piece &= _KEEP[np.minimum(sizes[rows] - done, 8)]
        piece ^= hashes[rows]
        piece *= _SEED
        piece ^= piece >> _HALF
        hashes[rows] = piece
    return hashes


def _unaligned_words(buffer: pa.Buffer, end: int) -> Words:
    """A view of a buffer as the 64-bit word that starts at every byte."""
    data = np.frombuffer(buffer, dtype=np.uint8)
    if len(data) < end + 8:
        data = np.concatenate([data[:end], np.zeros(8, dtype=np.uint8)])
    return np.ndarray((len(data) - 7,), dtype="<u8", buffer=data, strides=(1,))


def _fixed_words(column: pa.Array) -> list[Words] | None:
    """The values of a fixed-width column as 64-bit words, with NULL as zero; None for other columns."""
    type_ = column.type
    if pa.types.is_boolean(type_):
        return [_numbers(column.cast(pa.uint8()), np.dtype(np.uint8)).astype(np.uint64)]
    if pa.types.is_decimal128(type_):
        pairs = np.frombuffer(column.buffers()[1], dtype=np.uint64)
        pairs = pairs.reshape(-1, 2)[column.offset : column.offset + len(column)]
        return [_without_nulls(column, pairs[:, 0].copy()), _without_nulls(column, pairs[:, 1].copy())]
    if pa.types.is_floating(type_):
        numbers = _numbers(column, np.dtype(type_.to_pandas_dtype())).astype(np.float64)
        numbers += 0.0  # -0.0 becomes 0.0
        numbers[np.isnan(numbers)] = np.nan
        return [numbers.view(np.uint64)]
    if pa.types.is_integer(type_) or pa.types.is_date32(type_) or pa.types.is_timestamp(type_):
        return [_numbers(column, np.dtype(f"i{type_.bit_width // 8}")).astype(np.int64).view(np.uint64)]
    return None


def _numbers(column: pa.Array, dtype: np.dtype[Any]) -> npt.NDArray[Any]:
    values = np.frombuffer(column.buffers()[1], dtype=dtype, count=len(column), offset=column.offset * dtype.itemsize)
    return _without_nulls(column, values)


def _without_nulls(column: pa.Array, values: npt.NDArray[Any]) -> npt.NDArray[Any]:
    if not column.null_count:
        return values
    return np.where(column.is_null().to_numpy(zero_copy_only=False), values.dtype.type(0), values)
