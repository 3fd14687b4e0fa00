"""Random tables and random expressions over them, in the part of SQL that compiles to Arrow."""

from __future__ import annotations

import random
import re
from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta
from decimal import Context, Decimal
from typing import Any

import pyarrow as pa

from millpond.schema import TIMESTAMP

DECIMALS = {"d1": (12, 2), "d2": (38, 10), "d3": (5, 4), "d4": (18, 0), "d5": (38, 0)}
WHOLES = {"i1": pa.int8(), "i2": pa.int16(), "i4": pa.int32(), "i8": pa.int64(), "j4": pa.int32()}

SCHEMA = pa.schema(
    [
        *((name, type_) for name, type_ in WHOLES.items()),
        *((name, pa.decimal128(*digits)) for name, digits in DECIMALS.items()),
        ("f4", pa.float32()),
        ("f8", pa.float64()),
        ("g8", pa.float64()),
        ("s", pa.string()),
        ("t", pa.string()),
        ("ns", pa.string()),
        ("b", pa.bool_()),
        ("c", pa.bool_()),
        ("dt", pa.date32()),
        ("du", pa.date32()),
        ("ts", TIMESTAMP),
        ("tu", TIMESTAMP),
        ("a", pa.list_(pa.int32())),
        ("st", pa.struct([("x", pa.int32()), ("y", pa.string())])),
        ("m", pa.map_(pa.string(), pa.int32())),
    ]
)

TEXTS = [
    "",
    "a",
    "Ab c",
    "abc",
    "naïve",
    "straße",
    "日本語",
    "😀x",
    " a ",
    "a%b_c",
    "x\ny",
    "\\",
    "zz\t",
    "A-b-c",
    "aaa",
]
NUMBER_TEXTS = ["12", " 7 ", "-3", "0", "+4", "1.5", "x", "", "99999999999999999999", "1e2", "true", "2024-02-29"]
DATES = [(1, 1, 1), (9999, 12, 31), (1582, 10, 15), (1969, 12, 31), (2000, 2, 29)]
TIMES = [(1, 1, 1), (9999, 12, 31, 23, 59, 59, 999_999), (1969, 12, 31, 23, 59, 59, 999_999), (1500, 3, 1, 1, 2, 3)]


def table(seed: int, rows: int, *, extreme: bool) -> pa.Table:
    """Rows with NULLs everywhere; extreme ones reach the ends of every type."""
    chance = random.Random(seed)
    columns = [
        pa.array([None if chance.random() < 0.15 else _value(f, chance, extreme) for _ in range(rows)], f.type)
        for f in SCHEMA
    ]
    return pa.table(columns, SCHEMA)


