"""What each function takes and gives, as one table: the casts Spark puts around its arguments, and its result type."""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa

from millpond.expressions.coercion import BIGINT, BOOLEAN, DATE, DOUBLE, INT, STRING
from millpond.expressions.rules import (
    Operands,
    Rule,
    Signature,
    add_rule,
    anything_rule,
    arithmetic_rule,
    array_rule,
    avg_rule,
    case_rule,
    coalesce_rule,
    comparison_rule,
    concat_rule,
    concat_ws_rule,
    divide_rule,
    element_rule,
    extreme_rule,
    first_type_rule,
    fits,
    holds_rule,
    if_rule,
    length_rule,
    list_of_rule,
    logic_rule,
    membership_rule,
    nvl2_rule,
    product_digits,
    remainder_digits,
    round_rule,
    same_number_rule,
    size_rule,
    subtract_rule,
    sum_rule,
    types_of,
    unix_timestamp_rule,
    whole_division_rule,
    whole_rule,
)
from millpond.expressions.terms import Call
from millpond.schema import TIMESTAMP


@dataclass(frozen=True)
class Function:
    """A function's rule; `gives` is its result type where that does not depend on the arguments."""

    rule: Rule
    gives: pa.DataType | None = None


def signature(call: Call, operands: Operands) -> Signature | None:
    """What Spark makes of a call with these operands; None when the types do not fit or are not known here."""
    function = FUNCTIONS.get(call.name)
    if function is None:
        return None
    try:
        return function.rule(operands)
    except (ValueError, IndexError, KeyError):
        return None


def takes(gives: pa.DataType, *wanted: pa.DataType, optional: int = 0) -> Function:
    """A function of fixed types; the last `optional` arguments may be missing."""

    def rule(operands: Operands) -> Signature | None:
        if not len(wanted) - optional <= len(operands) <= len(wanted):
            return None
        pairs = list(zip(operands, wanted, strict=False))
        return Signature(wanted[: len(operands)], gives) if all(fits(o, t) for o, t in pairs) else None

    return Function(rule, gives)


def _gives(type_: pa.DataType) -> Function:
    """A function whose arguments are not looked at: known to `check`, evaluated by Spark."""
    return Function(lambda operands: Signature(tuple(types_of(operands)), type_), type_)


def _named(function: Function, *names: str) -> dict[str, Function]:
    return dict.fromkeys(names, function)


FUNCTIONS: dict[str, Function] = {
    **_named(Function(comparison_rule, BOOLEAN), "=", "<>", "<", "<=", ">", ">=", "<=>"),
    **_named(Function(logic_rule, BOOLEAN), "and", "or", "not"),
    "in": Function(membership_rule, BOOLEAN),
    **_named(Function(anything_rule, BOOLEAN), "is_null", "isnotnull"),
    "like": takes(BOOLEAN, STRING, STRING, STRING, optional=1),
    "rlike": takes(BOOLEAN, STRING, STRING),
    "case": Function(case_rule),
    "if": Function(if_rule),
    "nvl2": Function(nvl2_rule),
    "coalesce": Function(coalesce_rule),
    **_named(Function(extreme_rule), "greatest", "least"),
    "+": Function(add_rule),
    "-": Function(subtract_rule),
    "*": Function(arithmetic_rule(product_digits)),
    "/": Function(divide_rule),
    "div": Function(whole_division_rule, BIGINT),
    **_named(Function(arithmetic_rule(remainder_digits)), "%", "pmod"),
    **_named(Function(same_number_rule), "negative", "abs"),
    **_named(Function(round_rule), "round", "bround"),
    **_named(Function(whole_rule), "ceil", "floor"),
    **_named(takes(DOUBLE, DOUBLE), "sqrt", "sign", "exp", "ln"),
    "power": takes(DOUBLE, DOUBLE, DOUBLE),
    "log": takes(DOUBLE, DOUBLE, DOUBLE, optional=1),
    **_named(takes(STRING, STRING), "upper", "lower", "initcap", "reverse"),
    **_named(takes(STRING, STRING, STRING, optional=1), "trim", "ltrim", "rtrim"),
    "length": Function(length_rule, INT),
    "concat": Function(concat_rule),
    "concat_ws": Function(concat_ws_rule, STRING),
    "substring": takes(STRING, STRING, INT, INT, optional=1),
    "replace": takes(STRING, STRING, STRING, STRING, optional=1),
    **_named(takes(STRING, STRING, INT), "left", "right", "repeat"),
    **_named(takes(STRING, STRING, INT, STRING, optional=1), "lpad", "rpad"),
    "locate": takes(INT, STRING, STRING, INT, optional=1),
    "split_part": takes(STRING, STRING, STRING, INT),
    **_named(takes(BOOLEAN, STRING, STRING), "startswith", "endswith", "contains"),
    **_named(takes(INT, DATE), "year", "quarter", "month", "day", "dayofweek", "dayofyear", "weekday"),
    **_named(takes(INT, TIMESTAMP), "hour", "minute", "second"),
    **_named(takes(DATE, DATE, INT), "date_add", "date_sub"),
    "datediff": takes(INT, DATE, DATE),
    "date_trunc": takes(TIMESTAMP, STRING, TIMESTAMP),
    "unix_timestamp": Function(unix_timestamp_rule, BIGINT),
    "from_unixtime": takes(STRING, BIGINT),
    "current_date": takes(DATE),
    "current_timestamp": takes(TIMESTAMP),
    "size": Function(size_rule, INT),
    **_named(Function(element_rule), "[]", "element_at"),
    "array_contains": Function(holds_rule, BOOLEAN),
    "array": Function(array_rule),
    **_named(_gives(BIGINT), "count", "count_if", "approx_count_distinct", "?approx_distinct", "?count_if"),
    "sum": Function(sum_rule),
    "avg": Function(avg_rule),
    **_named(Function(first_type_rule), "min", "max", "any_value", "first", "last", "distinct", "?median"),
    **_named(_gives(DOUBLE), "stddev", "stddev_pop", "stddev_samp", "variance", "var_pop", "?corr", "?median"),
    **_named(_gives(DOUBLE), "pi", "e", "rand", "?rand", "sin", "cos", "tan", "atan", "log2", "log10", "log1p", "cbrt"),
    **_named(Function(list_of_rule), "collect_list", "collect_set"),
    **_named(_gives(STRING), "?date_format", "date_format", "?time_to_str", "md5", "?md5", "sha2", "uuid", "?uuid"),
    **_named(_gives(STRING), "to_json", "?json_format", "get_json_object", "hex", "?hex", "format_number", "translate"),
    **_named(_gives(INT), "hash", "crc32", "ascii", "bit_length", "octet_length", "levenshtein", "?levenshtein"),
    **_named(_gives(BIGINT), "xxhash64", "monotonically_increasing_id", "unix_micros", "unix_millis", "unix_seconds"),
    **_named(_gives(BIGINT), "?row_number", "row_number", "rank", "?rank", "dense_rank", "?dense_rank"),
    **_named(_gives(BOOLEAN), "?exists", "?logical_and", "?logical_or", "bool_and", "bool_or", "isnan", "?is_nan"),
    **_named(_gives(DATE), "last_day", "?last_day", "next_day", "add_months", "?add_months", "make_date"),
    **_named(_gives(TIMESTAMP), "from_utc_timestamp", "to_utc_timestamp", "timestamp_micros", "timestamp_millis"),
}
