"""Sessions that come together: those of a batch joined with the open ones of their group."""

from __future__ import annotations

from dataclasses import dataclass

import polars as pl
import pyarrow as pa

from millpond.plan.aggregate_model import END, START, AggregatePlan
from millpond.runtime.aggregates.aggregate import merged, merges

_ID, _ROW, _ONE, _RANK = "__id", "__row", "__one", "__rank"


@dataclass(frozen=True)
class Joined:
    """`sessions` are those that the batch touched, as they are now; `into` has, for each session of the batch, its
    row there; `replaced` are open ones that are part of a touched one now, and `grown` their rows there."""

    sessions: pa.Table
    into: pa.Array
    replaced: pa.Table
    grown: pa.Array


def join_sessions(held: pa.Table, found: pa.Table, plan: AggregatePlan) -> Joined:
    """Open sessions and those of a batch, both in the companion's columns, joined where they meet or overlap."""
    both = pa.concat_tables([held.select(found.column_names), found])
    members = _members(both, held.num_rows, plan.groups)
    sessions = _folded(both, members, plan)
    is_held = pl.col(_ROW) < held.num_rows
    old, new = members.filter(is_held), members.filter(~is_held).sort(_ROW)
    return Joined(sessions, _numbers(new[_ID]), both.take(_numbers(old[_ROW])), _numbers(old[_ID]))


def _numbers(column: pl.Series) -> pa.Array:
    return column.cast(pl.Int64).to_arrow()


def _members(both: pa.Table, held: int, groups: tuple[str, ...]) -> pl.DataFrame:
    """Each session's row with the number of the joined session that it is part of, the open ones first; without the
    open ones that no new one touches. The first `held` rows are the open ones."""
    frame = pl.from_arrow(both.select([*groups, START, END]))
    assert isinstance(frame, pl.DataFrame)
    by = [_ONE, *groups]
    frame = frame.with_row_index(_ROW).with_columns(pl.lit(0).alias(_ONE)).sort([*by, START, _ROW])
    before = pl.col(END).cum_max().shift(1).over(by)
    begins = before.is_null() | (pl.col(START) > before)
    frame = frame.with_columns(begins.cum_sum().alias(_ID))
    frame = frame.filter(pl.col(_ROW).max().over(_ID) >= held)
    # Counted anew, from 0: the numbers are the rows of the joined sessions.
    return frame.with_columns((pl.col(_ID).rank("dense") - 1).alias(_ID)).sort([_ID, _ROW])


def _folded(both: pa.Table, members: pl.DataFrame, plan: AggregatePlan) -> pa.Table:
    """One row per joined session: the accumulators of its members merged, the first with the second and so on."""
    ranked = members.with_columns(pl.int_range(pl.len()).over(_ID).alias(_RANK))
    ends = members.group_by(_ID).agg(pl.col(START).min(), pl.col(END).max()).sort(_ID)
    first = both.take(_numbers(ranked.filter(pl.col(_RANK) == 0)[_ROW]))
    columns = {name: first[name] for name in both.column_names}
    for rank in sorted(set(ranked[_RANK].to_list()) - {0}):
        nth = ranked.filter(pl.col(_RANK) == rank).select(_ID, pl.col(_ROW).alias("nth"))
        now = both.take(_numbers(ends.join(nth, on=_ID, how="left", maintain_order="left")["nth"]))
        for name, how in merges(plan).items():
            columns[name] = merged(how, columns[name], now[name])
    for name in (START, END):
        columns[name] = pa.chunked_array([ends[name].to_arrow()]).cast(both.schema.field(name).type)
    return pa.table(columns)
