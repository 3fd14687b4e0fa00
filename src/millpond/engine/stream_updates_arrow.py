"""Folds the events of a stream-driven UPDATE into rows by Arrow: in each round, one event of every row is applied."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

import numpy as np
import pyarrow as pa
from sqlglot import exp

from millpond.engine.row_sets import ROW_NUMBER
from millpond.errors import TableError
from millpond.expressions.compile import Compiled, NotCompilable, compile_expression
from millpond.plan.statement_groups import ORDER
from millpond.relational.codes import with_values
from millpond.relational.joins import as_mask
from millpond.schema import Schema, type_name

# A row with more events is folded by Spark: the cost of a round hardly depends on its size, so many rounds are slow.
ROUNDS_MAX = 200
# The prefix of columns of pairs with the row's value of a column that is set.
STATE = "s_"


Compilation: TypeAlias = tuple[list[Compiled], dict[str, Compiled]]


@dataclass(frozen=True)
class Walk:
    """What an event does to a row: `values` are the new values and types by column, `moving` the conditions that are
    evaluated first; both read the current row as `a`, the event as `e` and the row's other columns as t_<name>."""

    values: Mapping[str, tuple[exp.Expr, pa.DataType | None]]
    moving: tuple[exp.Expr, ...]
    _compiled: dict[pa.Schema, Compilation] = field(default_factory=dict, compare=False, repr=False)

    def compiled(self, schema: pa.Schema) -> Compilation:
        """The conditions and values over rows of this schema, which is the same in every round."""
        if schema not in self._compiled:
            names = Schema.from_arrow(schema)
            casts = {n: exp.cast(v.copy(), type_name(t), dialect="spark") for n, (v, t) in self.values.items()}
            conditions = [compile_expression(c, names) for c in self.moving]  # type: ignore[arg-type]
            values = {n: compile_expression(c, names) for n, c in casts.items()}
            self._compiled[schema] = conditions, values
        return self._compiled[schema]


def walked(walk: Walk, pairs: pa.Table) -> pa.Table | None:
    """The rows that an event changed: their numbers and the columns that are set. None if Spark must do it."""
    if not pairs.num_rows:
        return _changed(walk, pairs, np.zeros(0, bool))
    ordered = pairs.sort_by([(ROW_NUMBER, "ascending"), *((name, "ascending") for name in ORDER)])
    numbers = ordered[ROW_NUMBER].to_numpy()
    _, starts, counts = np.unique(numbers, return_index=True, return_counts=True)
    if counts.max() > ROUNDS_MAX:
        return None
    rows = ordered.take(pa.array(starts))
    met = np.zeros(rows.num_rows, bool)
    try:
        for number in range(int(counts.max())):
            rows, met = _round(walk, rows, met, ordered, (starts + number, counts > number))
    except (NotCompilable, TableError):
        # Spark evaluates it again, so that its error is the one reported.
        return None
    return _changed(walk, rows, met)


def _round(
    walk: Walk, rows: pa.Table, met: np.ndarray, ordered: pa.Table, turn: tuple[np.ndarray, np.ndarray]
) -> tuple[pa.Table, np.ndarray]:
    """Apply one event to each row that still has one; `turn` has the events' positions, and which rows have one."""
    places, has = turn
    going = np.flatnonzero(has)
    now = _beside(walk, rows.take(pa.array(going)), ordered.take(pa.array(places[going])))
    hits = np.ones(len(going), bool)
    conditions, values = walk.compiled(now.schema)
    for condition in conditions:
        hits &= as_mask(_value(condition, now))
    hit = now.filter(pa.array(hits))
    moved = going[hits]
    changed = dict(zip(rows.column_names, rows.columns, strict=True))
    for name, value in values.items():
        changed[STATE + name] = _put(rows[STATE + name], moved, _value(value, hit))
    met = met.copy()
    met[moved] = True
    return pa.table(changed), met


def _beside(walk: Walk, rows: pa.Table, events: pa.Table) -> pa.Table:
    """The current rows as `a`, the events as `e`, and the rows' other columns."""
    state = pa.StructArray.from_arrays(
        [rows[STATE + name].combine_chunks() for name in walk.values], names=list(walk.values)
    )
    fields = [name for name in events.column_names if name.startswith("e") and name[1:].isdigit()]
    event = [events[name].combine_chunks() for name in fields]
    columns = {"a": state, **{n: rows[n] for n in rows.column_names if n.startswith("t_")}}
    if event:
        columns["e"] = pa.StructArray.from_arrays(event, names=fields)
    return pa.table(columns)


def _value(expression: Compiled, rows: pa.Table) -> pa.ChunkedArray:
    found = expression.evaluate(rows)
    return found if isinstance(found, pa.ChunkedArray) else pa.chunked_array([found])


def _put(column: pa.ChunkedArray, places: np.ndarray, values: pa.ChunkedArray) -> pa.ChunkedArray:
    """A column with new values at some positions."""
    whole = column.combine_chunks()
    return pa.chunked_array([with_values(whole, places, values.combine_chunks().cast(whole.type))])


def _changed(walk: Walk, rows: pa.Table, met: np.ndarray) -> pa.Table:
    columns = {ROW_NUMBER: rows[ROW_NUMBER], **{name: rows[STATE + name] for name in walk.values}}
    return pa.table(columns).filter(pa.array(met, pa.bool_()))
