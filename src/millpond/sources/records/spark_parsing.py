"""Parses raw JSON and CSV records with Spark; every invalid record gets a reason."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from pyspark.sql import Column as SparkColumn
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from millpond.contracts.source import BAD, RAW
from millpond.schema import Column, Schema, type_name
from millpond.sources.records.column_types import PROBLEM, SUSPECT, VALUE, quoted, table_ddl, type_ddl
from millpond.sources.records.formats import FileFormat, column_place
from millpond.sources.records.text_parsing import NOT_UTF8, SHOWN_CHARACTERS

# Private-use characters, which do not occur in texts in this order.
_MARK = "\ue000\ue00a\ue000"
# Matches strings and whole numbers as a unit, except -0, which Spark writes as 0; possessive, because Java's stack is
# small.
_BETWEEN = r'(?:"(?:[^"\\]|\\.)*+"|(?!-0(?![.eE0-9]))-?[0-9]++(?![.eE0-9])|[^"0-9-])*+'
_NUMBER = r"-?[0-9]++(?:\.[0-9]++)?+(?:[eE][+-]?[0-9]++)?+"
# How Spark writes a fraction where text is wanted: alone, or inside an object or list.
_ALONE = r'-?[0-9]+\.[0-9]+(E-?[0-9]+)?|"-?Infinity"'
_INSIDE = r"[\[{].*([0-9]\.[0-9]|Infinity).*"
_WRITTEN = r"[\[,:]\s*(-0|-?[0-9]+[.eE])"
_ZERO = r"0|[\[{].*[\[,:]0[\]},].*"


def may_be_inexact(value: SparkColumn, type_: pa.DataType | None, text: SparkColumn) -> SparkColumn:
    """Whether Spark, which read `value` of this type from a record's text, may have rewritten a number."""
    if pa.types.is_string(type_):
        negative_zero = F.contains(text, F.lit("-0")) & value.rlike(f"(?s)^({_ZERO})$")
        return F.coalesce(value.rlike(f"(?s)^({_ALONE}|{_INSIDE})$") | negative_zero, F.lit(False))
    return text.rlike(_WRITTEN) if has_texts(type_) else F.lit(False)


def has_texts(type_: Any) -> bool:
    """Whether a nested type contains texts."""
    if pa.types.is_struct(type_):
        return any(pa.types.is_string(field.type) or has_texts(field.type) for field in type_)
    if pa.types.is_map(type_):
        return pa.types.is_string(type_.item_type) or has_texts(type_.item_type)
    return bool(pa.types.is_list(type_)) and (pa.types.is_string(type_.value_type) or has_texts(type_.value_type))


def marked(text: SparkColumn) -> SparkColumn:
    """JSON text with its fractions in quotes, marked; marking twice changes nothing."""
    return F.regexp_replace(text, rf"(?s)\G({_BETWEEN})({_NUMBER})", f'$1"{_MARK}$2"')


def unmarked(text: SparkColumn) -> SparkColumn:
    """A text that Spark extracted from marked JSON, in its original form."""
    return F.regexp_replace(text, f'"{_MARK}([^"]*)"|{_MARK}', "$1")


def unmarked_inside(value: SparkColumn, type_: pa.DataType) -> SparkColumn:
    """A nested value, whose leaves are all texts, without marks; `type_` is its final type."""
    if pa.types.is_struct(type_):
        fields = [unmarked_inside(value.getField(field.name), field.type).alias(field.name) for field in type_]
        return F.when(value.isNotNull(), F.struct(*fields))
    if pa.types.is_map(type_):
        return F.transform_values(value, lambda _, inner: unmarked_inside(inner, type_.item_type))
    if pa.types.is_list(type_):
        return F.transform(value, lambda inner: unmarked_inside(inner, type_.value_type))
    return value if pa.types.is_binary(type_) else unmarked(value)


