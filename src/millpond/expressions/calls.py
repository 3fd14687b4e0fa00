"""Conversion of a sqlglot tree to terms: each operator and function becomes a call with one name and its arguments."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pyarrow as pa
from sqlglot import exp

from millpond.expressions.call_names import ALIASES, IGNORED, NODES, PARTS
from millpond.expressions.coercion import BINARY, BOOLEAN, DATE, INT, INTEGERS, STRING, VOID
from millpond.expressions.literals import interval, number, sql_type
from millpond.expressions.terms import UNKNOWN, Call, Constant, Lambda, Parameter, Reference, Term, Variable, unknown
from millpond.schema import SIMPLE_TYPES, TIMESTAMP, TIMESTAMP_NTZ


def read(expr: exp.Expression) -> Term:
    """The term of an expression; anything unknown becomes a call named `?`, which only Spark evaluates."""
    special = _SPECIAL.get(type(expr))
    if special is not None:
        return special(expr)
    if type(expr) in NODES:
        return _listed(expr)
    if isinstance(expr, exp.Anonymous):
        form = _FORMS.get(expr.name.lower())
        if form is not None:
            return form(expr)
        return _named(expr.name.lower(), _all(expr.expressions), expr)
    if isinstance(expr, exp.Func):
        return Call(UNKNOWN + expr.sql_name().lower(), _written(expr), expr)
    return unknown(expr)


def _written(expr: exp.Expression) -> tuple[Term, ...]:
    """The arguments of a call that is only typed, in the order of the node."""
    values = (expr.args.get(name) for name in expr.arg_types)
    flat = (v for value in values for v in (value if isinstance(value, list) else [value]))
    return tuple(read(v) for v in flat if isinstance(v, exp.Expression))


# Calls that are a cast to the type in their name, or to a date or timestamp without a format.
_CASTS: dict[str, pa.DataType] = {
    **{name.lower(): type_ for name, type_ in SIMPLE_TYPES.items() if name not in ("VOID", "TIMESTAMP_NTZ")},
    "to_date": DATE,
    "to_timestamp": TIMESTAMP,
    "to_timestamp_ltz": TIMESTAMP,
    "to_timestamp_ntz": TIMESTAMP_NTZ,
}


def _named(name: str, arguments: tuple[Term, ...], expr: exp.Expression) -> Term:
    if name in _CASTS and len(arguments) == 1:
        return Call("cast", arguments, expr, _CASTS[name])
    canonical, order = ALIASES.get(name, (name, ()))
    if order and len(arguments) == len(order):
        arguments = tuple(arguments[place] for place in order)
    return Call(canonical, arguments, expr)


def _struct(expr: exp.Expression) -> Term:
    """STRUCT(...) as NAMED_STRUCT, with the names Spark gives its fields."""
    parts: list[Term] = []
    for place, part in enumerate(expr.expressions, 1):
        named = part.this if isinstance(part, exp.Alias) else part
        has_name = isinstance(part, exp.Alias | exp.Column | exp.Dot | exp.Identifier)
        parts += [Constant(part.alias_or_name if has_name else f"col{place}", STRING), read(named)]
    return Call("named_struct", tuple(parts), expr)


def _all(expressions: Sequence[exp.Expression]) -> tuple[Term, ...]:
    return tuple(read(e) for e in expressions)


def _listed(expr: exp.Expression) -> Term:
    name, keys = NODES[type(expr)]
    known = {key.lstrip("*") for key in keys} | IGNORED.get(type(expr), frozenset())
    if any(value for key, value in expr.args.items() if key not in known):
        return unknown(expr)
    found: list[Term] = []
    for key in keys:
        value = expr.args.get(key.lstrip("*"))
        if key.startswith("*"):
            found.extend(_all(value or ()))
        elif isinstance(value, exp.Expression):
            found.append(read(value))
        elif value is not None:
            return unknown(expr)
    return Call(name, tuple(found), expr)


def _literal(expr: exp.Expression) -> Term:
    if expr.args.get("is_string"):
        return Constant(expr.name, STRING)
    return number(expr.name, expr)


def _negative(expr: exp.Expression) -> Term:
    operand = expr.this
    if isinstance(operand, exp.Literal) and not operand.args.get("is_string"):
        return number(f"-{operand.name}", expr)
    if isinstance(operand, exp.Cast) and _is_edge(operand):
        return unknown(expr)
    return Call("negative", (read(operand),), expr)


def _is_edge(cast: exp.Cast) -> bool:
    """Whether it is 128Y or CAST(128 AS TINYINT), one tree in sqlglot; only the former may have a minus in Spark."""
    target = sql_type(cast.args["to"])
    tops = {str(2 ** (type_.bit_width - 1)) for type_ in INTEGERS if type_ == target}
    return isinstance(cast.this, exp.Literal) and cast.this.name in tops


def _boolean(expr: exp.Expression) -> Term:
    return Constant(bool(expr.this), BOOLEAN)


def _null(_: exp.Expression) -> Term:
    return Constant(None, VOID)


def _cast(expr: exp.Expression) -> Term:
    known = {"this", "to", "safe", "_type"}
    target = sql_type(expr.args["to"])
    if target is None or any(value for key, value in expr.args.items() if key not in known):
        return unknown(expr)
    if isinstance(expr.this, exp.Array) and not expr.this.expressions and pa.types.is_list(target):
        return Constant([], target)
    # sqlglot's class TryCast stands for CAST too.
    return Call("try_cast" if expr.args.get("safe") else "cast", (read(expr.this),), expr, target)


def _to_date(expr: exp.Expression) -> Term:
    return Call("cast", (read(expr.this),), expr, DATE)


def _bytes(expr: exp.Expression) -> Term:
    digits = expr.name
    return Constant(bytes.fromhex("0" * (len(digits) % 2) + digits), BINARY)


def _is(expr: exp.Expression) -> Term:
    right = expr.args["expression"]
    if isinstance(right, exp.Null):
        return Call("is_null", (read(expr.this),), expr)
    if isinstance(right, exp.Boolean):
        return Call("<=>", (read(expr.this), read(right)), expr)
    return unknown(expr)


def _escape(expr: exp.Expression) -> Term:
    inner = read(expr.this)
    if isinstance(inner, Call) and inner.name == "like" and len(inner.arguments) == 2:
        return Call(inner.name, (*inner.arguments, read(expr.args["expression"])), expr)
    return unknown(expr)


def _case(expr: exp.Expression) -> Term:
    subject = expr.args.get("this")
    found: list[Term] = []
    for branch in expr.args["ifs"]:
        test = read(branch.this)
        if subject is not None:
            test = Call("=", (read(subject), test), branch)
        found += [test, read(branch.args["true"])]
    default = expr.args.get("default")
    found.append(read(default) if default is not None else Constant(None, VOID))
    return Call("case", tuple(found), expr)


def _between(expr: exp.Expression) -> Term:
    if expr.args.get("symmetric"):
        return unknown(expr)
    value = read(expr.this)
    low, high = Call(">=", (value, read(expr.args["low"])), expr), Call("<=", (value, read(expr.args["high"])), expr)
    return Call("and", (low, high), expr)


def _nullif(expr: exp.Expression) -> Term:
    value = read(expr.this)
    equal = Call("=", (value, read(expr.args["expression"])), expr)
    return Call("if", (equal, Constant(None, VOID), value), expr)


def _is_distinct(expr: exp.Expression) -> Term:
    same = Call("<=>", _all([expr.this, expr.args["expression"]]), expr)
    return Call("not", (same,), expr)


def _ilike(expr: exp.Expression) -> Term:
    sides = (Call("lower", (read(side),), expr) for side in (expr.this, expr.args["expression"]))
    return Call("like", tuple(sides), expr)


def _trim(expr: exp.Expression) -> Term:
    if any(value for key, value in expr.args.items() if key not in ("this", "expression", "position")):
        return unknown(expr)
    side = str(expr.args.get("position") or "BOTH").upper()
    name = {"BOTH": "trim", "LEADING": "ltrim", "TRAILING": "rtrim"}.get(side)
    characters = expr.args.get("expression")
    arguments = [expr.this] if characters is None else [expr.this, characters]
    return Call(name, _all(arguments), expr) if name else unknown(expr)


def _pad(expr: exp.Expression) -> Term:
    fill = expr.args.get("fill_pattern")
    arguments = [expr.this, expr.args["expression"], *([fill] if fill is not None else [])]
    return Call("lpad" if expr.args.get("is_left") else "rpad", _all(arguments), expr)


def _date_add(expr: exp.Expression) -> Term:
    unit = expr.args.get("unit")
    if unit is not None and unit.name.upper() != "DAY":
        return unknown(expr)
    return Call("date_add", _all([expr.this, expr.args["expression"]]), expr)


def _truncate(expr: exp.Expression) -> Term:
    if any(value for key, value in expr.args.items() if key not in ("this", "unit")):
        return unknown(expr)
    unit = expr.args["unit"]
    if not isinstance(unit, exp.Var | exp.Literal):
        return unknown(expr)
    return Call("date_trunc", (Constant(unit.name, STRING), read(expr.this)), expr)


_DEFAULT_FORMATS = ("%Y-%mstrict-%dstrict %Hstrict:%Mstrict:%Sstrict", "%Y-%m-%d %H:%M:%S", "yyyy-MM-dd HH:mm:ss")


def _default_format(name: str) -> Callable[[exp.Expression], Term]:
    def read_call(expr: exp.Expression) -> Term:
        format_ = expr.args.get("format")
        if format_ is not None and format_.name not in _DEFAULT_FORMATS:
            return Call(UNKNOWN + name, (), expr)
        return Call(name, (read(expr.this),), expr)

    return read_call


def _bracket(expr: exp.Expression) -> Term:
    if len(expr.expressions) != 1:
        return unknown(expr)
    arguments = (read(expr.this), read(expr.expressions[0]))
    return Call("element_at" if expr.args.get("offset") == 1 else "[]", arguments, expr)


def _dot(expr: exp.Expression) -> Term:
    name = expr.args.get("expression")
    return Call(".", (read(expr.this),), expr, name.name) if isinstance(name, exp.Identifier) else unknown(expr)


def _column(expr: exp.Expression) -> Term:
    return Reference(expr) if isinstance(expr, exp.Column) and isinstance(expr.this, exp.Identifier) else unknown(expr)


def _extract(expr: exp.Expression) -> Term:
    return _part_of(expr.this.name, expr.args["expression"], expr)


def _date_part(expr: exp.Expression) -> Term:
    arguments = expr.expressions
    if len(arguments) != 2 or not isinstance(arguments[0], exp.Literal):
        return unknown(expr)
    return _part_of(arguments[0].name, arguments[1], expr)


def _part_of(word: str, source: exp.Expression, expr: exp.Expression) -> Term:
    name = PARTS.get(word.lower())
    return Call(name, (read(source),), expr) if name else unknown(expr)


def _by_count(name: str) -> Callable[[exp.Expression], Term]:
    """A function that is `name/2` with a format; without arguments it uses the current time."""

    def read_call(expr: exp.Expression) -> Term:
        arguments = _all(expr.expressions)
        if not arguments:
            return Call(name, (Call("current_timestamp", (), expr),), expr)
        return Call(name if len(arguments) == 1 else f"{name}/{len(arguments)}", arguments, expr)

    return read_call


def _tried(type_: pa.DataType) -> Callable[[exp.Expression], Term]:
    """TRY_TO_DATE and TRY_TO_TIMESTAMP; without a format they are a cast."""

    def read_call(expr: exp.Expression) -> Term:
        arguments = _all(expr.expressions)
        if len(arguments) == 1:
            return Call("try_cast", arguments, expr, type_)
        return Call(expr.name.lower(), arguments, expr)

    return read_call


def _lambda(expr: exp.Expression) -> Term:
    return Lambda(tuple(part.name.lower() for part in expr.expressions), read(expr.this))


def _over(expr: exp.Expression) -> Term:
    """OVER, IGNORE NULLS and WITHIN GROUP: the type is that of the function before them; only Spark evaluates it."""
    inner, ordered = read(expr.this), expr.find(exp.Ordered)
    if isinstance(expr, exp.WithinGroup) and isinstance(inner, Call) and ordered is not None:
        inner = Call(inner.name, (read(ordered.this), *inner.arguments), inner.source)
    return Call(f"{UNKNOWN}over", (inner,), expr)


_SPECIAL: dict[type[exp.Expression], Callable[[exp.Expression], Term]] = {
    **dict.fromkeys((exp.Window, exp.IgnoreNulls, exp.RespectNulls, exp.WithinGroup), _over),
    exp.Paren: lambda expr: read(expr.this),
    exp.Literal: _literal,
    exp.RawString: lambda expr: Constant(expr.name, STRING),
    exp.Boolean: _boolean,
    exp.Null: _null,
    exp.Neg: _negative,
    exp.HexString: _bytes,
    # sqlglot's node for LOWER(HEX(x)).
    exp.LowerHex: lambda expr: Call("lower", (Call("hex", (read(expr.this),), expr),), expr),
    exp.TsOrDsToDate: _to_date,
    exp.Cast: _cast,
    exp.TryCast: _cast,
    exp.Is: _is,
    exp.Escape: _escape,
    exp.Case: _case,
    exp.Between: _between,
    exp.Nullif: _nullif,
    exp.NullSafeNEQ: _is_distinct,
    exp.ILike: _ilike,
    exp.Trim: _trim,
    exp.Pad: _pad,
    exp.TsOrDsAdd: _date_add,
    exp.DateAdd: _date_add,
    exp.TimestampTrunc: _truncate,
    exp.StrToUnix: _default_format("unix_timestamp"),
    exp.UnixToStr: _default_format("from_unixtime"),
    exp.Bracket: _bracket,
    exp.Dot: _dot,
    exp.Column: _column,
    exp.Extract: _extract,
    exp.Interval: interval,
    exp.Lambda: _lambda,
    # A bare identifier is a parameter of a lambda: columns have their own node class.
    exp.Identifier: lambda expr: Variable(expr.name.lower()),
    exp.Placeholder: lambda expr: Parameter(expr) if isinstance(expr, exp.Placeholder) else unknown(expr),
}


def _zeroifnull(expr: exp.Expression) -> Term:
    return Call("coalesce", (*_all(expr.expressions), Constant(0, INT)), expr)


def _nullifzero(expr: exp.Expression) -> Term:
    (value,) = _all(expr.expressions[:1]) or (unknown(expr),)
    return Call("if", (Call("=", (value, Constant(0, INT)), expr), Constant(None, VOID), value), expr)


def _decode(expr: exp.Expression) -> Term:
    """DECODE by cases; with two arguments it decodes bytes."""
    arguments = _all(expr.expressions)
    if len(arguments) < 3:
        return Call("decode", arguments, expr)
    value, *rest = arguments
    found: list[Term] = []
    for search, result in zip(rest[::2], rest[1::2], strict=False):
        found += [Call("<=>", (value, search), expr), result]
    # Without a default Spark uses a NULL of type STRING, which determines the type of the result.
    found.append(rest[-1] if len(rest) % 2 else Constant(None, STRING))
    return Call("case", tuple(found), expr)


def _with_unit(plain: str, function: str) -> Callable[[exp.Expression], Term]:
    """DATEADD and the like: with a unit of time they are another function."""

    def read_call(expr: exp.Expression) -> Term:
        first, *rest = expr.expressions or [None]
        if isinstance(first, exp.Var) and len(rest) == 2:
            return Call(function, (Constant(first.name.upper(), STRING), *_all(rest)), expr)
        return Call(plain, _all(expr.expressions), expr) if len(expr.expressions) == 2 else unknown(expr)

    return read_call


# Calls that are rewritten as other calls.
def _array_sort(expr: exp.Expression) -> Term:
    """The entries of a map are sorted by their keys alone, because each key occurs once."""
    inner = _all(expr.expressions)
    of_map = len(inner) == 1 and isinstance(inner[0], Call) and inner[0].name == "map_entries"
    return Call("?sorted_entries", inner, expr) if of_map else _named("array_sort", inner, expr)


_FORMS: dict[str, Callable[[exp.Expression], Term]] = {
    "array_sort": _array_sort,
    "struct": _struct,
    **dict.fromkeys(("dateadd", "date_add", "timestampadd"), _with_unit("date_add", "timestampadd")),
    **dict.fromkeys(("datediff", "date_diff", "timestampdiff"), _with_unit("datediff", "timestampdiff")),
    "zeroifnull": _zeroifnull,
    "nullifzero": _nullifzero,
    "decode": _decode,
    "date_part": _date_part,
    "datepart": _date_part,
    "unix_timestamp": _by_count("unix_timestamp"),
    "to_unix_timestamp": _by_count("unix_timestamp"),
    "from_unixtime": _by_count("from_unixtime"),
    "try_to_date": _tried(DATE),
    "try_to_timestamp": _tried(TIMESTAMP),
}
