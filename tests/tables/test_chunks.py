"""Chunks give back the rows that went in, stored as codes or plain, in few batches or many."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from millpond.tables import chunks as module
from millpond.tables.chunks import Chunks

SCHEMA = pa.schema([("n", pa.int64()), ("s", pa.string())])


def batch(first: int, count: int, distinct: int) -> pa.RecordBatch:
    numbers = range(first, first + count)
    texts = [None if n % 11 == 0 else f"t{n % distinct}" for n in numbers]
    return pa.RecordBatch.from_arrays([pa.array(numbers, pa.int64()), pa.array(texts, pa.string())], schema=SCHEMA)


@pytest.mark.parametrize("distinct", [3, 10**9])
@pytest.mark.parametrize("size", [1, 7, 500])
def test_rows_come_back(monkeypatch: pytest.MonkeyPatch, distinct: int, size: int) -> None:
    monkeypatch.setattr(module, "_JUDGED_ROWS", 64)
    chunks, wanted = Chunks(SCHEMA), []
    for turn in range(40):
        chunks = chunks.appended(batch(turn * size, size, distinct))
        wanted += batch(turn * size, size, distinct).to_pylist()
    assert chunks.all([0, 1]).to_pylist() == wanted
    assert bool(chunks.words) == (distinct == 3 and len(wanted) >= 64)
    rows = np.random.default_rng(1).integers(0, len(wanted), 200)
    assert chunks.table(rows, [1, 0]).to_pylist() == [{"s": wanted[r]["s"], "n": wanted[r]["n"]} for r in rows]
    assert chunks.values(int(rows[0]), [0, 1]) == tuple(wanted[rows[0]].values())
    mask = np.arange(len(wanted)) % 3 == 0
    assert chunks.filtered(mask).all([0, 1]).to_pylist() == wanted[::3]
    assert len(chunks.batches) <= 1 + np.log2(len(wanted))


def test_too_many_distinct_texts_are_stored_plain_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_JUDGED_ROWS", 64)
    monkeypatch.setattr(module, "_WORDS_MAX", 50)
    first = Chunks(SCHEMA).appended(batch(0, 200, 5))
    assert 1 in first.words
    second = first.appended(batch(200, 200, 10**9))
    assert 1 not in second.words
    assert (
        second.all([1]).to_pylist()
        == batch(0, 200, 5).select([1]).to_pylist() + batch(200, 200, 10**9).select([1]).to_pylist()
    )
    assert first.all([1]).to_pylist() == batch(0, 200, 5).select([1]).to_pylist()


def test_older_chunks_are_not_changed_by_newer_words() -> None:
    first = Chunks(SCHEMA).appended(batch(0, 5000, 3))
    later = first.appended(batch(5000, 10, 7))
    assert len(later.words[1]) > len(first.words[1])
    assert first.all([0, 1]).to_pylist() == batch(0, 5000, 3).to_pylist()
    assert len(first) == 5000
    assert len(later) == 5010
