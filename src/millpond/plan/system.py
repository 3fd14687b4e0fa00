"""Tables that every app has."""

from __future__ import annotations

import pyarrow as pa

from millpond.contracts.table import TableSpec
from millpond.errors import Place
from millpond.plan.model import TableKind, TablePlan
from millpond.schema import TIMESTAMP, Column, Schema

DEAD_LETTERS = Schema.of(
    [
        Column("at", TIMESTAMP),
        Column("flow", pa.string()),
        Column("statement", pa.int32()),
        Column("line", pa.int32()),
        Column("source", pa.string()),
        Column("partition", pa.string()),
        Column("position", pa.string()),
        Column("code", pa.string()),
        Column("reason", pa.string()),
        Column("raw", pa.binary()),
    ]
)


def dead_letters_table(place: Place) -> TablePlan:
    """Records and rows that could not be read, cast or applied."""
    return TablePlan("dead_letters", TableKind.SYSTEM, TableSpec("dead_letters", DEAD_LETTERS), place, "system")
