"""Numbers with a fraction or exponent in JSON text: kept as they stand where Spark would make doubles of them.

Spark reads a number exactly where a DECIMAL is declared, and in its own way where text is wanted: `1.10` becomes
`1.1`, also inside of an object that is wanted as text. Before it reads such text the numbers are put in quotes, behind
a mark by which they are known again.
"""

from __future__ import annotations

from typing import Any

import pyarrow as pa
from pyspark.sql import Column as SparkColumn
from pyspark.sql import functions as F

# Private-use characters, which no text has in this order.
_MARK = "\ue000\ue00a\ue000"
# Strings are passed over as wholes, whole numbers too; possessive, because Java's stack is short.
_BETWEEN = r'(?:"(?:[^"\\]|\\.)*+"|-?[0-9]++(?![.eE0-9])|[^"0-9-])*+'
_NUMBER = r"-?[0-9]++(?:\.[0-9]++)?+(?:[eE][+-]?[0-9]++)?+"
# How Spark writes a fraction where text is wanted: alone, or inside of an object or list.
_ALONE = r'-?[0-9]+\.[0-9]+(E-?[0-9]+)?|"-?Infinity"'
_INSIDE = r"[\[{].*([0-9]\.[0-9]|Infinity).*"
_WRITTEN = r"[\[,:]\s*-?[0-9]+[.eE]"


def may_be_inexact(value: SparkColumn, type_: pa.DataType | None, text: SparkColumn) -> SparkColumn:
    """Whether Spark, which read `value` of this type from a record's text, may have rewritten a number."""
    if pa.types.is_string(type_):
        return F.coalesce(value.rlike(f"(?s)^({_ALONE}|{_INSIDE})$"), F.lit(False))
    return text.rlike(_WRITTEN) if has_texts(type_) else F.lit(False)


def has_texts(type_: Any) -> bool:
    """Whether a nested type wants texts somewhere inside."""
    if pa.types.is_struct(type_):
        return any(pa.types.is_string(field.type) or has_texts(field.type) for field in type_)
    if pa.types.is_map(type_):
        return pa.types.is_string(type_.item_type) or has_texts(type_.item_type)
    return bool(pa.types.is_list(type_)) and (pa.types.is_string(type_.value_type) or has_texts(type_.value_type))


def marked(text: SparkColumn) -> SparkColumn:
    """JSON text with its fractions in quotes, marked; marking twice changes nothing."""
    return F.regexp_replace(text, rf"(?s)\G({_BETWEEN})({_NUMBER})", f'$1"{_MARK}$2"')


def unmarked(text: SparkColumn) -> SparkColumn:
    """A text that Spark took out of marked JSON, as it stood."""
    return F.regexp_replace(text, f'"{_MARK}([^"]*)"|{_MARK}', "$1")


def unmarked_inside(value: SparkColumn, type_: pa.DataType) -> SparkColumn:
    """A nested value, all of whose leaves are texts, without marks; `type_` is the one that it will have."""
    if pa.types.is_struct(type_):
        fields = [unmarked_inside(value.getField(field.name), field.type).alias(field.name) for field in type_]
        return F.when(value.isNotNull(), F.struct(*fields))
    if pa.types.is_map(type_):
        return F.transform_values(value, lambda _, inner: unmarked_inside(inner, type_.item_type))
    if pa.types.is_list(type_):
        return F.transform(value, lambda inner: unmarked_inside(inner, type_.value_type))
    return value if pa.types.is_binary(type_) else unmarked(value)
