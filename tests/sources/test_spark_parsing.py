"""JSON and CSV text into rows: what fits, what is cast, what is bad and why."""

import datetime as dt
from collections.abc import Sequence
from decimal import Decimal
from typing import Any

import pytest

from millpond.schema import Column, Schema
from millpond.sources.records.formats import FileFormat
from millpond.sql.parser import parse_type

pytestmark = pytest.mark.spark

UTC = dt.UTC
Outcome = tuple[dict[str, Any] | None, str | None]


def schema_of(**columns: str) -> Schema:
    return Schema.of(Column(name, parse_type(type_)) for name, type_ in columns.items())


def raw(spark: Any, values: Sequence[bytes]) -> Any:
    rows = [(n, value, True, None) for n, value in enumerate(values)]
    return spark.createDataFrame(rows, "n INT, _mp_value BINARY, _mp_suspect BOOLEAN, _mp_problem STRING").coalesce(1)


def outcomes(frame: Any, columns: Schema) -> list[Outcome]:
    """For each record its values, or the reason why it is bad; a bad record has no values and its raw bytes."""
    found: list[Outcome] = []
    for row in sorted(frame.collect(), key=lambda row: row["n"]):
        values = {name: row[name] for name in columns.names}
        if row["_mp_bad"] is None:
            assert row["_mp_raw"] is None
            found.append((values, None))
        else:
            assert all(value is None for value in values.values())
            assert row["_mp_raw"] is not None
            found.append((None, row["_mp_bad"]))
    return found


def json_outcomes(spark: Any, columns: Schema, *texts: str | bytes) -> list[Outcome]:
    from millpond.sources.records.spark_parsing import parse_json

    values = [text.encode() if isinstance(text, str) else text for text in texts]
    return outcomes(parse_json(raw(spark, values), columns, ["n"]), columns)


def csv_outcomes(spark: Any, columns: Schema, names: str, *texts: str | bytes, **form: Any) -> list[Outcome]:
    from millpond.sources.records.spark_parsing import parse_csv

    values = [text.encode() if isinstance(text, str) else text for text in texts]
    frame = parse_csv(raw(spark, values), columns, ["n"], names.split(","), FileFormat("csv", **form))
    return outcomes(frame, columns)


