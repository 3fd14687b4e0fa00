"""CHANGES(table): emits the changes of a transaction to sinks, as part of the same transaction."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from millpond.contracts.sink import Mark
from millpond.contracts.table import Change
from millpond.engine.app_context import Context
from millpond.engine.batch_run import Output
from millpond.engine.emit import stage
from millpond.engine.ledger import CHANGES
from millpond.engine.spark.spark_errors import translate
from millpond.engine.work import Work
from millpond.plan.model import ChangesPlan
from millpond.plan.source_catalog import short_hash
from millpond.schema import Schema

OPERATION = "_op"
INSERT, UPDATE, DELETE = "insert", "update", "delete"

Staged = list[dict[str, Any]]


def announce(work: Work, writer: str) -> Staged:
    """Called at the end of a transaction, before its commit: stages the outputs of CHANGES statements. `writer`
    identifies the committer; one transaction at a time has a name. Returns what is published after the commit."""
    outputs: Staged = []
    for plan in work.context.plan.changes:
        if plan.table.lower() in work.context.held:
            continue
        key = f"{CHANGES}{plan.id}:{writer}"
        # The number is committed with the changes, so that a transaction that is repeated after a crash gets the same
        # one.
        number = (work.context.store.get(key) or {}).get("number", -1) + 1
        staged = _stage(work, plan, Mark(f"changes-{plan.id}-{short_hash(writer)}", number, plan.step.index))
        if staged:
            work.tx.put(key, {"sinks": staged, "number": number})
            outputs += staged
    return outputs


def publish(context: Context, staged: Staged) -> None:
    """Publish staged outputs, after the commit."""
    for entry in staged:
        context.sinks[entry["sink"]].publish(entry["staged"])


def _stage(work: Work, plan: ChangesPlan, mark: Mark) -> Staged:
    rows = _rows(work, plan)
    if not rows.num_rows:
        return []
    # Lookups of an earlier statement's batch do not apply to these rows.
    work.lookups = None
    try:
        found = work.result(plan.step.query, rows)
        staged = stage(work, Output(plan.step.target, found, mark))
    except Exception as error:
        raise translate(error, plan.step.place) from error
    return [] if staged is None else [{"sink": plan.step.target, "staged": staged}]


def _rows(work: Work, plan: ChangesPlan) -> pa.Table:
    """The changed rows to emit; for a new statement, all rows of the table as inserts."""
    table = work.table(plan.table)
    if work.context.store.get(CHANGES + plan.id) is None:
        work.tx.put(CHANGES + plan.id, True)
        rows = table.to_arrow()
        return rows.append_column(OPERATION, pa.array([INSERT] * rows.num_rows, pa.string()))
    return with_operations(work.tx.changes(plan.table), table.schema)


def with_operations(change: Change, schema: Schema) -> pa.Table:
    """The rows of a change with their operation: removed rows with their old values, others with their new ones. A row
    is identified by its key, or by all its values in a table without one."""
    key = [schema[name].name for name in schema.key]
    gone = _by_key(change.removed, key)
    kept: list[int] = []
    operations: list[str] = []
    rows = _values(change.added, change.added.column_names)
    for position, (known_by, row) in enumerate(zip(_values(change.added, key), rows, strict=True)):
        before = gone.get(known_by)
        if not before:
            kept.append(position)
            operations.append(INSERT)
        elif before.pop()[1] != row:
            kept.append(position)
            operations.append(UPDATE)
    left = sorted(position for found in gone.values() for position, _ in found)
    changes = pa.concat_tables(
        [change.removed.take(pa.array(left, pa.int64())), change.added.take(pa.array(kept, pa.int64()))]
    )
    return changes.append_column(OPERATION, pa.array([DELETE] * len(left) + operations, pa.string()))


def _by_key(rows: pa.Table, key: list[str]) -> dict[Any, list[tuple[int, Any]]]:
    found: dict[Any, list[tuple[int, Any]]] = {}
    values = _values(rows, rows.column_names)
    for position, (known_by, row) in enumerate(zip(_values(rows, key), values, strict=True)):
        found.setdefault(known_by, []).append((position, row))
    return found


def _values(rows: pa.Table, names: list[str]) -> list[Any]:
    """One hashable value per row; nested values are converted to text."""
    columns = [rows[name].to_pylist() for name in names or rows.column_names]
    nested = [pa.types.is_nested(rows[name].type) for name in names or rows.column_names]
    texts = [map(repr, column) if is_nested else column for column, is_nested in zip(columns, nested, strict=True)]
    return list(zip(*texts, strict=True))
