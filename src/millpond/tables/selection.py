"""Rows that satisfy a condition: found through the key or an index where the condition allows, else by scanning."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa

from millpond.errors import TableError
from millpond.tables.conditions import Condition, Evaluator, parsed
from millpond.tables.draft import State
from millpond.tables.hashing import null_rows
from millpond.tables.heap import Keys, among
from millpond.tables.index import Ids


@dataclass(frozen=True)
class Selected:
    """Some rows of a state; `through` names the key or index columns they were found by."""

    state: State
    ids: Ids
    through: tuple[str, ...] = ()

    def page(self, offset: int, limit: int | None) -> Selected:
        return replace(self, ids=self.ids[offset : None if limit is None else offset + limit])

    def table(self, positions: Sequence[int]) -> pa.Table:
        if len(self.ids) == self.state.live:
            return self.state.all(positions)
        return self.state.table(self.ids, positions)

    def columns(self, names: Sequence[str]) -> pa.Table:
        return self.table([self.state.schema.position(n) for n in names])


def select(state: State, condition: Condition, parameters: Sequence[Any], evaluator: Evaluator) -> Selected:
    """The rows for which a condition is true."""
    everything = Selected(state, state.ids())
    return replace(
        everything, ids=everything.ids[evaluator.holds(condition.expression, everything.columns, parameters)]
    )


def scan_for(state: State, columns: tuple[int, ...], keys: Keys) -> Ids:
    """The rows whose columns have one of the values, without an index."""
    table = state.all(columns).combine_chunks()
    own = Keys(tuple(c.combine_chunks() for c in table.columns))
    return state.ids()[among(own, keys)] if len(own) else state.ids()


def without_nulls(keys: Keys) -> Keys:
    """The keys that have no NULL in them."""
    missing = null_rows(keys.columns)
    return Keys(keys.at(np.flatnonzero(~missing))) if missing.any() else keys


def aggregate(evaluator: Evaluator, text: str, selected: Selected, parameters: Sequence[Any]) -> Any:
    """One aggregate over the selected rows."""
    raise TableError("MP409", f"'{parsed(text)}' cannot be computed yet.", hint="Use app.query.")
