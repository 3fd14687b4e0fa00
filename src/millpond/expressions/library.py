"""Every function by name: those evaluated here by topic, and those that are only typed here and evaluated by Spark."""

from __future__ import annotations

from dataclasses import dataclass

from millpond.expressions import (
    arithmetic,
    arrays,
    calendars,
    comparisons,
    conditionals,
    hashes,
    json_values,
    maps,
    mathematics,
    regexes,
    strings,
    structs,
    text_formats,
    times,
)
from millpond.expressions.call_names import ALIASES, WRITTEN_OTHERWISE
from millpond.expressions.coercion import BIGINT, BOOLEAN, DATE, DOUBLE, INT, STRING
from millpond.expressions.rules import Operands, Signature, avg_rule, first_type_rule, list_of_rule, sum_rule
from millpond.expressions.signatures import Function, Functions, named, returns, takes
from millpond.expressions.terms import Call
from millpond.schema import TIMESTAMP

# The order of the pages of docs/functions.md.
TOPICS: dict[str, Functions] = {
    "Text": {**strings.FUNCTIONS, **text_formats.FUNCTIONS},
    "Regular expressions": regexes.FUNCTIONS,
    "Dates and times": {**times.FUNCTIONS, **calendars.FUNCTIONS},
    "Conditions": {**conditionals.FUNCTIONS, **comparisons.FUNCTIONS},
    "Numbers": {**arithmetic.FUNCTIONS, **mathematics.FUNCTIONS},
    "Arrays": arrays.FUNCTIONS,
    "Maps": maps.FUNCTIONS,
    "Structs": structs.FUNCTIONS,
    "JSON": json_values.FUNCTIONS,
    "Bytes and hashes": hashes.FUNCTIONS,
}

_AGGREGATES: Functions = {
    **named(returns(BIGINT), "count", "count_if", "approx_count_distinct", "?approx_distinct", "?count_if"),
    "sum": Function(sum_rule),
    "avg": Function(avg_rule),
    **named(Function(first_type_rule), "min", "max", "any_value", "first", "last", "distinct", "?median"),
    **named(returns(DOUBLE), "stddev", "stddev_pop", "stddev_samp", "variance", "var_pop", "?corr", "?median"),
    **named(Function(list_of_rule), "collect_list", "collect_set"),
    **named(returns(BIGINT), "?row_number", "row_number", "rank", "?rank", "dense_rank", "?dense_rank"),
    **named(returns(BOOLEAN), "?logical_and", "?logical_or", "bool_and", "bool_or"),
}

# Typed for `check` and `explain`; Java's results are not those of Arrow, or nobody has taught them yet.
_BY_SPARK: Functions = {
    **named(takes(DOUBLE, DOUBLE), "exp", "ln"),
    "power": takes(DOUBLE, DOUBLE, DOUBLE),
    "log": takes(DOUBLE, DOUBLE, DOUBLE, optional=1),
    **named(returns(DOUBLE), "pi", "e", "rand", "?rand", "sin", "cos", "tan", "atan", "log2", "log10", "log1p", "cbrt"),
    **named(returns(STRING), "?date_format", "date_format", "?time_to_str", "md5", "?md5", "sha2", "uuid", "?uuid"),
    **named(returns(STRING), "to_json", "?json_format", "get_json_object", "hex", "?hex", "format_number", "translate"),
    **named(returns(INT), "hash", "ascii", "bit_length", "octet_length", "levenshtein", "?levenshtein"),
    **named(returns(BIGINT), "xxhash64", "crc32", "monotonically_increasing_id"),
    **named(returns(BIGINT), "unix_micros", "unix_millis", "unix_seconds"),
    **named(returns(BOOLEAN), "?exists", "isnan", "?is_nan"),
    **named(returns(DATE), "last_day", "?last_day", "next_day", "add_months", "?add_months", "make_date"),
    **named(returns(TIMESTAMP), "from_utc_timestamp", "to_utc_timestamp", "timestamp_micros", "timestamp_millis"),
}

FUNCTIONS: Functions = {
    **_BY_SPARK,
    **_AGGREGATES,
    **{name: function for topic in TOPICS.values() for name, function in topic.items()},
}


def signature(call: Call, operands: Operands) -> Signature | None:
    """What Spark makes of a call with these operands; None when the types do not fit or are not known here."""
    function = FUNCTIONS.get(call.name)
    if function is None:
        return None
    try:
        return function.rule(operands)
    except (ValueError, IndexError, KeyError):
        return None


@dataclass(frozen=True)
class Entry:
    """A function that is evaluated here, as docs/functions.md lists it."""

    name: str
    others: tuple[str, ...]
    meaning: str


def documented() -> dict[str, list[Entry]]:
    """The functions evaluated here by topic, each with its other names."""
    return {topic: _entries(topic, functions) for topic, functions in TOPICS.items()}


def _entries(topic: str, functions: Functions) -> list[Entry]:
    own = {name: function.meaning for name, function in functions.items() if function.meaning}
    meanings = own | WRITTEN_OTHERWISE.get(topic, {})
    return [Entry(name, _others(name), meanings[name]) for name in sorted(meanings)]


def _others(name: str) -> tuple[str, ...]:
    return tuple(sorted(other for other, (same, _) in ALIASES.items() if same == name and other != name))
