"""UPDATE and DELETE driven by a stream: events are applied to each row one at a time, in stream order.

A row depends on its previous state and on its matching events, never on other rows. So each row is folded separately:
the part of WHERE that no SET can change pairs rows with events; a row's events are sorted and applied one by one,
evaluating the rest of WHERE on the row after the previous events. If nothing depends on a changed column, the last
event wins, without a fold. Arrow folds a small batch, Spark's `aggregate` a large one.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import pyarrow as pa
from sqlglot import exp

from millpond.contracts.source import ORDER_MAJOR, ORDER_MINOR
from millpond.contracts.table import WriteTable
from millpond.engine.row_sets import ROW_NUMBER, last_of_keys, numbered, swap_rows, with_columns
from millpond.engine.spark.transfer import Dataset
from millpond.engine.stream_updates_arrow import Walk, walked
from millpond.engine.work import Work
from millpond.plan.model import Step
from millpond.plan.statement_groups import ORDER, carry_order
from millpond.schema import Schema, type_name
from millpond.sql.conditions import all_of
from millpond.sql.parser import parse_expression
from millpond.sql.spark import render
from millpond.sql.statements import Delete, Update

TARGET = "__target__"
PAIRS = "__pairs__"


@dataclass(frozen=True)
class Pairing:
    """The parts of a change: `select` is FROM source, table; `alias` is the table's name in it; `fixed` are the
    conditions that no SET can change and `moving` the others; `sets` are the new values by column."""

    select: exp.Select
    alias: str
    fixed: tuple[exp.Expr, ...]
    moving: tuple[exp.Expr, ...]
    sets: dict[str, exp.Expr]

    @property
    def is_static(self) -> bool:
        """Whether neither the conditions nor the values read a column that is set."""
        return not self.moving and not any(_looks_at(v, self.alias, self.sets) for v in self.sets.values())

    @property
    def reads_set_columns(self) -> bool:
        """Whether a subquery reads a column that is set: then the statement gets one event at a time."""
        parts = [*self.moving, *self.sets.values()]
        return any(p.find(exp.Select) is not None and _looks_at(p, self.alias, self.sets) for p in parts)

    @cached_property
    def met(self) -> exp.Select:
        """The query of the numbers of the rows that match an event."""
        number = exp.alias_(_of(self.alias, ROW_NUMBER), ROW_NUMBER)
        return _selecting(self, [number], self.fixed + self.moving).distinct()


def take_apart(step: Step, table: WriteTable) -> Pairing:
    """The parts of a stream-driven UPDATE or DELETE."""
    statement = step.statement
    assert isinstance(statement, Update | Delete)
    assert isinstance(step.query, exp.Select)
    select = step.query.copy()
    alias = (statement.alias or statement.table).text
    target = next(j.this for j in select.args["joins"] if j.this.alias_or_name.lower() == alias.lower())
    target.set("this", exp.to_identifier(TARGET, quoted=True))
    target.set("alias", exp.TableAlias(this=exp.to_identifier(alias, quoted=True)))
    values = [e.unalias() for e in select.expressions] if isinstance(statement, Update) else []
    sets = {table.schema[name].name: value for name, value in zip(step.columns, values, strict=True)}
    where = select.args.pop("where", None)
    conditions = list(all_of(where.this if where is not None else None))
    moving = tuple(c for c in conditions if _looks_at(c, alias, sets))
    fixed = tuple(c for c in conditions if c not in moving)
    return Pairing(select, alias, fixed, moving, sets)


def _looks_at(expression: exp.Expr, alias: str, sets: dict[str, exp.Expr]) -> bool:
    names = {name.lower() for name in sets}
    return any(c.name.lower() in names and c.table.lower() == alias.lower() for c in expression.find_all(exp.Column))


def apply_change(work: Work, step: Step, batch: Dataset) -> int:
    """Run a stream-driven UPDATE or DELETE on a batch; returns the number of changed rows."""
    table = work.table(step.target)
    if not len(table):
        return 0
    pairing = work.cache.once("pairing", step.query, lambda: take_apart(step, table))
    rows = _candidates(work, pairing, table)
    given = {TARGET: numbered(rows)}
    if not pairing.sets:
        gone = work.rows(pairing.met, batch, given)[ROW_NUMBER]
        return swap_rows(table, rows, gone, rows.slice(0, 0)) if len(gone) else 0
    walk = _last if pairing.is_static or pairing.reads_set_columns else _fold
    changed = walk(work, pairing, given, batch, table)
    if not changed.num_rows:
        return 0
    positions = changed[ROW_NUMBER]
    new = with_columns(rows.take(positions), changed.drop_columns([ROW_NUMBER]), table.schema.arrow())
    return _write(table, pairing, rows, positions, new)


def _candidates(work: Work, pairing: Pairing, table: WriteTable) -> pa.Table:
    """The rows that may match an event: those of the batch's keys if they can be looked up, else all."""
    found = None
    if table.schema.key and work.lookups is not None:
        found = work.lookups.candidates(pairing.met, TARGET, table)
    return table.to_arrow() if found is None else found


