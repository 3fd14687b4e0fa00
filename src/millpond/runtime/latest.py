"""The last message of each key: which rows of a batch stay, and which keys go."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from sqlglot import exp

from millpond.contracts.source import DELETED
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


def key_values(rows: pa.Table, schema: Schema) -> list[Any]:
    """Keys as a table takes them: single values, or tuples of several."""
    columns = [rows[name].to_pylist() for name in schema.key]
    return list(columns[0]) if len(columns) == 1 else list(zip(*columns, strict=True))
