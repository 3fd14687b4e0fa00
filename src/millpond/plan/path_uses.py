"""Uses of wildcard paths: a comparison holds for any or all of the values, an aggregate takes every value."""

from __future__ import annotations

from collections.abc import Container, Mapping
from typing import TypeGuard

import pyarrow as pa
from sqlglot import exp

from millpond.errors import BindError, did_you_mean
from millpond.expressions.coercion import DOUBLE, INTEGERS, PRECISION_MAX, STRING, bounded, is_number
from millpond.plan.aggregate_calls import SYNONYMS
from millpond.plan.expression_types import NAME, as_expression, type_of, with_type
from millpond.plan.function_names import function_name, is_aggregate
from millpond.plan.paths import PATH, PathError, expand, parsed
from millpond.schema import Schema, type_name
from millpond.sql.nodes import Path
from millpond.sql.rewrites import exists_row

COMPARISONS = (exp.EQ, exp.NEQ, exp.GT, exp.GTE, exp.LT, exp.LTE, exp.NullSafeEQ)
PREDICATES = (*COMPARISONS, exp.Like, exp.ILike, exp.RegexpLike, exp.Between, exp.In)
QUANTIFIERS = ("any", "some", "all")
# Stands for the path in the text of a use.
_PATH = "_path_values"


def use_paths(root: exp.Expr) -> exp.Expr:
    """Replace the comparisons and aggregates over expanded paths of an expression, in place; returns the root."""
    holder = exp.Paren(this=root) if root.parent is None else None
    anchor = root.parent
    assert anchor is not None
    key, index = root.arg_key or "this", root.index
    for array in [n for n in root.walk(bfs=False, prune=_ends) if is_path(n)]:
        _use(array)
    found = anchor.args[key]
    result: exp.Expr = found[index or 0] if isinstance(found, list) else found
    return result.pop() if holder is not None else result


def is_path(node: exp.Expr) -> bool:
    """Whether a node is the array of an expanded path."""
    return bool(node.meta_get(PATH))


def _ends(node: exp.Expr) -> bool:
    return isinstance(node, exp.Query) or is_path(node)


def _use(array: exp.Expr) -> None:
    operand = array
    while isinstance(operand.parent, exp.Paren):
        operand = operand.parent
    parent = operand.parent
    if isinstance(parent, PREDICATES):
        _quantify(parent, operand, array, for_all=False)
    elif parent is not None and _is_quantifier(parent) and isinstance(_outside(parent).parent, COMPARISONS):
        comparison = _outside(parent).parent
        assert comparison is not None
        _quantify(comparison, _outside(parent), array, for_all=_word(parent) == "all")
    elif isinstance(parent, exp.All) or (isinstance(parent, exp.Anonymous) and _word(parent) == "all"):
        raise PathError("ALL is only allowed in a comparison.", array, "Write ALL (path) > value.")
    elif parent is not None and (call := _aggregate_around(operand)) is not None:
        _aggregate(call, array)


def _is_quantifier(node: exp.Expr) -> bool:
    if isinstance(node, exp.Any | exp.All):
        return True
    return isinstance(node, exp.Func) and _word(node) in QUANTIFIERS


def _word(node: exp.Expr) -> str:
    return node.key if isinstance(node, exp.Any | exp.All) else function_name(node)


def _outside(node: exp.Expr) -> exp.Expr:
    while isinstance(node.parent, exp.Paren):
        node = node.parent
    return node


def _quantify(predicate: exp.Expr, operand: exp.Expr, array: exp.Expr, *, for_all: bool) -> None:
    """`predicate` with each value of the path in place of the operand."""
    if isinstance(predicate, exp.In) and operand.arg_key == "expressions" and len(predicate.expressions) > 1:
        # 3 IN (a, path): one of the others may be the one.
        others = predicate.copy()
        others.set("expressions", [e.copy() for e in predicate.expressions if e is not operand])
        alone = exp.In(this=predicate.this.copy(), expressions=[array.copy()])
        either = exp.Paren(this=exp.Or(this=others, expression=alone))
        predicate.replace(either)
        for path in [n for n in either.walk(bfs=False, prune=_ends) if is_path(n)]:
            _use(path)
        return
    negated = bool(predicate.args.get("negate"))
    if negated:
        predicate.set("negate", None)
    with_subquery = next((c for c in predicate.iter_expressions() if c is not operand and c.find(exp.Query)), None)
    if with_subquery is not None or predicate.args.get("query") is not None:
        found = _with_subquery(predicate, operand, array, for_all)
    else:
        found = _over_values(predicate, operand, array, for_all)
    placed = exp.Not(this=exp.Paren(this=found)) if negated else found
    predicate.replace(placed)
    # The other side may be a path too: it is now inside of the lambda.
    for lambda_ in [n for n in placed.find_all(exp.Lambda) if n.find(exp.Query) is None]:
        for path in [n for n in lambda_.walk(bfs=False, prune=_ends) if is_path(n)]:
            _use(path)