# Names of temporary columns; a user's column cannot have this prefix.
_TEXT, _ROW, _SLOW, _CORRUPT, _WHY = "_mp_text", "_mp_row", "_mp_slow", "_mp_corrupt", "_mp_why"
# Strict JSON: no single quotes, no NaN.
_JSON_OPTIONS = {
    "allowSingleQuotes": "false",
    "allowNonNumericNumbers": "false",
    "columnNameOfCorruptRecord": _CORRUPT,
    "mode": "PERMISSIVE",
}
# The value of an empty field before it becomes NULL; it cannot be typed.
_NO_TEXT = "\x01\x02"


def parse_json(raw: DataFrame, columns: Schema, kept: Sequence[str]) -> DataFrame:
    """One JSON object per record. A field is matched by its exact name, else without regard to case; one that does not
    have the declared type is cast from its text by ANSI rules."""
    rows = raw.select(*kept, SUSPECT, PROBLEM, F.col(VALUE).cast("string").alias(_TEXT))
    rows = rows.select("*", F.from_json(_TEXT, _with_corrupt(table_ddl(columns)), _JSON_OPTIONS).alias(_ROW))
    # Most records are complete at this point; a single step for the others keeps these from paying for it.
    rows = rows.select("*", _slow(columns).alias(_SLOW))
    values = [_json_value(column) for column in columns]
    texts = [unmarked(_field(_SLOW, "texts").getField(column.name)) for column in columns]
    casts = [_Cast(c, f"_mp_{i}", values[i], texts[i]) for i, c in enumerate(columns)]
    broken = _field(_SLOW, "texts").getField(_CORRUPT).isNotNull()
    unreadable = F.col(_ROW).isNull() | broken | (F.col(SUSPECT) & _is_not_one_value())
    return _finished(rows, casts, kept, F.when(unreadable, _not_json()))


def _slow(columns: Schema) -> SparkColumn:
    """What a record needs that Spark could not read at all, or not exactly: the row with its names spelled as
    declared, and all its fields as texts with marked fractions; NULL for a record that is fine."""
    misspelt, inexact = _misspelt(columns), _inexact(columns)
    text = F.when(misspelt, _spelt_right(columns)).otherwise(F.col(_TEXT))
    row = F.from_json(text, _with_corrupt(table_ddl(columns)), _JSON_OPTIONS)
    as_texts = _with_corrupt(", ".join(f"{quoted(c.name)} STRING" for c in columns))
    texts = F.from_json(marked(text), as_texts, _JSON_OPTIONS)
    # Whether a field with other letters in its name was read exactly can only be determined from its text.
    needed = F.when(row.getField(_CORRUPT).isNotNull() | inexact | misspelt, texts)
    parts = [text.alias("text"), row.alias("row"), needed.alias("texts")]
    return F.when(_field(_ROW, _CORRUPT).isNotNull() | misspelt | inexact, F.struct(*parts))


def _json_value(column: Column) -> SparkColumn:
    """A field as Spark parsed it; if it could not, or not exactly, cast from its text."""
    row, texts = _field(_SLOW, "row"), _field(_SLOW, "texts")
    typed, text = row.getField(column.name), texts.getField(column.name)
    from_text = _from_text(text if pa.types.is_nested(column.type) else unmarked(text), column.type)
    if pa.types.is_nested(column.type):
        # Of a nested value Spark returns the part that fits: it is used only if the record, or the field alone, is
        # valid.
        alone_type = _with_corrupt(f"{quoted(column.name)} {type_ddl(column.type)}")
        alone = F.from_json(_field(_SLOW, "text"), alone_type, _JSON_OPTIONS)
        right = F.when(alone.getField(_CORRUPT).isNull(), alone.getField(column.name))
        both = (from_text, right) if has_texts(column.type) else (right, from_text)
        slow = F.when(texts.isNull(), typed).otherwise(F.coalesce(*both))
    elif pa.types.is_string(column.type):
        slow = F.coalesce(from_text, typed)
    else:
        slow = F.coalesce(typed, from_text)
    return F.when(F.col(_SLOW).isNull(), _field(_ROW, column.name)).otherwise(slow)


def _with_corrupt(fields: str) -> str:
    return f"{fields}, {quoted(_CORRUPT)} STRING"


