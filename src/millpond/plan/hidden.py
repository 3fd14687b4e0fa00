"""Hidden tables: a source that a statement reads as a table without naming it."""

from __future__ import annotations

from sqlglot import exp

from millpond.contracts.table import TableSpec
from millpond.plan.model import BATCH, TableKind, TablePlan
from millpond.plan.sources import Opened, short_hash
from millpond.schema import Schema


def hidden_table(opened: Opened) -> TablePlan:
    """The table that holds a source's content under the source's id."""
    source = opened.plan
    schema = source.columns or Schema(())
    return TablePlan(
        source.id,
        TableKind.HIDDEN,
        TableSpec(source.id, schema, hidden=True),
        source.place,
        short_hash(f"{source.id} {[str(c) for c in schema]}"),
        source.id,
        whole_batch(source.columns),
        watch=bool(source.spec.values.get("watch")),
    )


def whole_batch(columns: Schema | None) -> exp.Select:
    """All columns of the batch, by name where they are known."""
    batch = exp.to_table(BATCH, dialect=None)
    batch.set("this", exp.Identifier(this=BATCH, quoted=True))
    names = [exp.column(c.name, quoted=True) for c in columns] if columns is not None else [exp.Star()]
    return exp.Select(expressions=names).from_(batch, copy=False)