def _over_values(predicate: exp.Expr, operand: exp.Expr, array: exp.Expr, for_all: bool) -> exp.Expr:
    name = _fresh(predicate)
    values, variable = array.copy(), _variable(name, array)
    operand.replace(variable)
    body = predicate.copy()
    function = "forall" if for_all else "exists"
    lambda_ = exp.Lambda(this=body, expressions=[exp.to_identifier(name)])
    call = exp.Anonymous(this=function, expressions=[values, lambda_])
    others = [c for c in predicate.iter_expressions() if c is not variable]
    if all(isinstance(c, exp.Literal | exp.Boolean) for c in others) or isinstance(predicate, exp.NullSafeEQ):
        return call
    # NULL does not hold.
    return exp.Coalesce(this=call, expressions=[exp.false()])


def _variable(name: str, array: exp.Expr) -> exp.Expr:
    type_ = type_of(array)
    return with_type(exp.to_identifier(name), None if type_ is None else type_.value_type)


def _fresh(predicate: exp.Expr) -> str:
    """A name of a variable that no enclosing lambda has, and none inside; equal conditions have equal names."""
    taken = {n.name for n in predicate.find_all(exp.Identifier)}
    around = predicate.find_ancestor(exp.Lambda)
    while around is not None:
        taken |= {variable.name for variable in around.expressions}
        around = around.find_ancestor(exp.Lambda)
    return next(f"_v{n}" for n in range(1, len(taken) + 2) if f"_v{n}" not in taken)


# The comparison with both sides exchanged.
_MIRRORED: dict[type[exp.Expr], type[exp.Expr]] = {exp.GT: exp.LT, exp.GTE: exp.LTE, exp.LT: exp.GT, exp.LTE: exp.GTE}
_LARGEST, _SMALLEST = "array_max({p}) {op} {e}", "array_min({p}) {op} {e}"
# Comparisons of a path {p} with the value {e} of a subquery, which Spark allows in no lambda: for any, and for all.
_BY_SUBQUERY: dict[type[exp.Expr], tuple[str, str]] = {
    exp.GT: (_LARGEST, _SMALLEST),
    exp.GTE: (_LARGEST, _SMALLEST),
    exp.LT: (_SMALLEST, _LARGEST),
    exp.LTE: (_SMALLEST, _LARGEST),
    exp.EQ: ("array_contains({p}, {e})", "size(array_remove({p}, {e})) = 0"),
    exp.NEQ: ("size(array_remove({p}, {e})) > 0", "NOT array_contains({p}, {e})"),
}
_OPERATORS: dict[type[exp.Expr], str] = {
    exp.GT: ">",
    exp.GTE: ">=",
    exp.LT: "<",
    exp.LTE: "<=",
    exp.EQ: "=",
    exp.NEQ: "<>",
}
_OTHER = "_other_value"


def _with_subquery(predicate: exp.Expr, operand: exp.Expr, array: exp.Expr, for_all: bool) -> exp.Expr:
    """A comparison with a subquery, as its value or with IN, ANY or ALL."""
    other = predicate.args.get("expression")
    query = predicate.args.get("query") or (other.this if isinstance(other, exp.Any | exp.All) else None)
    if query is None:
        return _with_scalar(predicate, operand, array, for_all)
    if isinstance(other, exp.All) and not for_all:
        return _with_scalar(predicate, operand, array, False, only=_MIRRORED)
    if for_all:
        raise _not_this_way(array)
    compare = exp.EQ if isinstance(predicate, exp.In) else type(predicate)

    def matches(value: exp.Expr) -> exp.Expr:
        name = exp.to_identifier("_v1")
        body = compare(this=name.copy(), expression=value)
        lambda_ = exp.Lambda(this=body, expressions=[name])
        return exp.Anonymous(this="exists", expressions=[array.copy(), lambda_])

    return exists_row(query, matches)


