"""SHOW CHANGES: the inserts, updates and deletes of a table that keeps its old rows, newest first."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from millpond.contracts.source import without_identity
from millpond.contracts.table import ReadTable, Store
from millpond.engine.row_sets import positions, unique_rows
from millpond.engine.table_history import HELD, Held
from millpond.errors import BindError, TableError, did_you_mean
from millpond.plan.history import history_name, keeps_no_rows
from millpond.plan.history_model import AT, GONE, GONE_AT, VERSION
from millpond.sql.statements import Show

# The columns before those of the table.
_SHOWN = ("_version", "_at", "_op")


def changes_of(statement: Show, store: Store) -> pa.Table:
    """The rows of SHOW CHANGES."""
    name = statement.subject
    assert name is not None
    tables = {n.lower(): n for n in store.names() if not store.table(n).spec.hidden}
    if name.key not in tables:
        hint = did_you_mean(name.text, list(tables.values()))
        raise BindError("MP201", f"There is no table '{name}'.", place=name.place, hint=hint)
    past = history_name(tables[name.key]).lower()
    if past not in {n.lower() for n in store.names()}:
        message, hint = keeps_no_rows(tables[name.key])
        raise TableError("MP303", message, place=name.place, hint=hint)
    with store.begin() as tx:
        held = Held.of(tx.get(HELD + past))
        table = store.table(name.text)
        found = _changes(tx.table(past), table.schema.key, -1 if held is None else held.version)
    order = [("_version", "descending"), ("_deleted", "ascending"), *((name, "ascending") for name in table.schema.key)]
    found = found.sort_by(order)
    shown = without_identity(table.schema).names
    return found.select([*_SHOWN, *shown]).slice(0, statement.limit)


def _changes(history: ReadTable, key: tuple[str, ...], since: int) -> pa.Table:
    """Each change after a version: the new row, or the old one of a delete."""
    rows = history.to_arrow()
    ended = pc.fill_null(rows[GONE], np.iinfo(np.int64).max)
    # The others were replaced by the transaction that wrote them.
    rows = rows.filter(pc.greater(ended, rows[VERSION]))
    began = rows.filter(pc.greater(rows[VERSION], since))
    left = rows.filter(pc.and_(pc.is_valid(rows[GONE]), pc.greater(pc.fill_null(rows[GONE], 0), since)))
    names = [*key, VERSION]
    keys_left = left.select([*key, GONE]).rename_columns(names)
    replaced = pc.is_valid(positions(began.select(names), unique_rows(keys_left)))
    deleted = left.filter(pc.is_null(positions(keys_left, unique_rows(began.select(names)))))
    operations = pc.if_else(replaced, "update", "insert")
    return pa.concat_tables(
        [
            _shown(began, VERSION, AT, operations, deleted=False),
            _shown(deleted, GONE, GONE_AT, pa.array(["delete"] * deleted.num_rows, pa.string()), deleted=True),
        ]
    )


def _shown(rows: pa.Table, version: str, at: str, operations: pa.Array, *, deleted: bool) -> pa.Table:
    flags = pa.array(np.full(rows.num_rows, deleted))
    columns = [rows[version], rows[at], operations, flags, *rows.columns]
    return pa.table(columns, names=[*_SHOWN, "_deleted", *rows.column_names])
