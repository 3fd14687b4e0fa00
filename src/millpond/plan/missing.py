"""Joined rows that are absent: a join with 'on.missing' becomes a join that does what it says.

A join marks the rows of its table, so that an absent row can be told from a row of NULLs.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from sqlglot import exp

from millpond.errors import InputError
from millpond.options import Option
from millpond.plan.ownership import JOIN_OPTIONS
from millpond.plan.typed import type_of
from millpond.schema import type_name
from millpond.sql import nodes

FOUND = "__mp_found"
# What the message of a failing join starts with, so that it can be told from a user's own raise_error.
FAILED = "MP704"
DEFAULT = "default."


def policy_of(join: exp.Join) -> str | None:
    """What a join does with an event that finds no row; None: what its kind does."""
    return next((e.value.lower() for e in nodes.join_options(join).entries if e.name == "on.missing"), None)


def joins_with_policy(query: exp.Expr) -> Iterator[tuple[exp.Select, exp.Join, str]]:
    """Every join of a query that has one, with its SELECT."""
    for select in query.find_all(exp.Select):
        for join in select.args.get("joins") or ():
            policy = policy_of(join)
            if policy is not None:
                yield select, join, policy


@dataclass(frozen=True)
class Wait:
    """A join of a statement's own SELECT, by its position among the joins, whose events wait for a row."""

    position: int
    timeout_us: int
    rows_max: int


def waits_of(query: exp.Query) -> tuple[Wait, ...]:
    """The joins that let events wait."""
    joins = query.args.get("joins") or () if isinstance(query, exp.Select) else ()
    return tuple(_wait(n, join) for n, join in enumerate(joins) if policy_of(join) == "wait")


def _wait(position: int, join: exp.Join) -> Wait:
    given = {e.name: e.value for e in nodes.join_options(join).entries}
    values = {o.name: _read(o, given.get(o.name)) for o in JOIN_OPTIONS if o.name.startswith("wait.")}
    return Wait(position, values["wait.timeout"], values["wait.max.rows"])


def _read(option: Option, text: str | None) -> int:
    """The value of an option; the default for one that cannot be read, which has been reported where it stands."""
    default: int = option.read(option.default or "")
    try:
        return default if text is None else int(option.read(text))
    except InputError:
        return default


def rewrite_missing(query: exp.Query) -> exp.Query:
    """The query with every 'on.missing' carried out; 'wait' is the flow's business, the kind of join decides after."""
    found = query.copy()
    for select, join, policy in list(joins_with_policy(found)):
        carry_out(select, join, policy)
    return found


def carry_out(select: exp.Select, join: exp.Join, policy: str) -> None:
    """Make a join of a SELECT do what a policy says, in place."""
    if policy != "wait":
        join.set("side", None if policy == "skip" else "LEFT")
    if policy == "default":
        _put_defaults(select, join)
    elif policy == "fail":
        _fail(select, join)


def _put_defaults(select: exp.Select, join: exp.Join) -> None:
    """Every mention of a column with a default outside the join itself: the default where there is no row."""
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
    """WHERE raises for an event without a row. What it says names the event's own values: an expression over both sides
    is one that Spark can judge after the join only."""
    alias = join.this.alias_or_name
    on = join.args.get("on")
    own = [c for c in (on.find_all(exp.Column) if on is not None else ()) if c.table != alias]
    values: list[exp.Expr] = [exp.cast(c.copy(), "string", dialect="spark") for c in own]
    values = values or [exp.func("uuid")]
    shown = [exp.func("coalesce", v, exp.Literal.string("NULL")) for v in values]
    told = exp.func("concat_ws", exp.Literal.string(", "), *shown)
    start = exp.Literal.string(f"{FAILED} No row of '{alias}' for ")
    _mark(join)
    error = exp.Anonymous(this="raise_error", expressions=[exp.func("concat", start, told)])
    select.where(exp.If(this=_is_absent(alias), true=error, false=exp.true()), copy=False)


def _is_absent(alias: str) -> exp.Expr:
    return exp.column(FOUND, table=alias, quoted=True).is_(exp.null())


def _mark(join: exp.Join) -> None:
    """The joined relation with a column that is true in each of its rows."""
    relation = join.this
    alias = exp.TableAlias(this=exp.to_identifier(relation.alias_or_name, quoted=True))
    inner = relation.copy()
    if isinstance(inner, exp.Subquery):
        inner.set("alias", exp.TableAlias(this=exp.to_identifier("__mp_rows")))
    marked = exp.select(exp.Star(), exp.alias_(exp.true(), FOUND)).from_(inner)
    join.set("this", exp.Subquery(this=marked, alias=alias))
