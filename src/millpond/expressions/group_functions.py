"""The result types of aggregates and window functions, which are not evaluated as expressions."""

from __future__ import annotations

import pyarrow as pa

from millpond.expressions.coercion import BIGINT, BOOLEAN, DOUBLE, INT, STRING, is_interval, is_list, is_number
from millpond.expressions.rules import Operands, Signature, avg_rule, first_type_rule, list_of_rule, sum_rule, types_of
from millpond.expressions.signatures import Function, Functions, returns
from millpond.expressions.terms import UNKNOWN


def _first_rule(operands: Operands) -> Signature | None:
    """The type of the first argument, except intervals, of which Spark has more kinds than Arrow."""
    return None if is_interval(operands[0].type) else first_type_rule(operands)


def _by_rule(operands: Operands) -> Signature | None:
    """MAX_BY(x, y): with a third argument it is an array."""
    return _first_rule(operands) if len(operands) == 2 else None


def _percentile_rule(operands: Operands) -> Signature | None:
    types = types_of(operands)
    one = len(types) == 1 or not is_list(types[1])
    return Signature(tuple(types), DOUBLE) if one and is_number(types[0]) else None


def _approximate_rule(operands: Operands) -> Signature | None:
    return None if is_list(operands[1].type) else _first_rule(operands)


# Result type -> the functions that always have it.
_ALWAYS: dict[pa.DataType, str] = {
    STRING: "listagg string_agg",
    DOUBLE: """
        corr covar_pop covar_samp cume_dist kurtosis percent_rank regr_avgx regr_avgy regr_intercept regr_r2 regr_slope
        regr_sxx regr_sxy regr_syy skewness stddev stddev_pop stddev_samp var_pop var_samp variance
    """,
    INT: "dense_rank ntile rank row_number",
    BIGINT: "approx_count_distinct approx_distinct count count_if grouping_id regr_count",
    BOOLEAN: "any bool_and bool_or every logical_and logical_or some",
    pa.int8(): "grouping",
}
# Functions with the type of their first argument; `over` is the call before OVER, IGNORE NULLS and similar.
_FIRST = """
    any_value bit_and bit_and_agg bit_or bit_or_agg bit_xor bit_xor_agg bitwise_and_agg bitwise_or_agg bitwise_xor_agg
    distinct first first_value lag last last_value lead max min mode nth_value over
"""


def _both(function: Function, names: str) -> Functions:
    """The functions under their SQL names and under the names of sqlglot's nodes."""
    return {f"{mark}{name}": function for name in names.split() for mark in ("", UNKNOWN)}


FUNCTIONS: Functions = {
    **{name: f for type_, names in _ALWAYS.items() for name, f in _both(returns(type_), names).items()},
    **_both(Function(_first_rule), _FIRST),
    **_both(Function(_by_rule), "arg_max arg_min max_by min_by"),
    **_both(Function(_percentile_rule), "median percentile percentile_cont percentile_disc"),
    **_both(Function(_approximate_rule), "approx_percentile approx_quantile percentile_approx"),
    **_both(Function(sum_rule), "sum try_sum"),
    **_both(Function(avg_rule), "avg try_avg"),
    **_both(Function(list_of_rule), "collect_list collect_set array_agg"),
}
