"""Records that Python hands over, as JSON lines, and the columns that they show."""

from datetime import date, datetime, timedelta, timezone
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from millpond.errors import SourceError
from millpond.schema import type_name
from millpond.sources.records.python_records import columns_of, json_records


def test_a_key_that_other_records_lack_is_kept() -> None:
    assert json_records([{"a": 1}, {"a": 2, "b": "x"}]) == [b'{"a": 1}\n', b'{"a": 2, "b": "x"}\n']


def test_numbers_keep_their_digits_whatever_stands_beside_them() -> None:
    rows = [{"n": 9007199254740993}, {"n": 2.5}, {"n": Decimal("10.50")}, {"n": Decimal("1E-10")}, {"n": np.int32(7)}]
    texts = [b'{"n": 9007199254740993}', b'{"n": 2.5}', b'{"n": 10.50}', b'{"n": 0.0000000001}', b'{"n": 7}']
    assert json_records(rows) == [text + b"\n" for text in texts]


def test_decimals_inside_lists_are_numbers_and_texts_stay_as_they_are() -> None:
    assert json_records([{"l": [Decimal("1.10"), "1.10", None]}]) == [b'{"l": [1.10, "1.10", null]}\n']


def test_times_are_in_utc_and_bytes_in_base64() -> None:
    noon = datetime(2026, 3, 1, 12, tzinfo=timezone(timedelta(hours=2)))
    (line,) = json_records([{"t": noon, "n": datetime(2026, 3, 1), "d": date(2026, 3, 1), "b": b"\x00\xff"}])
    assert line == b'{"t": "2026-03-01T10:00:00+00:00", "n": "2026-03-01T00:00:00", "d": "2026-03-01", "b": "AP8="}\n'


def test_floats_that_json_has_no_numbers_for_are_texts() -> None:
    (line,) = json_records([{"a": float("nan"), "b": [float("-inf")], "c": Decimal("1.0")}])
    assert line == b'{"a": "NaN", "b": ["-Infinity"], "c": 1.0}\n'


def test_arrow_is_taken_as_it_is() -> None:
    assert json_records(pa.table({"d": pa.array([Decimal("1.20")])})) == [b'{"d": 1.20}\n']


@pytest.mark.parametrize("rows", [{"a": 1}, "text", 5, [5], [None], [{"a": Ellipsis}]], ids=repr)
def test_what_is_no_record_is_reported(rows: Any) -> None:
    with pytest.raises(SourceError, match="MP504"):
        json_records(rows)


def test_columns_are_found_in_all_records() -> None:
    found = columns_of(json_records([{"id": 1}, {"ID": 2, "price": Decimal("1.50"), "on": date(2026, 3, 1)}]))
    assert found is not None
    assert [(c.name, type_name(c.type)) for c in found] == [
        ("id", "BIGINT"),
        ("price", "DECIMAL(38,2)"),
        ("on", "DATE"),
    ]
    assert columns_of([b"{}\n"]) is None
