"""The contract suite of tables: subclass TableContract, name a backend, and pytest runs every promise against it."""

from __future__ import annotations

from millpond.testing.table_reading import ReadingContract, VersionContract
from millpond.testing.table_transactions import TransactionContract
from millpond.testing.table_types import TypesContract
from millpond.testing.table_writing import DurableContract, WritingContract


class VolatileTableContract(ReadingContract, WritingContract, TypesContract, TransactionContract, VersionContract):
    """All promises of a table that a restart may empty."""


class TableContract(VolatileTableContract, DurableContract):
    """All promises of a table."""