JSON_CASES: list[tuple[str | bytes, dict[str, Any] | str]] = [
    ('{"i": 12, "d": 10.505, "s": "x"}', {"i": 12, "d": Decimal("10.51"), "s": "x"}),
    ('{"i": "12", "d": "10.50"}\r\n', {"i": 12, "d": Decimal("10.50")}),
    ('{"other": 1}', {}),
    ('{"i": null}', {}),
    ('{"I": 5, "S": "upper"}', {"i": 5, "s": "upper"}),
    ('{"i": 1, "I": 2}', {"i": 1}),
    ('{"D": 1234567890.12}', {"d": Decimal("1234567890.12")}),
    ('{"i": "many"}', "column 'i': 'many' is not an INT"),
    ('{"i": 12.5}', "column 'i': '12.5' is not an INT"),
    ('{"i": 3000000000}', "column 'i': '3000000000' is not an INT"),
    ('{"d": 99999999999.99}', "column 'd': '99999999999.99' is not a DECIMAL(12,2)"),
    ('{"i": {"x": 1}}', "column 'i': '{\"x\":1}' is not an INT"),
    ('{"s": {"x": [1, 2]}}', {"s": '{"x":[1,2]}'}),
    ('{"s": 5}', {"s": "5"}),
    ('{"s": true}', {"s": "true"}),
    ('{"b": true}', {"b": True}),
    ('{"b": "false"}', {"b": False}),
    ('{"b": "maybe"}', "column 'b': 'maybe' is not a BOOLEAN"),
    ('{"f": 1e3}', {"f": 1000.0}),
    ('{"f": "1.5"}', {"f": 1.5}),
    ('{"t": "2026-01-02T03:04:05Z"}', {"t": dt.datetime(2026, 1, 2, 3, 4, 5)}),
    ('{"t": "2026-01-02 03:04:05.123456"}', {"t": dt.datetime(2026, 1, 2, 3, 4, 5, 123456)}),
    ('{"t": "2026-01-02T03:04:05+02:00"}', {"t": dt.datetime(2026, 1, 2, 1, 4, 5)}),
    ('{"t": "noon"}', "column 't': 'noon' is not a TIMESTAMP"),
    ('{"day": "2026-01-02"}', {"day": dt.date(2026, 1, 2)}),
    ('{"day": "2026-02-30"}', "column 'day': '2026-02-30' is not a DATE"),
    ('{"s": "tab\\t quote\\" \\u00e9 \\ud83d\\ude00"}', {"s": 'tab\t quote" é 😀'}),
    ('  {"i": 1}  ', {"i": 1}),
    ("5", "not a JSON object: 5"),
    ('[{"i": 1}]', 'not a JSON object: [{"i": 1}]'),
    ('"text"', 'not a JSON object: "text"'),
    ("null", "not a JSON object: null"),
    ('{"i": 1', 'not a JSON object: {"i": 1'),
    ('{"i": 1} {"i": 2}', 'not a JSON object: {"i": 1} {"i": 2}'),
    ('{"i": 1}, {"i": 2}', 'not a JSON object: {"i": 1}, {"i": 2}'),
    ('{"i": 1} rubbish', 'not a JSON object: {"i": 1} rubbish'),
    ("{'i': 1}", "not a JSON object: {'i': 1}"),
    ('{"f": NaN}', 'not a JSON object: {"f": NaN}'),
    ("rubbish", "not a JSON object: rubbish"),
    (b'{"s": "\xff"}', "the text is not UTF-8"),
    ('{"i": 1, "s": "}{"}', {"i": 1, "s": "}{"}),
]


def test_json_records_become_rows_or_reasons(spark: Any) -> None:
    columns = schema_of(i="INT", d="DECIMAL(12,2)", s="STRING", b="BOOLEAN", f="DOUBLE", t="TIMESTAMP", day="DATE")
    found = json_outcomes(spark, columns, *[text for text, _ in JSON_CASES])
    for (text, wanted), (values, reason) in zip(JSON_CASES, found, strict=True):
        if isinstance(wanted, str):
            assert reason is not None, text
            assert reason.startswith(wanted), text
        else:
            assert reason is None, text
            assert values == dict.fromkeys(columns.names) | wanted, text


def test_decimals_are_exact_to_the_last_digit(spark: Any) -> None:
    columns = schema_of(d="DECIMAL(38,18)", other="INT")
    text = '"d": 12345678901234567890.123456789012345678'
    found = json_outcomes(spark, columns, f"{{{text}}}", f'{{{text}, "other": "5"}}', f"{{{text.upper()}}}")
    assert [values["d"] for values, _ in found if values] == [Decimal("12345678901234567890.123456789012345678")] * 3


