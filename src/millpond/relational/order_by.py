"""ORDER BY, LIMIT and OFFSET of a query."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
from sqlglot import exp

from millpond.expressions.failures import NotCompilable
from millpond.relational.codes import Numbers, Values
from millpond.relational.evaluation import Evaluation
from millpond.relational.group_by import Groups
from millpond.relational.inputs import Rows
from millpond.relational.window_frames import Key


def keys_of(
    table: pa.Table, select: exp.Select, groups: Groups | None, rows: Rows, evaluation: Evaluation
) -> list[Key]:
    """Return the sort keys of the outputs; the binder has already set the order of NULLs."""
    clause = select.args.get("order")
    if clause is None:
        return []
    outputs = groups.outputs if groups is not None else [e.unalias() for e in select.expressions]
    named = {e.alias_or_name.lower(): output for e, output in zip(select.expressions, outputs, strict=True)}
    keys = []
    for key in groups.order if groups is not None else clause.expressions:
        if isinstance(key.this, exp.Literal) or _is_bare(key.this):
            keys.append(_key(key, _output(key.this, table)))
        elif select.args.get("distinct") or key.find(exp.Window):
            raise NotCompilable("an ORDER BY expression that is not an output")
        else:
            over = evaluation.cache.once("order key", key, lambda key=key: _over_rows(key.this, named))  # type: ignore[misc]
            keys.append(_key(key, evaluation.value(over, rows)))
    return keys


def _over_rows(key: exp.Expr, named: dict[str, exp.Expr]) -> exp.Expr:
    """Return a sort expression over the rows; a column without a relation is the output of that name."""

    def replaced(node: exp.Expr) -> exp.Expr:
        if not _is_bare(node):
            return node
        if node.name.lower() not in named:
            raise NotCompilable("an ORDER BY name that does not match exactly one output")
        return named[node.name.lower()].copy()

    return key.copy().transform(replaced, copy=False)


def _is_bare(node: exp.Expr) -> bool:
    return isinstance(node, exp.Column) and not node.table


def in_order(table: pa.Table, query: exp.Expr) -> pa.Table:
    """Apply the ORDER BY, LIMIT and OFFSET of a query in which only the outputs are visible."""
    clause = query.args.get("order")
    keys = [_key(key, _output(key.this, table)) for key in (clause.expressions if clause is not None else ())]
    return cut(table.take(pa.array(positions(keys, table.num_rows))) if keys else table, query)


def _key(key: exp.Expr, values: Values) -> Key:
    if not isinstance(key, exp.Ordered) or key.args.get("with_fill"):
        raise NotCompilable("a form of ORDER BY that only Spark supports")
    return Key(values, bool(key.args.get("desc")), bool(key.args.get("nulls_first")))


def positions(keys: Sequence[Key], count: int) -> Numbers:
    """Return the positions of the rows sorted by the keys; the sort is stable."""
    return np.lexsort(tuple(key.places for key in reversed(keys))) if keys else np.arange(count)


def _output(key: exp.Expr, table: pa.Table) -> Values:
    if isinstance(key, exp.Literal) and not key.is_string and key.name.isdecimal():
        place = int(key.name) - 1
        if not 0 <= place < table.num_columns:
            raise NotCompilable("an ORDER BY position beyond the outputs")
        return table.column(place)
    places = [i for i, name in enumerate(table.column_names) if name.lower() == key.name.lower()]
    if not isinstance(key, exp.Column) or key.table or len(places) != 1:
        raise NotCompilable("an ORDER BY name that does not match exactly one output")
    return table.column(places[0])


def cut(table: pa.Table, query: exp.Expr) -> pa.Table:
    """Apply LIMIT and OFFSET."""
    limit, offset = query.args.get("limit"), query.args.get("offset")
    parts = [part.expression for part in (limit, offset) if part is not None]
    if not all(isinstance(part, exp.Literal) and not part.is_string for part in parts):
        raise NotCompilable("a LIMIT or OFFSET that is not a literal")
    start = int(offset.expression.name) if offset is not None else 0
    return table.slice(start, int(limit.expression.name)) if limit is not None else table.slice(start)
