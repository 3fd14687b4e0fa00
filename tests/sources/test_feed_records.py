"""Records in a feed have the file that they come from."""

from __future__ import annotations

import pyarrow as pa
import pytest

from millpond.sources.files.feed_records import KEPT_ROWS, KEPT_ROWS_MIN, place_columns


@pytest.mark.parametrize("rows", [0, 1, KEPT_ROWS_MIN, KEPT_ROWS, KEPT_ROWS + 1])
def test_every_record_has_its_file_however_many_a_piece_has(rows: int) -> None:
    for file in ("a.jsonl", "b.jsonl", "c.jsonl", "a.jsonl"):
        files, majors, positions = place_columns(file, 7, pa.array(range(rows), pa.int64()))
        assert files.to_pylist() == [file] * rows
        assert majors.to_pylist() == [7] * rows
        assert positions.to_pylist() == list(range(rows))