def parse_csv(
    raw: DataFrame, columns: Schema, kept: Sequence[str], names: Sequence[str], form: FileFormat
) -> DataFrame:
    """One CSV row per record, of files whose columns are `names`, in that order."""
    # A line end would become part of the last field.
    text = F.rtrim(F.col(VALUE).cast("string"), F.lit("\r\n"))
    rows = raw.select(*kept, SUSPECT, PROBLEM, text.alias(_TEXT))
    fields = ", ".join(f"f{i} STRING" for i in range(len(names)))
    parsed = F.from_csv(_TEXT, F.lit(f"{fields}, {_CORRUPT} STRING"), _csv_options(form))
    rows = rows.select("*", parsed.alias(_ROW))
    places = {c.name: column_place(c.name, names) for c in columns}
    # A column that was discovered in other files may be absent in these.
    nothing = F.lit(None).cast("string")
    texts = {name: nothing if place is None else _field(_ROW, f"f{place}") for name, place in places.items()}
    casts = [_Cast(c, f"_mp_{i}", _from_text(texts[c.name], c.type), texts[c.name]) for i, c in enumerate(columns)]
    count = F.lit(f"the row does not have {len(names)} fields: ")
    wrong_count = F.when(_field(_ROW, _CORRUPT).isNotNull(), F.concat(count, _shown(F.col(_TEXT))))
    return _finished(rows, casts, kept, wrong_count)


@dataclass(frozen=True)
class _Cast:
    """A declared column during parsing: its value under a temporary name, and the text that it was cast from."""

    column: Column
    name: str
    value: SparkColumn
    text: SparkColumn

    def problem(self) -> SparkColumn:
        """Why the text cannot be cast, or NULL."""
        wanted = type_name(self.column.type)
        article = "an" if wanted[0] in "AEIOU" else "a"
        start, end = F.lit(f"column '{self.column.name}': '"), F.lit(f"' is not {article} {wanted}")
        return F.when(F.col(self.name).isNull() & self.text.isNotNull(), F.concat(start, _shown(self.text), end))


def _finished(rows: DataFrame, casts: Sequence[_Cast], kept: Sequence[str], unreadable: SparkColumn) -> DataFrame:
    """Values, reason and raw bytes of each record, by its first problem."""
    rows = rows.select("*", *[cast.value.alias(cast.name) for cast in casts])
    no_text = F.when(F.col(SUSPECT) & ~F.is_valid_utf8(_TEXT), F.lit(NOT_UTF8))
    found = F.coalesce(F.col(PROBLEM), no_text, unreadable, *[cast.problem() for cast in casts])
    rows = rows.select("*", found.alias(_WHY))
    good = F.col(_WHY).isNull()
    columns = [F.when(good, F.col(cast.name)).alias(cast.column.name) for cast in casts]
    raw = F.when(~good, F.rtrim(F.col(_TEXT), F.lit("\r\n")).cast("binary")).alias(RAW)
    return rows.select(*columns, *kept, F.col(_WHY).alias(BAD), raw)


def _field(struct: str, name: str) -> SparkColumn:
    return F.col(struct).getField(name)


def _misspelt(columns: Schema) -> SparkColumn:
    """Whether the text contains a missing field in another case; only checked if one is NULL."""
    misspelt = F.lit(False)
    for column in columns:
        without = F.replace(F.col(_TEXT), F.lit(f'"{column.name}"'), F.lit(""))
        other = F.contains(F.lower(without), F.lit(f'"{column.name.lower()}"'))
        misspelt = misspelt | (_field(_ROW, column.name).isNull() & other)
    return misspelt


def _spelt_right(columns: Schema) -> SparkColumn:
    """The text with the names of the declared columns in their declared case."""
    text = F.col(_TEXT)
    for column in columns:
        pattern = f'(?i)"{_regex_quoted(column.name)}"(\\s*):'
        replacement = f'"{column.name}"$1:'.replace("\\", "\\\\")
        text = F.regexp_replace(text, pattern, replacement)
    return text