def _write(table: WriteTable, pairing: Pairing, rows: pa.Table, positions: pa.ChunkedArray, new: pa.Table) -> int:
    key = {name.lower() for name in table.schema.key}
    if key and not key & {name.lower() for name in pairing.sets}:
        return table.upsert(new)
    return swap_rows(table, rows, positions, new)


Given = dict[str, pa.Table]


def _last(work: Work, pairing: Pairing, given: Given, batch: Dataset, table: WriteTable) -> pa.Table:
    """The rows that match an event, with the values that the last such event sets."""
    query = work.cache.once("last", pairing.select, lambda: _last_query(pairing, table.schema))
    found = work.on_driver(query, batch, given)
    names = list(pairing.sets)
    if found is not None:
        rows = found.rename_columns([ROW_NUMBER, *names, *ORDER]).sort_by([(name, "ascending") for name in ORDER])
        return last_of_keys(rows, [ROW_NUMBER]).select([ROW_NUMBER, *names])
    view = work.views.frame(PAIRS, work.frame(query, batch, given))
    chosen = ", ".join(f"last.v{i} AS `{name}`" for i, name in enumerate(names))
    fields = ", ".join(f"v{i}" for i in range(len(names)))
    text = (
        f"SELECT {ROW_NUMBER}, {chosen} FROM (SELECT {ROW_NUMBER}, max_by(struct({fields}), "
        f"struct({ORDER_MAJOR}, {ORDER_MINOR})) AS last FROM `{view}` GROUP BY {ROW_NUMBER})"
    )
    return work.views.session.sql(text).toArrow()


def _last_query(pairing: Pairing, schema: Schema) -> exp.Query:
    types = [type_name(schema[name].type) for name in pairing.sets]
    casts = [exp.cast(v.copy(), t, dialect="spark") for v, t in zip(pairing.sets.values(), types, strict=True)]
    values = [exp.alias_(cast, f"v{i}") for i, cast in enumerate(casts)]
    number = exp.alias_(_of(pairing.alias, ROW_NUMBER), ROW_NUMBER)
    return _ordered(_selecting(pairing, [number, *values], pairing.fixed + pairing.moving))


def _fold(work: Work, pairing: Pairing, given: Given, batch: Dataset, table: WriteTable) -> pa.Table:
    """The rows that match an event, after applying their events in order."""
    body = work.cache.once("body", pairing.select, lambda: _Body(pairing, table.schema))
    query = work.cache.once(
        "pairs", pairing.select, lambda: _ordered(_selecting(pairing, body.columns(), pairing.fixed))
    )
    pairs = work.on_driver(query, batch, given)
    found = None if pairs is None else walked(work.cache.once("walk", pairing.select, body.walk_of_rows), pairs)
    if found is not None:
        return found
    view = work.views.frame(PAIRS, work.frame(query, batch, given))
    text = (
        f"SELECT {ROW_NUMBER}, folded.* FROM (SELECT {ROW_NUMBER}, {body.walk()} AS folded FROM ("
        f"SELECT {ROW_NUMBER}, {body.firsts()}, sort_array(collect_list(struct({body.event_fields()}))) AS events "
        f"FROM `{view}` GROUP BY {ROW_NUMBER})) WHERE folded.hit"
    )
    return work.views.session.sql(text).toArrow().drop_columns(["hit"])