def test_nested_values_are_read_cast_and_judged_inside(spark: Any) -> None:
    columns = schema_of(
        items="ARRAY<STRUCT<sku: STRING, n: INT>>", tags="MAP<STRING, INT>", at="STRUCT<x: DOUBLE, `y z`: DATE>"
    )
    found = json_outcomes(
        spark,
        columns,
        '{"items": [{"sku": "a", "n": 1}, {"sku": "b"}], "tags": {"k": 2}, "at": {"x": 1, "y z": "2026-01-01"}}',
        '{"items": [{"sku": "a", "n": "1"}], "tags": {"k": "2"}}',
        '{"items": [{"n": "x"}]}',
        '{"tags": {"k": "x"}}',
        '{"at": 5}',
        '{"items": [5]}',
    )
    first, second = found[0][0], found[1][0]
    assert first is not None
    assert [tuple(item) for item in first["items"]] == [("a", 1), ("b", None)]
    assert first["tags"] == {"k": 2}
    assert tuple(first["at"]) == (1.0, dt.date(2026, 1, 1))
    assert second is not None
    assert [tuple(item) for item in second["items"]] == [("a", 1)]
    assert second["tags"] == {"k": 2}
    assert found[2][1] == "column 'items': '[{\"n\":\"x\"}]' is not an ARRAY<STRUCT<sku: STRING, n: INT>>"
    assert found[3][1] == "column 'tags': '{\"k\":\"x\"}' is not a MAP<STRING, INT>"
    assert found[4][1] == "column 'at': '5' is not a STRUCT<x: DOUBLE, y z: DATE>"
    assert found[5][1] == "column 'items': '[5]' is not an ARRAY<STRUCT<sku: STRING, n: INT>>"


def test_names_with_other_signs_are_found(spark: Any) -> None:
    columns = Schema.of([Column("a b", parse_type("INT")), Column("c.d`e", parse_type("INT"))])
    found = json_outcomes(spark, columns, '{"a b": 1, "c.d`e": 2}', '{"A B": 3, "C.D`E": "4"}')
    assert [values for values, _ in found] == [{"a b": 1, "c.d`e": 2}, {"a b": 3, "c.d`e": 4}]


CSV_CASES: list[tuple[str | bytes, dict[str, Any] | str]] = [
    ("1,x,2.50,ignored\r\n", {"i": 1, "s": "x", "d": Decimal("2.50")}),
    (",,,\n", {}),
    ("1,x,\n", "the row does not have 4 fields: 1,x,"),
    (',"",,', {"s": ""}),
    ('1,"a ""b"", c",,', {"i": 1, "s": 'a "b", c'}),
    ('1,"two\r\nlines",,\n', {"i": 1, "s": "two\r\nlines"}),
    ("1, blanks ,,", {"i": 1, "s": " blanks "}),
    (" 7 ,,,", {"i": 7}),
    ("many,,,", "column 'i': 'many' is not an INT"),
    (",,1e9999,", "column 'd': '1e9999' is not a DECIMAL(12,2)"),
    (",,2.345,", {"d": Decimal("2.35")}),
    ('"",,,', "column 'i': '' is not an INT"),
    ("1,x", "the row does not have 4 fields: 1,x"),
    ("1,x,,,5", "the row does not have 4 fields: 1,x,,,5"),
    (b"1,\xff,,", "the text is not UTF-8"),
    ('5" pipe,,,', "column 'i': '5\" pipe' is not an INT"),
    ('1,5" pipe,,', {"i": 1, "s": '5" pipe'}),
    ("1,#x,,", {"i": 1, "s": "#x"}),
    ("#1,x,,", "column 'i': '#1' is not an INT"),
    ("1,a\\,b", "the row does not have 4 fields"),
]


def test_csv_records_become_rows_or_reasons(spark: Any) -> None:
    columns = schema_of(d="DECIMAL(12,2)", i="INT", s="STRING")
    found = csv_outcomes(spark, columns, "I,s,d,other", *[text for text, _ in CSV_CASES])
    for (text, wanted), (values, reason) in zip(CSV_CASES, found, strict=True):
        if isinstance(wanted, str):
            assert reason is not None, text
            assert reason.startswith(wanted), text
        else:
            assert reason is None, (text, reason)
            assert values == dict.fromkeys(columns.names) | wanted, text


def test_csv_options_change_what_a_row_is(spark: Any) -> None:
    columns = schema_of(a="STRING", b="STRING")
    form: dict[str, Any] = {"delimiter": "||", "quote": "'", "escape": "\\", "null": "NA"}
    found = csv_outcomes(spark, columns, "a,b", "1||NA", "'x||y'||'it\\'s'", "''||z", **form)
    assert [tuple(v.values()) if v else r for v, r in found] == [("1", None), ("x||y", "it's"), ("", "z")]