def _inexact(columns: Schema) -> SparkColumn:
    """Whether a text may have been a number with a fraction or exponent, which Spark writes in its own way."""
    inexact = F.lit(False)
    for column in columns:
        inexact = inexact | may_be_inexact(_field(_ROW, column.name), column.type, F.col(_TEXT))
    return inexact


def _regex_quoted(text: str) -> str:
    return "".join(char if char.isalnum() or char == "_" else f"\\{char}" for char in text)


def _from_text(text: SparkColumn, type_: pa.DataType | None) -> SparkColumn:
    """A value from its text, NULL if it cannot be cast; a nested one from JSON text, marked or not."""
    assert type_ is not None, "columns must be known before records are read"
    if pa.types.is_nested(type_):
        return _nested(text, type_)
    if pa.types.is_string(type_):
        return text
    if pa.types.is_binary(type_):
        return F.try_to_binary(text, F.lit("base64"))
    return text.try_cast(type_ddl(type_))


def _nested(text: SparkColumn, type_: pa.DataType) -> SparkColumn:
    """A nested value from JSON text: parsed with texts as its leaves, which are then cast; NULL if one cannot be."""
    wrapped = marked(F.concat(F.lit('{"v":'), text, F.lit("}")))
    schema = f"v {type_ddl(_with_text_leaves(type_))}, {quoted(_CORRUPT)} STRING"
    row = F.from_json(wrapped, schema, _JSON_OPTIONS)
    parsed = unmarked_inside(row.getField("v"), type_)
    fits = row.getField(_CORRUPT).isNull() & ~_any_leaf_wrong(parsed, type_)
    return F.when(fits, parsed.try_cast(type_ddl(type_)))


def _with_text_leaves(type_: pa.DataType) -> pa.DataType:
    if pa.types.is_struct(type_):
        return pa.struct([pa.field(f.name, _with_text_leaves(f.type)) for f in type_])
    if pa.types.is_map(type_):
        return pa.map_(pa.string(), _with_text_leaves(type_.item_type))
    if pa.types.is_list(type_):
        return pa.list_(_with_text_leaves(type_.value_type))
    # Bytes are in base64, which a cast from text does not decode.
    return type_ if pa.types.is_binary(type_) else pa.string()


def _any_leaf_wrong(value: SparkColumn, type_: pa.DataType) -> SparkColumn:
    """Whether a text inside of the value cannot be cast to its type in `type_`."""
    if pa.types.is_struct(type_):
        wrong = F.lit(False)
        for field in type_:
            wrong = wrong | _any_leaf_wrong(value.getField(field.name), field.type)
        return wrong
    if pa.types.is_map(type_):
        return F.coalesce(F.exists(F.map_values(value), lambda x: _any_leaf_wrong(x, type_.item_type)), F.lit(False))
    if pa.types.is_list(type_):
        return F.coalesce(F.exists(value, lambda x: _any_leaf_wrong(x, type_.value_type)), F.lit(False))
    if pa.types.is_string(type_) or pa.types.is_binary(type_):
        return F.lit(False)
    return value.isNotNull() & value.try_cast(type_ddl(type_)).isNull()


def _is_not_one_value() -> SparkColumn:
    """Whether something follows the object: Spark's parser stops after the first value and would lose the rest."""
    count = F.json_array_length(F.concat(F.lit("["), F.col(_TEXT), F.lit("]")))
    return F.coalesce(count, F.lit(0)) != 1


def _not_json() -> SparkColumn:
    return F.concat(F.lit("not a JSON object: "), _shown(F.col(_TEXT)))


def _shown(text: SparkColumn) -> SparkColumn:
    return F.substring(F.rtrim(text, F.lit("\r\n")), 1, SHOWN_CHARACTERS)


def _csv_options(form: FileFormat) -> dict[str, str]:
    return {
        "sep": form.delimiter,
        "quote": form.quote or "\x00",
        "escape": form.escape or "\x00",
        "nullValue": _NO_TEXT if form.null is None else form.null,
        "emptyValue": "",
        "multiLine": "true",
        "mode": "PERMISSIVE",
        "columnNameOfCorruptRecord": _CORRUPT,
    }
