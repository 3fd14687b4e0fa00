"""UNION, INTERSECT and EXCEPT of two results, by position, in their common types."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
from sqlglot import exp

from millpond.expressions.coercion import wider
from millpond.expressions.failures import NotCompilable
from millpond.expressions.sort_ranks import single_zero_and_nan
from millpond.relational.codes import Numbers, group_codes, in_type


def combined(operation: exp.SetOperation, left: pa.Table, right: pa.Table) -> pa.Table:
    """Combine two results by a set operation; rows of the left side come first."""
    if operation.args.get("by_name") or operation.args.get("on"):
        raise NotCompilable("a set operation BY NAME")
    left, right = _alike(left, right)
    distinct = bool(operation.args.get("distinct"))
    both = pa.concat_tables([left, right])
    if isinstance(operation, exp.Union):
        return without_duplicates(both) if distinct else both
    codes, _ = group_codes(both.columns, both.num_rows)
    keep = _kept(codes[: left.num_rows], codes[left.num_rows :], isinstance(operation, exp.Except), distinct)
    found = left.take(pa.array(keep))
    return normalized(found) if distinct else found


def without_duplicates(table: pa.Table) -> pa.Table:
    """Return the first of each set of equal rows."""
    if not table.num_columns:
        return table.slice(0, 1)
    table = normalized(table)
    return table.take(pa.array(group_codes(table.columns, table.num_rows)[1]))


def normalized(table: pa.Table) -> pa.Table:
    """Return rows as Spark's grouping returns them: floats with one zero and one NaN."""
    columns = [single_zero_and_nan(column) for column in table.columns]
    return pa.Table.from_arrays(columns, names=table.column_names)


def _kept(left: Numbers, right: Numbers, is_except: bool, distinct: bool) -> Numbers:
    """Return the positions of the left rows to keep; with ALL each right row matches only one equal left row."""
    count = int(max(left.max(initial=-1), right.max(initial=-1))) + 1
    others = np.bincount(right, minlength=count)
    if distinct:
        _, firsts = np.unique(left, return_index=True)
        there = others[left[firsts]] > 0
        return np.sort(firsts[~there if is_except else there])
    order = np.argsort(left, kind="stable")
    ordered = left[order]
    begins = np.insert(np.flatnonzero(ordered[1:] != ordered[:-1]) + 1, 0, 0) if len(ordered) else ordered
    starts = np.repeat(begins, np.diff(np.append(begins, len(ordered)))) if len(ordered) else ordered
    nth = np.arange(len(ordered)) - starts
    taken = nth < others[ordered]
    return np.sort(order[~taken if is_except else taken])


def _alike(left: pa.Table, right: pa.Table) -> tuple[pa.Table, pa.Table]:
    if left.num_columns != right.num_columns:
        raise NotCompilable("a set operation on different numbers of columns")
    columns = [_one_type(a, b) for a, b in zip(left.columns, right.columns, strict=True)]
    names = left.column_names
    first, second = ([pair[n] for pair in columns] for n in (0, 1))
    return pa.Table.from_arrays(first, names=names), pa.Table.from_arrays(second, names=names)


def _one_type(left: pa.ChunkedArray, right: pa.ChunkedArray) -> tuple[pa.Array, pa.Array]:
    type_ = wider(left.type, right.type)
    if type_ is None or (type_ != left.type and left.type != right.type and pa.types.is_nested(type_)):
        raise NotCompilable("a set operation without common types")
    return in_type(left, type_), in_type(right, type_)
