"""One event through one statement, part by part: the rows that joins find, and the values of subqueries and conditions.

Nothing is changed: all of it is evaluated as queries in a transaction that is rolled back.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa
from sqlglot import exp

from millpond.contracts.source import IDENTITY
from millpond.engine.seen_versions import add_versions
from millpond.engine.work import Work
from millpond.errors import MillpondError
from millpond.plan.history_model import HISTORY
from millpond.plan.missing import policy_of, rewrite_missing
from millpond.plan.model import BATCH, BESIDE, Step
from millpond.rendering import json_lines
from millpond.sql.conditions import all_of

# At most so many rows of a join or result are listed.
ROWS_MAX = 5
_SIMPLE = re.compile(r"[A-Za-z_]\w*$")


@dataclass(frozen=True)
class Finding:
    """One part of a statement: `part` is join, where, subquery or result; `text` is how it is written, and `found` what
    came of it; `rows` are rows that it found."""

    part: str
    text: str
    found: str
    rows: tuple[str, ...] = ()


def trace_event(work: Work, step: Step, event: pa.Table) -> Iterator[Finding]:
    """The parts of a statement in the order in which they are evaluated, and its rows for the event."""
    work.reads = step.reads
    query = step.query
    if step.aggregate is not None:
        query = step.aggregate.rows
    if step.over is not None:
        query = step.over.rows
    relation = add_versions(work, step, event)
    assert isinstance(relation, pa.Table)
    yield from _Trace(work, relation).query(query)
    if step.over is not None:
        yield Finding("over", "window functions", "not evaluated: they depend on the events before")
    elif step.aggregate is not None:
        yield Finding("group", "aggregates", "the rows above are added to their groups")


@dataclass(frozen=True)
class _Trace:
    work: Work
    event: pa.Table

    def query(self, query: exp.Expr) -> Iterator[Finding]:
        """The parts of a query, those of the relation that brings the events first."""
        if isinstance(query, exp.SetOperation):
            yield from self.query(query.left)
            yield from self.query(query.right)
            return
        select = query.unnest() if isinstance(query, exp.Subquery) else query
        if not isinstance(select, exp.Select):
            return
        source = select.args.get("from_")
        if source is not None and isinstance(source.this, exp.Subquery):
            yield from self.query(source.this)
        joins = select.args.get("joins") or []
        for number, join in enumerate(joins):
            yield self._join(select, joins[:number], join)
        where = select.args.get("where")
        for condition in all_of(where.this if where is not None else None):
            yield from self._subqueries(select, condition)
            yield self._value(select, condition, "where")
        for projection in select.expressions:
            yield from self._subqueries(select, projection)
        yield self._result(rewrite_missing(select))

    def _join(self, select: exp.Select, before: Sequence[exp.Join], join: exp.Join) -> Finding:
        """The rows of a joined table that the event meets."""
        alias, on = join.this.alias_or_name, join.args.get("on")
        text = f"{_relation(join.this)}{f' ON {_shown(on)}' if on is not None else ''}"
        columns = self._columns(join.this)
        wanted: list[exp.Expr] = [exp.column(name, table=alias, quoted=True) for name in columns] or [exp.true()]
        outputs = [exp.alias_(column, f"c{number}") for number, column in enumerate(wanted)]
        inner = exp.Join(this=join.this.copy(), on=on.copy() if on is not None else None)
        try:
            rows = self._rows(self._over(select, [*before, inner], outputs))
        except MillpondError as error:
            return Finding("join", text, _failed(error))
        if not rows.num_rows:
            policy = policy_of(join) or ("nulls" if (join.side or "").upper() == "LEFT" else "skip")
            return Finding("join", text, f"no row{self._asked(select, before, alias, on)}; 'on.missing' is {policy}")
        return Finding("join", text, _counted(rows), _listed(rows.rename_columns(columns) if columns else rows))

    def _asked(self, select: exp.Select, before: Sequence[exp.Join], alias: str, on: exp.Expr | None) -> str:
        """The values of the event by which the condition looked for a row."""
        found = list(on.find_all(exp.Column)) if on is not None else []
        own = {_shown(column): column for column in found if column.table.lower() != alias.lower()}
        if not own:
            return ""
        rows = self._rows(
            self._over(select, before, [exp.alias_(c.copy(), f"c{n}") for n, c in enumerate(own.values())])
        )
        if not rows.num_rows:
            return ""
        values = rows.slice(0, 1).rename_columns(list(own))
        return f" for {_listed(values)[0]}"

    def _columns(self, relation: exp.Expr) -> list[str]:
        if isinstance(relation, exp.Table):
            names = self.work.table(relation.name).schema.names
            return [name for name in names if not name.startswith("__") and name != IDENTITY]
        query = relation.this if isinstance(relation, exp.Subquery) else relation
        return [e.alias_or_name for e in query.expressions] if isinstance(query, exp.Select) else []

    def _subqueries(self, select: exp.Select, expression: exp.Expr) -> Iterator[Finding]:
        """The value of each subquery of an expression, together with its comparison."""
        for query in expression.find_all(exp.Query):
            whole: exp.Expr = query
            while isinstance(whole.parent, exp.Exists | exp.In | exp.Any | exp.All | exp.Not | exp.Binary):
                whole = whole.parent
                if isinstance(whole, exp.Exists | exp.In | exp.Binary):
                    break
            if query.find_ancestor(exp.Query) is select and whole is not expression:
                value = whole if not isinstance(whole, exp.Select) else exp.Subquery(this=whole)
                yield self._value(select, value, "subquery")

    def _value(self, select: exp.Select, condition: exp.Expr, part: str) -> Finding:
        joins = [join.copy() for join in select.args.get("joins") or []]
        for join in joins:
            # A condition is evaluated also for an event that the join would drop.
            if not join.side and (join.kind or "").upper() in ("", "INNER") and join.args.get("on") is not None:
                join.set("side", "LEFT")
        try:
            rows = self._rows(self._over(select, joins, [exp.alias_(condition.copy(), "v")]))
        except MillpondError as error:
            return Finding(part, _shown(condition), _failed(error))
        values = list(dict.fromkeys(_plain(value) for value in _texts(rows)))
        return Finding(part, _shown(condition), ", ".join(values[:ROWS_MAX]) or "no row")

    def _over(self, select: exp.Select, joins: Sequence[exp.Join], outputs: Sequence[exp.Expr]) -> exp.Select:
        made = exp.Select(expressions=list(outputs))
        if (source := select.args.get("from_")) is not None:
            made.set("from_", source.copy())
        made.set("joins", [join.copy() for join in joins])
        made.set("laterals", [lateral.copy() for lateral in select.args.get("laterals") or []])
        return made

    def _result(self, select: exp.Query) -> Finding:
        try:
            rows = self._rows(select)
        except MillpondError as error:
            return Finding("result", "", _failed(error))
        return Finding("result", "", _counted(rows), _listed(rows))

    def _rows(self, query: exp.Query) -> pa.Table:
        return self.work.rows(query, self.event)


def _failed(error: MillpondError) -> str:
    problem = error.problems[0]
    return f"fails: {problem.code} {problem.message}"


def _counted(rows: pa.Table) -> str:
    return "no row" if not rows.num_rows else "1 row" if rows.num_rows == 1 else f"{rows.num_rows} rows"


def _listed(rows: pa.Table) -> tuple[str, ...]:
    return tuple(json_lines(rows.slice(0, ROWS_MAX)))


def _texts(rows: pa.Table) -> list[str]:
    return [line.removeprefix('{"v":').removesuffix("}").strip() for line in json_lines(rows.select(["v"]))]


def _plain(text: str) -> str:
    return "NULL" if text == "null" else text


def _relation(relation: exp.Expr) -> str:
    if not isinstance(relation, exp.Table):
        return f"(...) {relation.alias_or_name}"
    name = relation.name.removesuffix(BESIDE + HISTORY)
    past = " as of a time" if name != relation.name else ""
    alias = relation.alias_or_name
    return f"{name}{past}" if alias.lower() == name.lower() else f"{name}{past} {alias}"


def _shown(expression: exp.Expr) -> str:
    """An expression without the quotes that simple names do not need."""
    copy = expression.copy()
    for name in copy.find_all(exp.Identifier):
        name.set("quoted", _SIMPLE.match(name.name) is None)
    for table in copy.find_all(exp.Table):
        if table.name == BATCH:
            table.set("this", exp.to_identifier("event"))
    return copy.sql("spark", comments=False)
