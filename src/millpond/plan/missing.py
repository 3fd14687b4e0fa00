"""Missing rows of joins: rewrites a join with 'on.missing' into a join with that behaviour.

A join marks the rows of its table, to distinguish a missing row from a row of NULLs.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass

from sqlglot import exp

from millpond.errors import InputError
from millpond.options import Option
from millpond.plan.expression_types import type_of
from millpond.plan.option_owners import JOIN_OPTIONS
from millpond.schema import type_name
from millpond.sql import nodes

FOUND = "__mp_found"
# The prefix of the message of a failing join, to distinguish it from a user's own raise_error.
FAILED = "MP704"
DEFAULT = "default."


def policy_of(join: exp.Join) -> str | None:
    """The policy of a join for events without a matching row; None for that of the kind of join."""
    return next((e.value.lower() for e in nodes.join_options(join).entries if e.name == "on.missing"), None)


def joins_with_policy(query: exp.Expr) -> Iterator[tuple[exp.Select, exp.Join, str]]:
    """Every join of a query that has a policy, with its SELECT."""
    for select in query.find_all(exp.Select):
        for join in select.args.get("joins") or ():
            policy = policy_of(join)
            if policy is not None:
                yield select, join, policy


@dataclass(frozen=True)
class Wait:
    """A join of a statement's own SELECT whose events wait for a row, by its position among the joins."""

    position: int
    timeout_us: int
    rows_max: int


def waits_of(query: exp.Query) -> tuple[Wait, ...]:
    """The joins whose events wait."""
    joins = query.args.get("joins") or () if isinstance(query, exp.Select) else ()
    return tuple(_wait(n, join) for n, join in enumerate(joins) if policy_of(join) == "wait")


def _wait(position: int, join: exp.Join) -> Wait:
    given = {e.name: e.value for e in nodes.join_options(join).entries}
    values = {o.name: _read(o, given.get(o.name)) for o in JOIN_OPTIONS if o.name.startswith("wait.")}
    return Wait(position, values["wait.timeout"], values["wait.max.rows"])


def _read(option: Option, text: str | None) -> int:
    """The value of an option; the default for an invalid one, which was reported."""
    default: int = option.read(option.default or "")
    try:
        return default if text is None else int(option.read(text))
    except InputError:
        return default


def rewrite_missing(query: exp.Query) -> exp.Query:
    """The query with every 'on.missing' rewritten; 'wait' is done by the flow, and the kind of join applies
    afterwards."""
    found = query.copy()
    for select, join, policy in list(joins_with_policy(found)):
        carry_out(select, join, policy)
    return found


def carry_out(select: exp.Select, join: exp.Join, policy: str) -> None:
    """Rewrite a join of a SELECT by a policy, in place."""
    if policy != "wait":
        join.set("side", None if policy == "skip" else "LEFT")
    if policy == "default":
        _put_defaults(select, join)
    elif policy == "fail":
        _fail(select, join)


def _put_defaults(select: exp.Select, join: exp.Join) -> None:
    """Replace every reference to a column with a default, outside of the join itself, by the default if there is no
    row."""
    alias = join.this.alias_or_name
    entries = nodes.join_options(join).entries
    defaults = {e.name.removeprefix(DEFAULT): e.value for e in entries if e.name.startswith(DEFAULT)}
    mentions = [c for c in _outside(select, join) if c.table == alias and c.name.lower() in defaults]
    _mark(join)
    for column in mentions:
        value = _value(defaults[column.name.lower()], column)
        chosen = exp.If(this=_is_absent(alias), true=value, false=column.copy())
        # An output keeps its name.
        named = column.parent is select and column.arg_key == "expressions"
        column.replace(exp.alias_(chosen, column.name, quoted=True) if named else chosen)


def _outside(select: exp.Select, join: exp.Join) -> list[exp.Column]:
    inside = {id(c) for c in join.find_all(exp.Column)}
    return [c for c in select.find_all(exp.Column) if id(c) not in inside]


def _value(text: str, column: exp.Column) -> exp.Expr:
    type_ = type_of(column)
    literal = exp.Literal.string(text)
    return literal if type_ is None else exp.cast(literal, type_name(type_), dialect="spark")


