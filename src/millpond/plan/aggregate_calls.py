"""Aggregate calls: their parts, and the running values from which their results are computed."""

from __future__ import annotations

from dataclasses import dataclass

from sqlglot import exp

from millpond.plan.function_names import function_name
from millpond.plan.paths import PATH
from millpond.sql.spark import render


@dataclass(frozen=True)
class Running:
    """The running values of an aggregate. `partials` are (aggregate over the batch, merge); in the text, {x} and {y}
    are the arguments, {f} is the FILTER. `how` computes the user's value from them."""

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
# A row whose second argument is NULL does not count, as in Spark. Of equal ones MIN_BY returns the first of the stream
# and MAX_BY the last, independent of batches: therefore the position is stored with the value.
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

# Aliases, and sqlglot's names of some functions.
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

# Functions whose value depends on the order of the stream.
BY_ORDER = frozenset({"first", "last"})
# Functions whose value depends only on the set of values, not on their counts.
OF_SETS = frozenset({"collect_set", "approx_count_distinct", "array_unique_agg"})


# Functions for which DISTINCT changes nothing.
_SAME_WHEN_DISTINCT = ("min", "max", "bool_and", "bool_or", "bit_and", "bit_or")
_LISTS = ("array_agg", "collect_list")
_TEXTS = ("listagg", "string_agg")


@dataclass(frozen=True)
class Call:
    """An aggregate call: `node` is the call with FILTER and similar clauses, `inner` the function alone."""

    node: exp.Expr
    inner: exp.Expr
    name: str
    arguments: tuple[exp.Expr, ...]
    distinct: bool
    where: exp.Expr | None
    ignores_nulls: bool
    order: exp.Expr | None

    @property
    def text(self) -> str:
        """The call as written, without the qualifiers added by binding."""
        return render(self.node.transform(_as_written))


def _as_written(node: exp.Expr) -> exp.Expr:
    if node.meta_get(PATH):
        return exp.Var(this=node.meta_get(PATH))
    return exp.column(node.name) if isinstance(node, exp.Column) else node


def read_call(node: exp.Expr) -> Call:
    """The parts of a call; `node` is one that `aggregates_in` returns."""
    inner, where, order, ignores_nulls = node, None, None, False
    while isinstance(inner, exp.Filter | exp.WithinGroup | exp.IgnoreNulls | exp.RespectNulls):
        if isinstance(inner, exp.Filter):
            where = inner.expression.this
        elif isinstance(inner, exp.WithinGroup):
            order = inner.expression
        ignores_nulls = ignores_nulls or isinstance(inner, exp.IgnoreNulls)
        inner = inner.this
    name = SYNONYMS.get(function_name(inner), function_name(inner))
    arguments = tuple(inner.iter_expressions())
    distinct = bool(arguments) and isinstance(arguments[0], exp.Distinct)
    if distinct:
        arguments = (*arguments[0].expressions, *arguments[1:])
    if name in BY_ORDER and len(arguments) == 2 and isinstance(arguments[1], exp.Boolean):
        # FIRST(x, true) means IGNORE NULLS.
        ignores_nulls, arguments = bool(arguments[1].this), arguments[:1]
    return Call(node, inner, name, arguments, distinct, where, ignores_nulls, order)


def is_running(call: Call, *, session: bool) -> bool:
    """Whether a call can be computed from running values. Sessions merge, which changes the order of their events."""
    if call.name not in RUNNING or call.order is not None or (session and call.name in BY_ORDER):
        return False
    if call.distinct and call.name not in _SAME_WHEN_DISTINCT:
        return False
    wanted = 2 if "{y}" in RUNNING[call.name].partials[0][0] else 1
    return len(call.arguments) == wanted or (call.name == "count" and len(call.arguments) > 1)


def is_distinct_count(call: Call, *, session: bool) -> bool:
    """Whether a call counts distinct values as they first occur; for sessions, which merge, the values must be
    stored."""
    if session or call.order is not None:
        return False
    if call.name == "count":
        return call.distinct
    return call.name == "approx_count_distinct" and len(call.arguments) == 1


def depends_on_order(call: Call) -> bool:
    """Whether its value depends on the order of the stream."""
    lists = call.name in _LISTS or call.name in _TEXTS
    return call.name in BY_ORDER or (lists and not call.distinct and call.order is None)


def depends_on_set(call: Call) -> bool:
    """Whether its value depends only on the set of values."""
    return (call.distinct or call.name in OF_SETS) and call.order is None


def kept_text(call: Call, replaced: exp.Expr, arguments: tuple[str, ...], where: str | None) -> str:
    """The call as Spark SQL over stored values, which are numbered by `n` in stream order. `replaced` is the call over
    columns of the stored values, `arguments` and `where` are these columns."""
    if not depends_on_order(call):
        return render(replaced)
    skips_nulls = call.ignores_nulls or call.name not in BY_ORDER
    conditions = [c for c in (where, f"{arguments[0]} IS NOT NULL" if skips_nulls else None) if c]
    only = f" FILTER (WHERE {' AND '.join(conditions)})" if conditions else ""
    if call.name in BY_ORDER:
        pick = "min_by" if call.name == "first" else "max_by"
        return f"{pick}(struct({arguments[0]} AS v), n){only}.v"
    values = f"transform(array_sort(collect_list(struct(n, {arguments[0]} AS v)){only}), e -> e.v)"
    if call.name in _LISTS:
        return values
    # Not LISTAGG ... WITHIN GROUP (ORDER BY n), on which Spark 4.2 fails next to DISTINCT aggregates.
    return f"IF(count(n){only} = 0, NULL, array_join({values}, {', '.join(arguments[1:]) or repr('')}))"