def _selecting(pairing: Pairing, columns: list[exp.Expr], conditions: tuple[exp.Expr, ...]) -> exp.Select:
    query = pairing.select.copy()
    query.set("expressions", [c.copy() for c in columns])
    return query.where(*(c.copy() for c in conditions)) if conditions else query


def _ordered(query: exp.Select) -> exp.Query:
    ordered = carry_order(query)
    assert ordered is not None, "the source of a change has neither an aggregate nor its own order"
    return ordered


def _of(alias: str, name: str) -> exp.Column:
    return exp.column(name, table=alias, quoted=True)


class _Body:
    """The fold as Spark SQL: `a` is the row after the previous events, `e` the event."""

    def __init__(self, pairing: Pairing, schema: Schema) -> None:
        self._pairing = pairing
        self._schema = schema
        self._events: dict[str, exp.Expr] = {}
        self._rows: dict[str, exp.Column] = {}
        self._moving = [self._inside(c) for c in pairing.moving]
        self._values = {name: self._inside(v) for name, v in pairing.sets.items()}

    def _inside(self, expression: exp.Expr) -> str:
        """An expression with its columns renamed for the fold; the values that it needs of events are recorded."""
        alias = self._pairing.alias.lower()
        sets = {name.lower(): name for name in self._pairing.sets}

        def placed(node: exp.Expr) -> exp.Expr:
            if isinstance(node, exp.Subquery | exp.Exists) or (isinstance(node, exp.In) and node.args.get("query")):
                return self._event(node)
            if not isinstance(node, exp.Column):
                return node
            if node.table.lower() != alias:
                return self._event(node)
            if node.name.lower() in sets:
                return exp.column(sets[node.name.lower()], table="a", quoted=True)
            self._rows.setdefault(node.name, node.copy())
            return exp.column(f"t_{node.name}", quoted=True)

        return render(expression.copy().transform(placed))

    def _event(self, node: exp.Expr) -> exp.Expr:
        for name, known in self._events.items():
            if known == node:
                return exp.column(name, table="e")
        name = f"e{len(self._events)}"
        self._events[name] = node.copy()
        return exp.column(name, table="e")

    def walk_of_rows(self) -> Walk:
        """The fold for Arrow."""
        values = {name: (parse_expression(text), self._schema[name].type) for name, text in self._values.items()}
        return Walk(values, tuple(parse_expression(text) for text in self._moving))

    def columns(self) -> list[exp.Expr]:
        """The columns of the pairs of rows and events."""
        alias = self._pairing.alias
        found: list[exp.Expr] = [exp.alias_(_of(alias, ROW_NUMBER), ROW_NUMBER)]
        found += [exp.alias_(_of(alias, name), f"s_{name}", quoted=True) for name in self._pairing.sets]
        found += [exp.alias_(column.copy(), f"t_{name}", quoted=True) for name, column in self._rows.items()]
        return found + [exp.alias_(node.copy(), name) for name, node in self._events.items()]

    def firsts(self) -> str:
        names = [f"`s_{name}`" for name in self._pairing.sets] + [f"`t_{name}`" for name in self._rows]
        return ", ".join(f"first({name}) AS {name}" for name in names)

    def event_fields(self) -> str:
        return ", ".join([ORDER_MAJOR, ORDER_MINOR, *self._events])

    def walk(self) -> str:
        start = ", ".join(f"'{name}', `s_{name}`" for name in self._pairing.sets)
        after = ", ".join(f"'{n}', CAST({v} AS {self._type(n)})" for n, v in self._values.items())
        moved = f"named_struct({after}, 'hit', true)"
        meets = " AND ".join(f"({text})" for text in self._moving)
        step = f"IF({meets}, {moved}, a)" if meets else moved
        return f"aggregate(events, named_struct({start}, 'hit', false), (a, e) -> {step})"

    def _type(self, name: str) -> str:
        return type_name(self._schema[name].type)