def _value(field: pa.Field, chance: random.Random, extreme: bool) -> Any:
    type_ = field.type
    if field.name == "ns":
        return chance.choice(NUMBER_TEXTS if extreme else NUMBER_TEXTS[:5])
    if pa.types.is_integer(type_):
        top = 2 ** (type_.bit_width - 1)
        return chance.choice([-top, top - 1, 0, -1, 1, top // 2]) if extreme else chance.randint(-9, 9)
    if pa.types.is_decimal(type_):
        return _decimal(type_, chance, extreme)
    if pa.types.is_floating(type_):
        return _float(type_, chance, extreme)
    return _MAKERS[type_](chance, extreme)


def _decimal(type_: pa.DataType, chance: random.Random, extreme: bool) -> Decimal:
    digits = chance.choice([type_.precision, type_.precision - 1, 3, 1]) if extreme else min(type_.precision, 4)
    unscaled = chance.randint(-(10**digits) + 1, 10**digits - 1)
    if extreme and chance.random() < 0.3:
        unscaled = chance.choice([0, 5, 10**type_.precision - 1, 1 - 10**type_.precision])
    return Decimal(unscaled).scaleb(-type_.scale, Context(prec=60))


def _float(type_: pa.DataType, chance: random.Random, extreme: bool) -> float:
    if extreme:
        special = [float("nan"), float("inf"), float("-inf"), -0.0, 0.0, 1e300, -1e-300, 9.3e18, 0.1]
        found = chance.choice([*special, chance.uniform(-1e6, 1e6)])
        return found if type_ == pa.float64() or abs(found) < 1e38 or found != found else 3e38
    return chance.choice([0.0, 0.5, 1.25, -2.5, 3.0, round(chance.uniform(-99, 99), 2)])


def _date(chance: random.Random, extreme: bool) -> date:
    if extreme:
        return chance.choice(
            [date(1, 1, 1), date(9999, 12, 31), date(1582, 10, 15), date(1969, 12, 31), date(2000, 2, 29)]
        )
    return date(1970, 1, 1) + timedelta(days=chance.randint(-20_000, 30_000))


def _timestamp(chance: random.Random, extreme: bool) -> datetime:
    if extreme:
        return datetime(*chance.choice(TIMES), tzinfo=UTC)  # type: ignore[arg-type, misc]
    moment = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(seconds=chance.randint(-(10**9), 2 * 10**9))
    return moment + timedelta(microseconds=chance.choice([0, 500_000, 123_456]))


_MAKERS: dict[pa.DataType, Callable[[random.Random, bool], Any]] = {
    pa.string(): lambda chance, _: chance.choice(TEXTS),
    pa.bool_(): lambda chance, _: chance.random() < 0.5,
    pa.date32(): _date,
    TIMESTAMP: _timestamp,
    SCHEMA.field("a").type: lambda chance, _: [chance.choice([None, 1, 2, 3]) for _ in range(chance.randint(0, 4))],
    SCHEMA.field("st").type: lambda chance, _: {"x": chance.randint(-3, 3), "y": chance.choice(["q", None])},
    SCHEMA.field("m").type: lambda chance, _: [(key, chance.choice([1, None])) for key in chance.sample("abc", 2)],
}


def conditionals(kind: str) -> list[str]:
    """The forms that choose between values of a kind."""
    forms = (
        "CASE WHEN {boolean} THEN {x} ELSE {x} END",
        "CASE WHEN {boolean} THEN {x} WHEN {boolean} THEN {x} END",
        "CASE {whole} WHEN 1 THEN {x} WHEN i1 THEN {x} ELSE {x} END",
        "IF({boolean}, {x}, {x})",
        "COALESCE({x}, {x}, {x})",
        "nvl({x}, {x})",
        "nullif({x}, {x})",
        "nvl2({x}, {x}, {x})",
    )
    return [form.replace("{x}", "{" + kind + "}") for form in forms]


# What a kind of expression is at its end, and what it is made of: {kind} is drawn in turn, at a smaller depth.
LEAVES: dict[str, tuple[str, ...]] = {
    "whole": (*WHOLES, "1", "0", "-7", "2", "10000000000", "3", "NULL", "12345", "2Y", "st.x"),
    "decimal": (*DECIMALS, *DECIMALS, "1.5", "0.00", "-2.345", "100.0", "0.001", "12345678901234567890"),
    "double": ("f8", "g8", "1.5D", "2D", "1e2", "-0.5D", "f4", "0D", "1.1F"),
    "text": ("s", "t", "'a'", "'Ab c'", "''", "'x'", "NULL", "ns", "st.y"),
    "date": ("dt", "du", "DATE '2024-02-29'", "DATE '1999-12-31'"),
    "time": ("ts", "tu", "TIMESTAMP '2024-02-29 12:34:56.789'", "TIMESTAMP '1960-01-31'"),
    "list": ("a", "array(1, NULL, 3)", "a"),
    "texts": ("array('a', NULL, 'b')", "split(s, 'a')"),
    "boolean": ("b", "c", "b", "c", "TRUE", "FALSE", "CAST(NULL AS BOOLEAN)"),
}
FORMS: dict[str, tuple[str, ...]] = {
    "whole": (
        "({whole} {operator} {whole})",
        "({whole} {operator} {whole})",
        "({whole} div {whole})",
        "abs({whole})",
        "-({whole})",
        "pmod({whole}, {whole})",
        "mod({whole}, {whole})",
        "length({text})",
        "char_length({text})",
        "{date_part}({date})",
        "{time_part}({time})",
        "datediff({date}, {moment})",
        "round({whole}, {places})",
        "bround({whole}, {places})",
        "{ceil_or_floor}({double})",
        "{cast}({number} AS {whole_type})",
        "{cast}(ns AS {whole_type})",
        "CAST({boolean} AS INT)",
        "CAST({time} AS BIGINT)",
        "TRY_CAST(s AS INT)",
        "instr({text}, {part})",
        "locate({part}, {text}, {count})",
        "position({part} IN {text})",
        "{extreme}({whole}, {whole}, {whole})",
        "unix_timestamp({time})",
        "{nested}",
        "size({list})",
        "array_position({list}, {small})",
        "aggregate({list}, 0, (acc, x) -> acc + coalesce(x, 1))",
        "{list_end}({list})",
        "try_element_at({list}, {count})",
        "get({list}, {count})",
        "levenshtein({text}, {text})",
        "find_in_set({part}, {text})",
        "regexp_count({text}, {regex})",
        "{counted_text}({text})",
        "weekofyear({date})",
        "extract({part_word} FROM {moment})",
        "unix_{unit_since}({time})",
        "unix_date({date})",
        "({whole} {bit_operator} {whole})",
        "~({whole})",
        "{shift}({whole}, {count})",
        "bit_count({whole})",
        "hash({value}, {value})",
        "xxhash64({value}, {text})",
        "crc32({text})",
        "try_{tried}({whole}, {whole})",
        "factorial({small})",
        "width_bucket({double}, 0, 10, 5)",
        "zeroifnull({whole})",
        "nullifzero({whole})",
        "decode({whole}, 1, {whole}, NULL, {whole}, {whole})",
        *conditionals("whole"),
    ),
    "decimal": (
        "({decimal} {operator} {decimal})",
        "({decimal} / {decimal})",
        "({decimal} {operator} {small})",
        "({decimal} / {small})",
        "({small} {operator} {decimal})",
        "abs({decimal})",
        "-({decimal})",
        "{ceil_or_floor}({decimal})",
        "round({decimal}, {places})",
        "bround({decimal}, {places})",
        "{cast}({decimal} AS {decimal_type})",
        "{cast}({whole} AS {decimal_type})",
        "{cast}(ns AS {decimal_type})",
        "{cast}(f8 AS {decimal_type})",
        "{extreme}({decimal}, {decimal})",
        "pmod({decimal}, {decimal})",
        "{ceil_or_floor}({decimal}, {places})",
        "try_{tried}({decimal}, {decimal})",
        "zeroifnull({decimal})",
        *conditionals("decimal"),
    ),
    "double": (
        "({double} {operator} {double})",
        "({double} / {double})",
        "({double} {operator} {number})",
        "({whole} / {whole})",
        "sqrt({double})",
        "exp({double})",
        "ln({double})",
        "log({double}, {number})",
        "log10({number})",
        "log2({double})",
        "months_between({moment}, {moment})",
        "rint({double})",
        "degrees({double})",
        "radians({double})",
        "nanvl({double}, {double})",
        "try_divide({double}, {double})",
        "power({small}, {power})",
        "sign({number})",
        "abs({double})",
        "-({double})",
        "CAST({number} AS DOUBLE)",
        "CAST(ns AS DOUBLE)",
        "CAST({whole} AS FLOAT)",
        "CAST({double} AS FLOAT)",
        "CAST({decimal} AS FLOAT)",
        "{cast}(ns AS FLOAT)",
        "{extreme}({double}, {double})",
        "round(f8, {places})",
        *conditionals("double"),
    ),
    "text": (
        "{text_function}({text})",
        "trim({side} {part} FROM {text})",
        "({text} || {value})",
        "concat({text}, {text}, '-')",
        "concat_ws({part}, {text}, {text})",
        "substring({text}, {count}, {count})",
        "substr({text}, {count})",
        "left({text}, {count})",
        "right({text}, {count})",
        "repeat({text}, {count})",
        "{pad}({text}, {count}, {part})",
        "{pad}({text}, 7)",
        "replace({text}, {part}, {text})",
        "split_part({text}, '-', {count})",
        "CAST({whole} AS STRING)",
        "CAST({decimal} AS STRING)",
        "CAST({date} AS STRING)",
        "CAST({time} AS STRING)",
        "CAST({boolean} AS STRING)",
        "{extreme}({text}, {text})",
        "from_unixtime({small})",
        "substring_index({text}, {part}, {count})",
        "translate({text}, 'abc', {part})",
        "overlay({text} PLACING {text} FROM 2 FOR {count})",
        "regexp_replace({text}, {regex}, '<$0>')",
        "regexp_extract({text}, '(a)|(b.)', {group})",
        "regexp_substr({text}, {regex})",
        "chr({small})",
        "date_format({moment}, {format})",
        "{day_or_month}({moment})",
        "{digest}({text})",
        "sha2({text}, 256)",
        "hex({whole})",
        "bin({whole})",
        "url_encode({text})",
        "url_decode(url_encode({text}))",
        "typeof({any})",
        "array_join({texts}, {part}, {text})",
        "array_join(transform({texts}, x -> concat(x, {text})), '-')",
        "get_json_object(to_json(struct({whole} AS p, {text} AS q)), '$.{json_field}')",
        "to_json(named_struct('p', {list}, 'q', {date}, 'r', {time}))",
        "format_number({whole}, 2)",
        "format_string('%s-%5d', {text}, i4)",
        "concat_ws({part}, {texts}, {text})",
        "get({texts}, {count})",
        "map('a', {text}, 'b', {text})['b']",
        "named_struct('p', {text}, 'q', {whole}).p",
        *conditionals("text"),
    ),
    "list": (
        "array({small}, {small})",
        "concat({list}, {list})",
        "{set_function}({list}, {list})",
        "{list_function}({list})",
        "sort_array({list}, false)",
        "slice({list}, {from_one}, 2)",
        "{with_item}({list}, {small})",
        "array_repeat(i4, {from_one})",
        "{cast}({texts} AS ARRAY<INT>)",
        "CAST({list} AS ARRAY<INT>)",
        "flatten(array({list}, {list}))",
        "transform({list}, x -> x + {small})",
        "transform({list}, (x, n) -> CASE WHEN n > 0 THEN x END)",
        "filter({list}, x -> x {compared} {small})",
        "map_values(m)",
        *conditionals("list")[:6],
    ),
    "texts": (
        "array({text}, {text})",
        "split({text}, {part_regex})",
        "regexp_extract_all({text}, {regex}, 0)",
        "map_keys(m)",
        "array_sort({texts})",
        "array_distinct({texts})",
    ),
    "date": (
        "date_add({date}, {count})",
        "date_sub({date}, {count})",
        "last_day({date})",
        "add_months({date}, {count})",
        "next_day({date}, {day_word})",
        "trunc({date}, {truncated})",
        "to_date(date_format({moment}, {format}), {format})",
        "try_to_date(ns, 'yyyy-MM-dd')",
        "make_date(2024, {from_one}, {from_one})",
        "({date} {sign} INTERVAL {amount} {date_unit})",
        "({date} {sign} {count})",
        "CAST({time} AS DATE)",
        "to_date({moment})",
        "to_date('2024-3-1')",
        "TRY_CAST(ns AS DATE)",
        "{extreme}({date}, {date})",
        *conditionals("date"),
    ),
    "time": (
        "({time} {sign} INTERVAL {amount} {date_unit})",
        "({time} {sign} INTERVAL {amount} {time_unit})",
        "({date} {sign} INTERVAL {amount} {time_unit})",
        "date_trunc({truncated}, {time})",
        "date_trunc({truncated}, {time})",
        "CAST({date} AS TIMESTAMP)",
        "CAST({small} AS TIMESTAMP)",
        "TRY_CAST(ns AS TIMESTAMP)",
        "timestamp_{unit_since}({small})",
        "to_timestamp(date_format({time}, {format}), {format})",
        "make_timestamp(2024, 2, {from_one}, 23, 59, 60)",
        *conditionals("time"),
    ),
    "boolean": (
        *[f"({{{kind}}} {{compared}} {{{kind}}})" for kind in ("number", "text", "date", "time", "boolean", "decimal")],
        "({date} {compared} {time})",
        "({whole} {compared} {number_text})",
        "({number} {compared} {number_text})",
        "({date} {compared} '2024-02-29')",
        "({time} {compared} '2024-02-29T10:00:00Z')",
        "({boolean} {compared} 'true')",
        "({boolean} {logic} {boolean})",
        "({boolean} {logic} {boolean})",
        "({boolean} {logic} {boolean})",
        "(NOT {boolean})",
        "({value} IS NULL)",
        "equal_null({number}, {number})",
        "isnan({double})",
        "({value} IS NOT NULL)",
        "({boolean} IS {truth})",
        "({number} BETWEEN {number} AND {number})",
        "({text} NOT BETWEEN {text} AND {text})",
        "({whole} IN ({whole}, {whole}, 3))",
        "({decimal} IN ({decimal}, NULL, 1.5, {whole}))",
        "({text} NOT IN ('a', {text}, 'x'))",
        "({text} NOT IN ('a', NULL))",
        "({date} IN ({date}, DATE '2000-02-29'))",
        "({double} IN ({double}, 1.5D))",
        "({text} LIKE {pattern})",
        "({text} LIKE {text})",
        "({text} LIKE 'a/%b/_c' ESCAPE '/')",
        "({text} ILIKE {pattern})",
        "({text} RLIKE {regex})",
        "{finding}({text}, {part})",
        "CAST({number} AS BOOLEAN)",
        "CAST(ns AS BOOLEAN)",
        "array_contains({list}, {small})",
        "array_contains({texts}, {text})",
        "arrays_overlap({list}, {list})",
        "exists({list}, x -> x {compared} {small})",
        "forall({texts}, x -> contains(x, {text}))",
        "map_contains_key(m, {text})",
        *conditionals("boolean"),
    ),
}
WORDS: dict[str, tuple[str, ...]] = {
    "number": ("{whole}", "{decimal}", "{double}"),
    "value": ("{number}", "{text}", "{date}", "{boolean}", "{decimal}"),
    "any": ("{boolean}",) * 4
    + ("{whole}", "{decimal}", "{decimal}", "{double}", "{text}", "{date}", "{time}", "{list}", "{texts}"),
    "moment": ("{date}", "{time}"),
    "small": ("i1", "i4", "j4", "2", "10", "0", "i2"),
    "operator": ("+", "-", "*", "%"),
    "sign": ("+", "-"),
    "logic": ("AND", "OR"),
    "compared": ("=", "<>", "<", "<=", ">", ">=", "<=>", "!=", "==", "IS DISTINCT FROM", "IS NOT DISTINCT FROM"),
    "truth": ("TRUE", "FALSE", "NOT TRUE", "NOT FALSE"),
    "cast": ("CAST", "TRY_CAST"),
    "whole_type": ("TINYINT", "SMALLINT", "INT", "BIGINT"),
    "decimal_type": ("DECIMAL(12,2)", "DECIMAL(38,10)", "DECIMAL(10,0)", "DECIMAL(5,4)", "DECIMAL(38,0)"),
    "extreme": ("greatest", "least"),
    "ceil_or_floor": ("ceil", "floor"),
    "places": ("0", "1", "2", "-1", "-2"),
    "count": ("0", "1", "2", "-1", "-2", "5", "i1"),
    "part": ("'a'", "''", "' a'", "t"),
    "side": ("BOTH", "LEADING", "TRAILING"),
    "pad": ("lpad", "rpad"),
    "text_function": ("upper", "lower", "trim", "ltrim", "rtrim", "reverse", "initcap"),
    "finding": ("startswith", "endswith", "contains"),
    "pattern": ("'a%'", "'%b%'", "'_b%'", "'a'", "'%'", "'A_%c'"),
    "regex": ("'^a'", "'b+'", "'[a-c]'", "'a|x'", "'.'", "'a.c'", "'^x?$'"),
    "part_regex": ("'a'", "','", "'-'", "'[ab]'"),
    "group": ("0", "1", "2"),
    "counted_text": ("ascii", "octet_length", "bit_length"),
    "list_end": ("array_max", "array_min"),
    "list_function": ("array_distinct", "array_compact", "sort_array", "array_sort", "reverse"),
    "set_function": ("array_union", "array_intersect", "array_except"),
    "with_item": ("array_append", "array_prepend", "array_remove"),
    "from_one": ("1", "-1", "2", "-3"),
    "part_word": ("WEEK", "DOW", "YEAROFWEEK", "DOY", "HOUR", "MINUTE"),
    "unit_since": ("seconds", "millis", "micros"),
    "day_or_month": ("dayname", "monthname"),
    "day_word": ("'MON'", "'su'", "'Friday'", "'none'"),
    "format": ("'yyyy-MM-dd HH:mm:ss'", "'yyyyMMdd'", "'dd.MM.yyyy HH:mm'", "'d MMM yyyy h:mm a'", "'yyyy-MM'"),
    "bit_operator": ("&", "|", "^"),
    "shift": ("shiftleft", "shiftright", "shiftrightunsigned"),
    "tried": ("add", "subtract", "multiply", "divide", "mod"),
    "power": ("0", "1", "2", "3"),
    "digest": ("md5", "sha1", "hex", "base64"),
    "json_field": ("p", "q", "r"),
    "number_text": ("ns", "'5'", "'x'", "'1.5'"),
    "date_part": ("year", "month", "day", "quarter", "dayofweek", "dayofyear", "weekday"),
    "time_part": ("hour", "minute", "second"),
    "amount": ("1", "13", "-5"),
    "date_unit": ("DAY", "MONTH", "YEAR", "WEEK"),
    "time_unit": ("HOUR", "MINUTES", "SECONDS", "MILLISECOND"),
    "truncated": ("'year'", "'QUARTER'", "'month'", "'week'", "'day'", "'hour'", "'MINUTE'", "'bogus'", "'MM'", "'DD'"),
    "nested": ("size(a)", "a[0]", "element_at(a, 1)", "element_at(a, -1)", "m['a']", "size(m)", "element_at(m, 'b')"),
}


class Drawer:
    """Draws expressions; the same seed draws the same ones."""

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)

    def any(self, depth: int = 3) -> str:
        return self._filled("{any}", depth)

    def _filled(self, form: str, depth: int) -> str:
        return re.sub(r"\{(\w+)\}", lambda found: self._drawn(found[1], depth), form)

    def _drawn(self, kind: str, depth: int) -> str:
        if kind in WORDS:
            return self._filled(self.chance.choice(WORDS[kind]), depth)
        if depth <= 0 or self.chance.random() < 0.15:
            return self.chance.choice(LEAVES[kind])
        return self._filled(self.chance.choice(FORMS[kind]), depth - 1)