def _with_scalar(
    predicate: exp.Expr, operand: exp.Expr, array: exp.Expr, for_all: bool, only: Container[type] = _BY_SUBQUERY
) -> exp.Expr:
    """A comparison with one value, or `path > ALL (subquery)`, for which the greatest value of the path decides."""
    left = predicate.this is operand
    kind = type(predicate) if left else _MIRRORED.get(type(predicate), type(predicate))
    if kind not in _BY_SUBQUERY or kind not in only:
        raise _not_this_way(array)
    side = predicate.args["expression"] if left else predicate.this
    text = _BY_SUBQUERY[kind][1 if for_all else 0].format(p=_PATH, e=_OTHER, op=_OPERATORS[kind])
    empty = f"size({_PATH}) = 0" if for_all else "false"
    guard = "" if for_all else f"size({_PATH}) > 0 AND "
    found = parsed(f"coalesce({guard}({text}), {empty})", predicate)
    return _put_in(found, {_PATH: array, _OTHER: side})


def _not_this_way(array: exp.Expr) -> PathError:
    hint = "Compute the subquery's value in a join or a WITH, and compare the path with that."
    return PathError("A path cannot be compared with a subquery in this way.", array, hint)


def _put_in(found: exp.Expression, values: Mapping[str, exp.Expr]) -> exp.Expression:
    for column in list(found.find_all(exp.Column)):
        if column.name in values:
            column.replace(values[column.name].copy())
    return found


def _aggregate_around(operand: exp.Expr) -> exp.Expr | None:
    """The aggregate call whose first argument is the operand."""
    call = operand.parent.parent if isinstance(operand.parent, exp.Distinct) else operand.parent
    return call if call is not None and is_aggregate(call) else None


# The aggregates over paths as aggregates of rows; {p} is the path, {sum} the sum of one row, {s} its type, {a} the type
# of the average. What a row contributes is computed first, so that a stream keeps only running values.
_SIZE = "sum(size({p}))"
TEXTS = {
    "count": f"coalesce({_SIZE}, 0L)",
    "sum": "CAST(sum({sum}) AS {s})",
    "avg": f"CAST(sum({{sum}}) / nullif({_SIZE}, 0L) AS {{a}})",
    "min": "min(array_min({p}))",
    "max": "max(array_max({p}))",
    "first": "first(get({p}, 0), true)",
    "last": "last(try_element_at({p}, -1), true)",
    "bool_and": "bool_and(CASE WHEN size({p}) > 0 THEN forall({p}, _v1 -> _v1) END)",
    "bool_or": "bool_or(CASE WHEN size({p}) > 0 THEN exists({p}, _v1 -> _v1) END)",
    "count_if": "coalesce(sum(size(filter({p}, _v1 -> _v1))), 0L)",
    "collect_list": "flatten(collect_list({p}))",
    "array_agg": "flatten(collect_list({p}))",
    "collect_set": "array_distinct(flatten(collect_set({p})))",
    "array_unique_agg": "array_distinct(flatten(collect_set({p})))",
    "approx_count_distinct": "CAST(size(array_distinct(flatten(collect_set({p})))) AS BIGINT)",
}
DISTINCT_TEXTS = {
    "count": TEXTS["approx_count_distinct"],
    "sum": "CAST({sum_of_set} AS {s})",
    "avg": "CAST({sum_of_set} / nullif(size({set}), 0) AS {a})",
    "min": TEXTS["min"],
    "max": TEXTS["max"],
    "collect_list": TEXTS["collect_set"],
    "array_agg": TEXTS["collect_set"],
    "collect_set": TEXTS["collect_set"],
    "array_unique_agg": TEXTS["collect_set"],
}
_SET = "array_distinct(flatten(collect_set({p})))"


