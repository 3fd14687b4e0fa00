"""Each function that is evaluated here on rows and arguments at the edges of its meaning, by topic."""

from __future__ import annotations

from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa

from millpond.schema import TIMESTAMP

_TEXTS = [
    "",
    "a",
    "Ab c",
    "aaa",
    "a.b.c",
    "naïve",
    "straße",
    "日本語",
    "😀x😀",
    " a ",
    "x\ny",
    "\\",
    None,
    "A-b-c",
    "a,b,,c",
]
_OTHERS = ["a", "", "a", "aa", ".", "ï", "ß", "本", "😀", " ", "\n", "\\", "a", None, ","]
_NUMBERS = [0, 1, -1, 2, 3, 5, -2, -7, 100, 2**31 - 1, -(2**31), None, 12, 255, 7]
_SMALL = [0, 1, -1, 2, 3, 5, -2, -7, 4, 1, 2, 1, None, 0, -3]
_BIG = [0, 1, -1, 2**63 - 1, -(2**63), 86_400, 1_700_000_000, -5, None, 1_000, 255, 4_000_000_000, 20, 21, 6]
_DOUBLES = [
    0.0,
    -0.0,
    1.5,
    -2.5,
    1e300,
    float("nan"),
    float("inf"),
    float("-inf"),
    0.1,
    1234567.891,
    None,
    2.0,
    3.0,
    9.0,
    -1.0,
]
_DECIMALS = ["0.00", "1.25", "-1.25", "9999999999.99", None, "0.05", "2.50", "12345.67", "-0.01", "100.00"]
_DATES = [
    date(2024, 2, 29),
    date(1970, 1, 1),
    date(1969, 12, 31),
    date(2000, 1, 31),
    None,
    date(2023, 12, 31),
    date(1582, 10, 15),
    date(2021, 1, 3),
    date(9999, 12, 31),
    date(1, 1, 1),
]
_TIMES = [
    datetime(2024, 2, 29, 12, 34, 56, 789_000, tzinfo=UTC),
    datetime(1970, 1, 1, tzinfo=UTC),
    datetime(1969, 12, 31, 23, 59, 59, 999_999, tzinfo=UTC),
    datetime(2000, 1, 31, 0, 0, 0, 1, tzinfo=UTC),
    None,
    datetime(2023, 12, 31, 13, 5, 9, tzinfo=UTC),
    datetime(1500, 3, 1, 1, 2, 3, tzinfo=UTC),
    datetime(2021, 1, 3, 0, 30, tzinfo=UTC),
    datetime(9999, 12, 31, 23, 59, 59, tzinfo=UTC),
    datetime(1, 1, 1, tzinfo=UTC),
]
_ARRAYS = [[], [1], [1, 2, 3], [3, None, 1, 3], None, [None], [2, 2, 2], [-5, 7, None, None]]
_TEXT_ARRAYS = [["a", None, "b"], [], ["", "ä", "a"], None, ["x"], [None], ["b", "a", "b"]]
_NESTED = [[[1, 2], [3]], [], [[1], None], None, [[], [None]]]
_MAPS = [[("a", 1), ("b", None)], [], None, [("x", 3)], [("", 0), ("a", -1)]]
_STRUCTS = [{"x": 1, "y": "q"}, {"x": None, "y": None}, None, {"x": -3, "y": ""}]
_LISTS_OF_STRUCTS = [[{"k": "a", "v": 1}, {"k": "b", "v": None}], [], None, [{"k": "z", "v": 3}], [None]]

_JSON = [
    '{"a": 1, "b": {"c": "x", "d": [1, 2]}, "arr": ["p", null, {"q": true}], "n": 2.50}',
    '{"a":"text \\\\ with \\"quotes\\" and é","b":null,"arr":[]}',
    "[1, 2, {}]",
    "",
    None,
    "not json",
    '{"a":{"b":{"c":false}},"b":{"c":[1,[2]]}}',
]
_URLS = [
    "http://example.com/a/b.html?q=1&r=x%20y#top",
    "https://user:pw@www.example.org:8080/path;v=1?x&q=",
    "ftp://host",
    "http://example.com/?a=b",
    None,
    "http://example.com?q=deep&q=other",
]

_COLUMNS: dict[str, tuple[pa.DataType, list[Any]]] = {
    "s": (pa.string(), _TEXTS),
    "bmp": (pa.string(), [text for text in _TEXTS if text is None or max(text, default="") <= "\uffff"]),
    "t": (pa.string(), _OTHERS),
    "i": (pa.int32(), _NUMBERS),
    "k": (pa.int32(), _SMALL),
    "l": (pa.int64(), _BIG),
    "f": (pa.float64(), _DOUBLES),
    "f8s": (pa.float64(), [0.0, 1.5, -2.25, 1234567.891, None, 0.1, 100.0, 2.5, 999.995]),
    "js": (pa.string(), _JSON),
    "u": (pa.string(), _URLS),
    "d": (pa.decimal128(12, 2), [None if v is None else Decimal(v) for v in _DECIMALS]),
    "b": (pa.bool_(), [True, False, None]),
    "dt": (pa.date32(), _DATES),
    "ts": (TIMESTAMP, _TIMES),
    "tu": (TIMESTAMP, _TIMES[::-1]),
    "a": (pa.list_(pa.int32()), _ARRAYS),
    "c": (pa.list_(pa.int32()), _ARRAYS[::-1]),
    "ta": (pa.list_(pa.string()), _TEXT_ARRAYS),
    "aa": (pa.list_(pa.list_(pa.int32())), _NESTED),
    "m": (pa.map_(pa.string(), pa.int32()), _MAPS),
    "st": (pa.struct([("x", pa.int32()), ("y", pa.string())]), _STRUCTS),
    "sl": (pa.list_(pa.struct([("k", pa.string()), ("v", pa.int32())])), _LISTS_OF_STRUCTS),
}


def rows() -> pa.Table:
    """All of the values above, the shorter columns again from their start."""
    length = len(_TEXTS)
    columns = [pa.array((values * length)[:length], type_) for type_, values in _COLUMNS.values()]
    return pa.table(columns, names=list(_COLUMNS))


# One expression in each line of a file.
EDGES: dict[str, list[str]] = {
    file.stem: file.read_text("utf-8").splitlines() for file in sorted((Path(__file__).parent / "edges").glob("*.txt"))
}
