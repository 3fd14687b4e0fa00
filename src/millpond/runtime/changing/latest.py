"""The last message of each key: which rows of a batch stay, and which keys go."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from sqlglot import exp

from millpond.contracts.source import DELETED, IDENTITY
from millpond.plan.stream_order import ORDER
from millpond.schema import Schema

KEEP = "__keep"
_NUMBER = "__n"


def with_keep(query: exp.Query) -> exp.Query:
    """The query with its WHERE as one more column: a message that WHERE leaves out takes its key's row away."""
    made = query.copy()
    assert isinstance(made, exp.Select)
    where = made.args.get("where")
    made.set("where", None)
    source = made.args["from_"].this
    stays: exp.Expression = exp.Not(this=exp.column(DELETED, table=source.alias_or_name, quoted=True))
    if where is not None:
        # A message without a value is not asked: its columns are all NULL.
        holds = exp.Coalesce(this=exp.Paren(this=where.this), expressions=[exp.false()])
        stays = exp.Case(ifs=[exp.If(this=stays, true=holds)], default=exp.false())
    made.append("expressions", exp.alias_(stays, KEEP, quoted=True))
    return made


def last_of_keys(rows: pa.Table, key: Sequence[str]) -> tuple[pa.Table, pa.Table]:
    """The last row of each key, in order: those that stay, and those whose keys go."""
    numbered = rows.append_column(_NUMBER, pa.array(np.arange(rows.num_rows), pa.int64()))
    last = numbered.group_by(list(key), use_threads=False).aggregate([(_NUMBER, "max")])
    if last.num_rows < rows.num_rows:
        rows = rows.take(last[f"{_NUMBER}_max"].combine_chunks().sort())
    return rows.filter(rows[KEEP]), rows.filter(pc.invert(rows[KEEP]))


def last_that_stay(rows: pa.Table, messages: pa.Table, key: Sequence[str]) -> tuple[pa.Table, pa.Table]:
    """Rows that the last message of their key gave, in stream order, and the last messages that gave none. Rows know
    their message by its place in the stream, so that they need not carry its key."""
    order = [(name, "ascending") for name in ORDER]
    last = messages.sort_by(order)
    last = last.append_column(_NUMBER, pa.array(np.arange(last.num_rows), pa.int64()))
    numbers = last.group_by(list(key), use_threads=False).aggregate([(_NUMBER, "max")])[f"{_NUMBER}_max"]
    last = last.take(numbers.combine_chunks().sort()).drop_columns([_NUMBER])
    if IDENTITY not in key:
        last = last.rename_columns([f"__{name}" if name in key else name for name in last.column_names])
    kept = rows.join(last, list(ORDER), join_type="inner").sort_by(order)
    gone = last.join(rows.select(list(ORDER)), list(ORDER), join_type="left anti")
    return kept, gone.rename_columns([n.removeprefix("__") if n[2:] in key else n for n in gone.column_names])


def key_values(rows: pa.Table, schema: Schema) -> list[Any]:
    """Keys as a table takes them: single values, or tuples of several."""
    columns = [rows[name].to_pylist() for name in schema.key]
    return list(columns[0]) if len(columns) == 1 else list(zip(*columns, strict=True))
