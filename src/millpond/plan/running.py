"""Aggregates that follow from running values, in one table: what a batch adds, how it is merged, what comes of it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Running:
    """`partials` are (aggregate over the batch, merge); in the text {x} and {y} stand for the arguments, {f} for the
    FILTER of every call. `how` makes the user's value out of them."""

    how: str
    partials: tuple[tuple[str, str], ...]


_MOMENTS = "struct(count({x}){f} AS n, avg(double({x})){f} AS mean, var_pop({x}){f} * count({x}){f} AS m2)"
# Of a pair, `a` is the first argument and `b` the second: REGR_SLOPE(y, x) has a = y and b = x.
_PAIRS = (
    "struct(regr_count({x}, {y}){f} AS n, regr_avgy({x}, {y}){f} AS mean_a, regr_avgx({x}, {y}){f} AS mean_b, "
    "regr_syy({x}, {y}){f} AS m2_a, regr_sxx({x}, {y}){f} AS m2_b, regr_sxy({x}, {y}){f} AS c)"
)
_ORDER = "struct(_mp_major, _mp_minor)"
_FIRST = f"min_by(struct({{x}} AS v), {_ORDER}){{f}}"
_LAST = f"max_by(struct({{x}} AS v), {_ORDER}){{f}}"
# A row whose second argument is NULL does not count, as in Spark. Of equal ones MIN_BY takes the first of the stream
# and MAX_BY the last, however events are cut into batches: the place is kept beside the value.
_PLACED = "struct({x} AS v, {y} AS o, _mp_major AS a, _mp_minor AS b)"
_PLACED_ORDER = "IF(({y}) IS NULL, NULL, struct({y} AS o, _mp_major AS a, _mp_minor AS b))"


def _one(how: str, text: str, merge: str) -> Running:
    return Running(how, ((text, merge),))


_MOMENT_NAMES = ("stddev_samp", "stddev_pop", "var_samp", "var_pop")
_PAIR_NAMES = [
    "corr",
    "covar_pop",
    "covar_samp",
    "regr_slope",
    "regr_intercept",
    "regr_r2",
    "regr_count",
    "regr_avgx",
    "regr_avgy",
    "regr_sxx",
    "regr_sxy",
    "regr_syy",
]

RUNNING: dict[str, Running] = {
    "count": _one("count", "count({x}){f}", "sum"),
    "count_if": _one("count", "count_if({x}){f}", "sum"),
    "sum": _one("value", "sum({x}){f}", "sum"),
    "min": _one("value", "min({x}){f}", "min"),
    "max": _one("value", "max({x}){f}", "max"),
    "avg": Running("avg", (("sum({x}){f}", "sum"), ("count({x}){f}", "sum"))),
    "bool_and": _one("value", "bool_and({x}){f}", "and"),
    "bool_or": _one("value", "bool_or({x}){f}", "or"),
    "bit_and": _one("value", "bit_and({x}){f}", "bit_and"),
    "bit_or": _one("value", "bit_or({x}){f}", "bit_or"),
    "bit_xor": _one("value", "bit_xor({x}){f}", "bit_xor"),
    "first": _one("field", _FIRST, "first"),
    "last": _one("field", _LAST, "last"),
    "min_by": _one("field", f"min_by({_PLACED}, {_PLACED_ORDER}){{f}}", "min_by"),
    "max_by": _one("field", f"max_by({_PLACED}, {_PLACED_ORDER}){{f}}", "max_by"),
    **{name: _one(name, _MOMENTS, "moments") for name in _MOMENT_NAMES},
    **{name: _one(name, _PAIRS, "pairs") for name in _PAIR_NAMES},
}

# Other words for the same, and what sqlglot calls some of them.
SYNONYMS = {
    "mean": "avg",
    "every": "bool_and",
    "logical_and": "bool_and",
    "some": "bool_or",
    "any": "bool_or",
    "logical_or": "bool_or",
    "std": "stddev_samp",
    "stddev": "stddev_samp",
    "variance": "var_samp",
    "variance_pop": "var_pop",
    "first_value": "first",
    "any_value": "first",
    "last_value": "last",
    "bitwise_and_agg": "bit_and",
    "bitwise_or_agg": "bit_or",
    "bitwise_xor_agg": "bit_xor",
    "arg_max": "max_by",
    "arg_min": "min_by",
    "approx_distinct": "approx_count_distinct",
}

# Their value depends on the order of the stream.
BY_ORDER = frozenset({"first", "last"})
# Their value depends only on which values there are, not on how often.
OF_SETS = frozenset({"collect_set", "approx_count_distinct", "array_unique_agg"})