def _aggregate(call: exp.Expr, array: exp.Expr) -> None:
    """Replace an aggregate over a path, with its FILTER and OVER."""
    name = SYNONYMS.get(function_name(call), function_name(call))
    distinct = isinstance(array.parent, exp.Distinct)
    text = (DISTINCT_TEXTS if distinct else TEXTS).get(name)
    type_ = type_of(array)
    if text is None or type_ is None or len(list(call.iter_expressions())) > 1:
        shown = f"{function_name(call).upper()}({'DISTINCT ' if distinct else ''}...)"
        hint = f"Use the values as rows: ... LATERAL VIEW explode({array.meta_get(PATH)}) AS value."
        raise PathError(f"{shown} is not supported over a path.", array, hint)
    found = _put_in(parsed(_filled(text, name, type_.value_type, array), call), {_PATH: array})
    around = call
    while isinstance(around.parent, exp.Filter | exp.IgnoreNulls | exp.RespectNulls | exp.Window):
        around = around.parent
    placed = found if around is call else _with_clauses(found, call, around)
    placed.meta[NAME] = f"{function_name(call)}({'DISTINCT ' if distinct else ''}{array.meta_get(PATH)})"
    around.replace(placed)


def _with_clauses(found: exp.Expr, call: exp.Expr, around: exp.Expr) -> exp.Expr:
    """The expression with the FILTER and OVER of a call around each of its aggregates."""
    holder = exp.Paren(this=found)
    for inner in [n for n in found.walk(bfs=False, prune=is_aggregate) if is_aggregate(n)]:
        wrapped = around.copy()
        place: exp.Expr = wrapped
        while type(place) is not type(call):
            place = place.this
        inner.replace(wrapped)
        place.replace(inner.copy())
    return holder


def _filled(text: str, name: str, of: pa.DataType, array: exp.Expr) -> str:
    if name not in ("sum", "avg"):
        return text.format(p=_PATH)
    if not (is_number(of) or of == STRING):
        raise PathError(f"{name.upper()} requires numbers, but the values are {type_name(of)}.", array)
    row_type, sum_type, average = _sum_types(of, name)
    text_of = "aggregate({array}, CAST(NULL AS {t}), (_v1, _v2) -> CAST(coalesce(_v1 + CAST(_v2 AS {t}), _v2) AS {t}))"
    row = text_of.format(array=_PATH, t=type_name(row_type))
    set_ = _SET.format(p=_PATH)
    of_set = text_of.format(array=set_, t=type_name(row_type))
    return text.format(p=_PATH, sum=row, sum_of_set=of_set, set=set_, s=type_name(sum_type), a=type_name(average))


def _sum_types(of: pa.DataType, name: str) -> tuple[pa.DataType, pa.DataType, pa.DataType]:
    """The types of the sum of a row, of SUM and of AVG, as Spark has them for a column of this type."""
    if pa.types.is_decimal(of):
        # One digit less than the most, because the sum of two such decimals is exact.
        digits = min(of.precision + 10, PRECISION_MAX - 1)
        average = bounded(of.precision + 4, of.scale + 4)
        return pa.decimal128(digits, min(of.scale, digits)), bounded(of.precision + 10, of.scale), average
    if of in INTEGERS and name == "sum":
        return pa.int64(), pa.int64(), DOUBLE
    return DOUBLE, DOUBLE, DOUBLE


def with_paths(expression: exp.Expression, schema: Schema) -> exp.Expression:
    """An expression over the columns of one table with its wildcard paths expanded; MP202 and MP224 for mistakes."""
    found = [n for n in expression.walk() if isinstance(n, Path) or _is_star(n)]
    if not found:
        return expression
    root = exp.Paren(this=expression.copy())
    try:
        for node in [n for n in root.walk() if isinstance(n, Path) or _is_star(n)]:
            path = node if isinstance(node, Path) else star_path(node)
            column = schema.get(path.this.name)
            if column is None:
                hint = did_you_mean(path.this.name, schema.names) or f"The columns are: {', '.join(schema.names)}."
                raise BindError("MP202", f"There is no column '{path.this.name}'.", hint=hint)
            node.replace(expand(path, exp.column(column.name, quoted=True), column.type, path.args["steps"]))
        used = as_expression(use_paths(root.this).pop())
    except PathError as error:
        raise BindError("MP202", error.message, hint=error.hint) from None
    return used


def _is_star(node: exp.Expr) -> TypeGuard[exp.Column]:
    return isinstance(node, exp.Column) and isinstance(node.this, exp.Star) and bool(node.table)


def star_path(node: exp.Column) -> Path:
    """`x.*` as a path."""
    first, *rest = [part.copy() for part in node.parts[:-1]]
    star = exp.Var(this="*")
    star.meta.update(first.meta)
    return Path(this=first, steps=[*rest, star])
