"""The mark of each row that goes to a sink: the event that it comes from, or its content; the same in a replay.

Not the row's position: which rows come before it may depend on tables that others have changed since the first try.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterator, Mapping

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F
from sqlglot import exp

from millpond.contracts.sink import BATCH, ROW
from millpond.plan.functions import function_name
from millpond.plan.generators import EXPLODING, INLINING
from millpond.plan.stream_order import ORDER
from millpond.rendering import json_lines

MULTIPLYING = (*EXPLODING, *INLINING, "stack", "json_tuple")
Place = tuple[int, int]


def multiplies(query: exp.Query) -> bool:
    """Whether one event may give several rows."""
    if query.find(exp.Join, exp.Lateral, exp.SetOperation) is not None:
        return True
    return any(function_name(call) in MULTIPLYING for call in query.find_all(exp.Func))


def marked_rows(rows: pa.Table, *, ordered: bool) -> pa.Table:
    """Rows with their marks; `ordered`: the stream order is in the last two columns, which go."""
    own = rows.select(range(rows.num_columns - len(ORDER))) if ordered else rows
    names = pc.binary_join_element_wise(*_order_texts(rows), ".") if ordered else pa.array(_contents(own), pa.string())
    return own.append_column(ROW, _numbered(names, own))


def with_batches(marked: pa.Table, rows: pa.Table, batch: int, arrived: Mapping[Place, int]) -> pa.Table:
    """The same with the batch of each row: the one in which its event arrived, where it has waited since."""
    places = zip(*(rows.column(i - len(ORDER)).to_pylist() for i in range(len(ORDER))), strict=True)
    return marked.append_column(BATCH, pa.array([str(arrived.get(place, batch)) for place in places], pa.string()))


def marked_frame(rows: DataFrame, *, several: bool) -> DataFrame:
    """The same for ordered rows that stay in Spark; `several`: an event may have given more than one of them."""
    own = rows.columns[: -len(ORDER)]
    place = [F.col(_quoted(name)) for name in ORDER]
    name: Column = F.concat_ws(".", *(column.cast("string") for column in place))
    if several:
        content = F.to_json(F.struct(*(F.col(_quoted(column)) for column in own)))
        number = F.row_number().over(Window.partitionBy(*place).orderBy(content)) - 1
        name = F.when(number == 0, name).otherwise(F.concat_ws(".", name, number.cast("string")))
    return rows.select(*(F.col(_quoted(column)) for column in own), name.alias(ROW))


def _quoted(name: str) -> str:
    return f"`{name.replace('`', '``')}`"


def _order_texts(rows: pa.Table) -> list[pa.ChunkedArray]:
    return [rows.column(rows.num_columns - len(ORDER) + i).cast(pa.string()) for i in range(len(ORDER))]


def _contents(rows: pa.Table) -> Iterator[str]:
    for text in json_lines(rows):
        yield hashlib.blake2b(text.encode(), digest_size=8).hexdigest()


def _numbered(names: pa.Array | pa.ChunkedArray, rows: pa.Table) -> pa.Array:
    """Names of which several rows have one: these are numbered, in an order that follows from their content."""
    whole = names.combine_chunks() if isinstance(names, pa.ChunkedArray) else names
    codes = whole.dictionary_encode().indices.to_numpy()
    repeated = np.flatnonzero(np.bincount(codes)[codes] > 1) if len(codes) else codes
    if not len(repeated):
        return whole
    found, texts, seen = whole.to_pylist(), list(json_lines(rows.take(pa.array(repeated)))), Counter[int]()
    for i in sorted(range(len(repeated)), key=texts.__getitem__):
        row = repeated[i]
        if number := seen[codes[row]]:
            found[row] += f".{number}"
        seen[codes[row]] += 1
    return pa.array(found, pa.string())