def test_a_line_end_is_no_part_of_the_last_field(spark: Any) -> None:
    found = csv_outcomes(spark, schema_of(a="STRING", b="STRING"), "a,b", "1,\r\n", "1,x\n\n", '1,"x\n"\n')
    assert [values["b"] for values, _ in found if values] == [None, "x", "x\n"]


def test_without_a_quote_quotes_are_letters(spark: Any) -> None:
    columns = schema_of(a="STRING", b="STRING")
    found = csv_outcomes(spark, columns, "a,b", '"x,y"', quote="", escape="", delimiter=",")
    assert [tuple(v.values()) if v else r for v, r in found] == [('"x', 'y"')]


def test_one_column_alone_can_be_read(spark: Any) -> None:
    found = csv_outcomes(spark, schema_of(a="INT"), "a", "1\n", "x\n", '""\n')
    assert found[0] == ({"a": 1}, None)
    assert found[1][1] == "column 'a': 'x' is not an INT"


def test_a_number_where_text_is_wanted_stays_as_it_is_written(spark: Any) -> None:
    columns = schema_of(s="STRING", d="DOUBLE")
    written = ["1.10", "-0.50e+3", "1e400", '"1.50"', "12345678901234567890.10", "-0", "0"]
    for name in ("s", "S"):
        found = json_outcomes(spark, columns, *(f'{{"{name}" : {text}, "d": 1.10}}' for text in written))
        assert found == [({"s": text.strip('"'), "d": 1.1}, None) for text in written]


def test_numbers_inside_of_nested_values_stay_as_they_are_written(spark: Any) -> None:
    columns = schema_of(
        s="STRING", m="MAP<STRING, STRING>", l="ARRAY<STRUCT<t: STRING, d: DECIMAL(38,18), f: DOUBLE, n: INT>>"
    )
    exact = "12345678901234567890.123456789012345670"
    found = json_outcomes(
        spark,
        columns,
        f'{{"s": {{"p": [{exact}, -1.50e+3, 7, "at 1.10, \\"2.20\\""]}}}}',
        f'{{"m": {{"k": 1.10, "o": {{"x": {exact}}}, "n": 5, "t": "1.50"}}, "s": "{{not 1.10 json"}}',
        f'{{"l": [{{"t": 2.00, "d": {exact}, "f": 1.10, "n": 3}}, null]}}',
        f'{{"l": [{{"t": "x", "d": {exact}, "n": "3"}}]}}',
        '{"l": [{"t": 1.50, "n": 3.5}]}',
    )
    values = [row for row, _ in found[:4]]
    assert [row and row["s"] for row in values] == [
        f'{{"p":[{exact},-1.50e+3,7,"at 1.10, \\"2.20\\""]}}',
        "{not 1.10 json",
        None,
        None,
    ]
    assert values[1] is not None
    assert values[1]["m"] == {"k": "1.10", "o": f'{{"x":{exact}}}', "n": "5", "t": "1.50"}
    assert [None if item is None else tuple(item) for row in values[2:] if row for item in row["l"]] == [
        ("2.00", Decimal(exact), 1.1, 3),
        None,
        ("x", Decimal(exact), None, 3),
    ]
    assert found[4][1] is not None
    assert found[4][1].startswith("column 'l': '[{\"t\":1.50,\"n\":3.5}]' is not an ARRAY")


def test_bytes_inside_of_nested_values_are_base64_beside_any_number(spark: Any) -> None:
    columns = schema_of(v="STRUCT<b: BINARY, t: STRING>", n="INT")
    found = json_outcomes(spark, columns, *(f'{{"v": {{"b": "aGk=", "t": {t}}}, "n": "1"}}' for t in ("1", "1.10")))
    assert [tuple(values["v"]) for values, _ in found if values] == [(b"hi", "1"), (b"hi", "1.10")]
