"""All functions by name: those that Arrow evaluates, by topic, and those that are only typed and evaluated by Spark."""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa

from millpond.expressions import (
    arithmetic,
    arrays,
    calendars,
    comparisons,
    conditionals,
    group_functions,
    hashes,
    json_values,
    logarithms,
    maps,
    mathematics,
    regexes,
    strings,
    text_formats,
    times,
)
from millpond.expressions.call_names import ALIASES, WRITTEN_OTHERWISE
from millpond.expressions.coercion import BIGINT, BINARY, BOOLEAN, DOUBLE, INT, STRING
from millpond.expressions.lambdas import LAMBDAS
from millpond.expressions.rules import Operands, Signature, first_type_rule
from millpond.expressions.signatures import Function, Functions, named, returns
from millpond.expressions.terms import Call
from millpond.schema import TIMESTAMP, TIMESTAMP_NTZ

# In the order of docs/functions.md.
TOPICS: dict[str, Functions] = {
    "Text": {**strings.FUNCTIONS, **text_formats.FUNCTIONS},
    "Regular expressions": regexes.FUNCTIONS,
    "Dates and times": {**times.FUNCTIONS, **calendars.FUNCTIONS},
    "Conditions": {**conditionals.FUNCTIONS, **comparisons.FUNCTIONS},
    "Numbers": {**arithmetic.FUNCTIONS, **mathematics.FUNCTIONS, **logarithms.FUNCTIONS},
    "Arrays": arrays.FUNCTIONS,
    "Maps": maps.FUNCTIONS,
    "Structs": maps.STRUCT_FUNCTIONS,
    "Lambdas": {},
    "JSON": json_values.FUNCTIONS,
    "Bytes and hashes": hashes.FUNCTIONS,
}

_DOUBLES = """
    acos acosh asin asinh atan atan2 atanh cbrt cos cosh cot csc exp expm1 hypot ln log log10 log1p log2 rand randn
    random sec sin sinh tan tanh
"""
_TEXTS = """
    collation conv current_catalog current_database current_schema current_timezone current_user input_file_name
    make_valid_utf8 mask quote randstr schema_of_csv schema_of_json session_user soundex to_char to_csv to_varchar
    to_xml try_parse_url try_url_decode try_validate_utf8 user uuid validate_utf8 version xpath_string
"""
_TIMES = """
    from_utc_timestamp make_timestamp_ltz to_timestamp_ltz to_utc_timestamp try_make_timestamp try_make_timestamp_ltz
"""
_VECTORS = "vector_cosine_similarity vector_inner_product vector_l2_distance vector_norm"
_LOCAL_TIMES = "convert_timezone localtimestamp make_timestamp_ntz to_timestamp_ntz try_make_timestamp_ntz"

# Typed for `check` and `explain`, and evaluated by Spark: Java's results differ from those of other libraries, they
# depend on the session or are random, or they are rarely used.
_BY_SPARK: Functions = {
    **named(returns(DOUBLE), *_DOUBLES.split()),
    **named(returns(pa.float32()), *_VECTORS.split()),
    **named(returns(STRING), *_TEXTS.split()),
    **named(returns(TIMESTAMP), *_TIMES.split()),
    **named(returns(TIMESTAMP_NTZ), *_LOCAL_TIMES.split()),
    **named(returns(BIGINT), "monotonically_increasing_id", "bitmap_count", "bitmap_bucket_number", "xpath_long"),
    **named(returns(BIGINT), "input_file_block_length", "input_file_block_start", "hll_sketch_estimate"),
    **named(returns(INT), "spark_partition_id", "regexp_instr", "xpath_int"),
    **named(returns(BOOLEAN), "?exists", "luhn_check", "is_valid_utf8", "is_variant_null", "xpath_boolean"),
    **named(returns(BINARY), "aes_decrypt", "aes_encrypt", "to_binary", "try_aes_decrypt", "try_to_binary"),
    "str_to_map": returns(pa.map_(STRING, STRING)),
    "sentences": returns(pa.list_(pa.list_(STRING))),
    "xpath": returns(pa.list_(STRING)),
    "shuffle": Function(first_type_rule),
}

FUNCTIONS: Functions = {
    **_BY_SPARK,
    **group_functions.FUNCTIONS,
    **{name: function for topic in TOPICS.values() for name, function in topic.items()},
}


def signature(call: Call, operands: Operands) -> Signature | None:
    """The signature of a call with these operands in Spark; None if the types are not valid or not known."""
    function = FUNCTIONS.get(call.name)
    if function is None:
        return None
    try:
        return function.rule(operands)
    except (ValueError, IndexError, KeyError):
        return None


@dataclass(frozen=True)
class Entry:
    """A function that Arrow evaluates, as listed in docs/functions.md."""

    name: str
    others: tuple[str, ...]
    meaning: str


def documented() -> dict[str, list[Entry]]:
    """The functions that Arrow evaluates by topic, each with its aliases."""
    return {topic: _entries(topic, functions) for topic, functions in TOPICS.items()}


def _entries(topic: str, functions: Functions) -> list[Entry]:
    own = {name: function.meaning for name, function in functions.items() if function.meaning}
    if topic == "Lambdas":
        own = {name: function.meaning for name, function in LAMBDAS.items()}
    meanings = own | WRITTEN_OTHERWISE.get(topic, {})
    return [Entry(name, _others(name), meanings[name]) for name in sorted(meanings)]


def _others(name: str) -> tuple[str, ...]:
    return tuple(sorted(other for other, (same, _) in ALIASES.items() if same == name and other != name))
