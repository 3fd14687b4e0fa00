"""Folding by Arrow: in each round, one item of every key is applied."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from sqlglot import exp

from millpond.engine.row_states import Refusals, RowStates, Turns, check_refused, null_refused, required
from millpond.engine.spark.evaluate import evaluate_on_spark
from millpond.engine.work import Work
from millpond.errors import MillpondError, TableError
from millpond.expressions.compile import Compiled, compile_expression
from millpond.plan.change_model import EVENT, HERE, ROW, Action, Branch, Effect
from millpond.relational.codes import Numbers, whole
from millpond.relational.joins import as_mask
from millpond.schema import Check, Schema, type_name
from millpond.tables.constraints import check_expression


def fold_in_rounds(
    work: Work, actions: list[Action], rows: list[pa.Table], turns: Turns, states: RowStates
) -> tuple[RowStates, Refusals]:
    """The states after all items, and the rejected items. Raises NotCompilable if Arrow does not support an
    expression."""
    found, refused = states.copy(), Refusals()
    for number in range(int(turns.counts.max()) if len(turns.code) else 0):
        places = turns.starts[turns.counts > number] + number
        for writer, action in enumerate(actions):
            now = places[turns.writer[places] == writer]
            if len(now):
                turn = _Turn(work, action, found, turns.code[now], rows[writer].take(pa.array(turns.row[now])))
                turn.take()
                refused |= {(writer, int(turns.row[now[n]])): error for n, error in turn.failed.items()}
    return found, refused


@dataclass
class _Turn:
    """One item of one statement for each of some keys."""

    work: Work
    action: Action
    states: RowStates
    codes: Numbers
    events: pa.Table
    failed: dict[int, MillpondError] = field(default_factory=dict)

    def take(self) -> None:
        """Apply to each item the first branch whose condition is true."""
        open_ = np.ones(len(self.codes), bool)
        # A copy: whether a row exists is decided before the branches, which change the states.
        here = self.states.here[self.codes].copy()
        row = self._row()
        for branch in self.action.branches:
            going = np.flatnonzero(open_ if branch.matched is None else open_ & (here == branch.matched))
            going = self._holding(branch, row, going)
            open_[going] = False
            open_[list(self.failed)] = False
            self._apply(branch, row, going)

    def _row(self) -> pa.Table:
        """The current rows as ROW, and the items as EVENT."""
        columns: dict[str, pa.Array] = {}
        names = tuple(c.name for c in self.states.schema if c.name in self._read())
        taken = [pa.array(self.states.here[self.codes]), *self.states.take(self.codes, names)]
        columns[ROW] = pa.StructArray.from_arrays(taken, names=[HERE, *names])
        arrays = [whole(column) for column in self.events.columns]
        columns[EVENT] = pa.StructArray.from_arrays(arrays, names=self.events.column_names)
        return pa.table(columns)

    def _read(self) -> set[str]:
        """The columns of the row that some branch reads."""
        trees = [t for b in self.action.branches for t in (b.condition, *b.values.values()) if t is not None]
        return {c.name for tree in trees for c in tree.find_all(exp.Column) if c.table == ROW}

    def _holding(self, branch: Branch, row: pa.Table, going: Numbers) -> Numbers:
        if branch.condition is None or not len(going):
            return going
        held, kept = self._value(branch.condition, None, row, going)
        return kept[as_mask(held)]

    def _apply(self, branch: Branch, row: pa.Table, going: Numbers) -> None:
        if branch.effect is Effect.DELETE:
            self.states.delete(self.codes[going])
            return
        values: dict[str, pa.Array] = {}
        schema = self.states.schema
        for name, expression in branch.values.items():
            found, kept = self._value(expression, schema[name].type, row, going)
            if len(kept) < len(going):
                stay = pa.array(np.isin(going, kept))
                values = {n: v.filter(stay) for n, v in values.items()}
            values[name], going = found, kept
        for name in required(schema):
            if name in values and values[name].null_count:
                values, going = self._without_nulls(name, values, going)
        for check in schema.checks:
            values, going = self._without_breaking(check, values, going)
        self.states.set(self.codes[going], values)

    def _without_breaking(
        self, check: Check, values: Mapping[str, pa.Array], going: Numbers
    ) -> tuple[dict[str, pa.Array], Numbers]:
        """The values without those of items whose row would violate a constraint; an item for which the condition
        itself fails is rejected too."""
        if not len(going):
            return dict(values), going
        names = self.states.schema.names
        before = dict(zip(names, self.states.take(self.codes[going], names), strict=True))
        rows = pa.table(before | dict(values))
        condition = check_expression(check)
        ready = self.work.cache.once(f"check {hash(rows.schema)}", condition, lambda: _compiled(condition, rows.schema))
        held, kept = self._without_failing(ready, condition, rows, None, going)
        stays = np.isin(going, kept[~as_mask(pc.invert(held))])
        failed = going[np.isin(going, kept) & ~stays]
        self.failed |= {int(n): check_refused(check) for n in failed}
        return {n: v.filter(pa.array(stays)) for n, v in values.items()}, going[stays]

    def _without_nulls(
        self, name: str, values: Mapping[str, pa.Array], going: Numbers
    ) -> tuple[dict[str, pa.Array], Numbers]:
        null = np.asarray(values[name].is_null())
        self.failed |= {int(n): null_refused(self.states.schema, name) for n in going[null]}
        return {n: v.filter(pa.array(~null)) for n, v in values.items()}, going[~null]

    def _value(
        self, expression: exp.Expr, type_: pa.DataType | None, row: pa.Table, going: Numbers
    ) -> tuple[pa.Array, Numbers]:
        """The values of an expression for some items, without failing ones, and the remaining items."""
        # A plain column of the event in the right type needs no evaluation.
        given = expression.table == EVENT and expression.name if isinstance(expression, exp.Column) else ""
        if given and type_ is not None and self.events.schema.field(given).type == type_:
            return whole(self.events[given]).take(pa.array(going)), going
        rows = row.take(pa.array(going))
        cast = expression if type_ is None else exp.cast(expression.copy(), type_name(type_), dialect="spark")
        kind = f"fold {type_} {hash(row.schema)}"
        ready = self.work.cache.once(kind, expression, lambda: _compiled(cast, row.schema))
        found = _values(ready, rows, type_)
        return (found, going) if found is not None else self._without_failing(ready, cast, rows, type_, going)

    def _without_failing(
        self, ready: Compiled, cast: exp.Expr, rows: pa.Table, type_: pa.DataType | None, going: Numbers
    ) -> tuple[pa.Array, Numbers]:
        """The same by bisection, if some items fail. Spark evaluates those again, so that its error is the one
        reported."""
        values = _values(ready, rows, type_)
        if values is not None:
            return values, going
        if len(going) == 1:
            return self._asked(cast, rows, type_, going)
        half = len(going) // 2
        parts = ((rows.slice(0, half), going[:half]), (rows.slice(half), going[half:]))
        found = [self._without_failing(ready, cast, part, type_, which) for part, which in parts]
        return pa.concat_arrays([values for values, _ in found]), np.concatenate([kept for _, kept in found])

    def _asked(
        self, cast: exp.Expr, row: pa.Table, type_: pa.DataType | None, going: Numbers
    ) -> tuple[pa.Array, Numbers]:
        wanted = type_ if type_ is not None else pa.bool_()
        try:
            asked = evaluate_on_spark(self.work.views.session, cast, row)  # type: ignore[arg-type]
        except MillpondError as error:
            self.failed[int(going[0])] = error
            return pa.array([], wanted), going[:0]
        return whole(asked).cast(wanted), going


def _compiled(expression: exp.Expr, schema: pa.Schema) -> Compiled:
    return compile_expression(expression, Schema.from_arrow(schema))  # type: ignore[arg-type]


def _values(ready: Compiled, rows: pa.Table, type_: pa.DataType | None) -> pa.Array | None:
    """The values of all rows; None if a row fails."""
    try:
        found = whole(ready.evaluate(rows))
    except TableError:
        return None
    return found if type_ is None or found.type == type_ else pc.cast(found, type_)