def _fail(select: exp.Select, join: exp.Join) -> None:
    """WHERE raises for an event without a row. Its message contains the event's own values, so that the expression is
    over both sides and Spark can evaluate it only after the join."""
    alias = join.this.alias_or_name
    on = join.args.get("on")
    own = [c for c in (on.find_all(exp.Column) if on is not None else ()) if c.table != alias]
    values: list[exp.Expr] = [exp.cast(c.copy(), "string", dialect="spark") for c in own]
    values = values or [exp.func("uuid")]
    shown = [exp.func("coalesce", v, exp.Literal.string("NULL")) for v in values]
    listed = exp.func("concat_ws", exp.Literal.string(", "), *shown)
    start = exp.Literal.string(f"{FAILED} No row of '{alias}' for ")
    _mark(join)
    error = exp.Anonymous(this="raise_error", expressions=[exp.func("concat", start, listed)])
    select.where(exp.If(this=_is_absent(alias), true=error, false=exp.true()), copy=False)


def _is_absent(alias: str) -> exp.Expr:
    return exp.column(FOUND, table=alias, quoted=True).is_(exp.null())


def _mark(join: exp.Join) -> None:
    """Add a column to the joined relation that is true in each of its rows."""
    relation = join.this
    alias = exp.TableAlias(this=exp.to_identifier(relation.alias_or_name, quoted=True))
    inner = relation.copy()
    if isinstance(inner, exp.Subquery):
        inner.set("alias", exp.TableAlias(this=exp.to_identifier("__mp_rows")))
    marked = exp.select(exp.Star(), exp.alias_(exp.true(), FOUND)).from_(inner)
    join.set("this", exp.Subquery(this=marked, alias=alias))


# The values of 'on.table.missing' with which a statement continues without a table.
NULLS, DEFAULTS, SKIP = "nulls", "default", "skip"


@dataclass(frozen=True)
class Absent:
    """Tables, in lower case, without which a statement runs by `policy`; the columns of those in `unknown` are not
    known yet."""

    tables: frozenset[str] = frozenset()
    unknown: frozenset[str] = frozenset()
    policy: str = ""


def without_tables(query: exp.Query, absent: Absent) -> exp.Query:
    """The query with every join of an absent table as a join that finds no row. A join with its own 'on.missing' keeps
    it; in subqueries an absent table is empty."""
    found = query.copy()
    for select in list(found.find_all(exp.Select)):
        for join in select.args.get("joins") or ():
            if policy_of(join) is None and _gives_columns(join) and _reads(join.this, absent.tables):
                _require_condition(join)
                carry_out(select, join, absent.policy)
    for table in list(found.find_all(exp.Table)):
        if table.name.lower() in absent.unknown:
            table.replace(_empty(table, found))
    return found


def can_do_without(query: exp.Query) -> bool:
    """Whether a query lists all columns that it reads, so that it can run without a table whose columns are unknown."""
    outputs = [e for select in query.find_all(exp.Select) for e in select.expressions]
    return not any(isinstance(e, exp.Star) or isinstance(getattr(e, "this", None), exp.Star) for e in outputs)


def _empty(table: exp.Table, query: exp.Query) -> exp.Subquery:
    """An empty relation with every column that may belong to the table."""
    meant = [c.name for c in query.find_all(exp.Column) if c.table in ("", table.alias_or_name) and c.name != FOUND]
    names = {name.lower(): name for name in meant}
    nulls = [exp.alias_(exp.cast(exp.null(), "string"), name, quoted=True) for name in names.values()]
    rows = exp.select(*(nulls or [exp.alias_(exp.null(), "none")])).where(exp.false())
    return exp.Subquery(this=rows, alias=exp.TableAlias(this=exp.to_identifier(table.alias_or_name, quoted=True)))


def _gives_columns(join: exp.Join) -> bool:
    """Whether the join adds columns of its table: SEMI and ANTI do not, and FULL has NULLs already."""
    return (join.side or "").upper() != "FULL" and (join.kind or "").upper() not in ("SEMI", "ANTI")


def _reads(relation: exp.Expr, absent: Collection[str]) -> bool:
    return any(table.name.lower() in absent for table in relation.find_all(exp.Table))


def _require_condition(join: exp.Join) -> None:
    """Add a condition to CROSS JOIN and comma joins, because an outer join requires one."""
    if not join.args.get("on") and not join.args.get("using"):
        join.set("kind", None)
        join.set("on", exp.true())
