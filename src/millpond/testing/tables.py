"""The contract suite of tables: subclass TableContract, set a backend, and run it with pytest."""

from __future__ import annotations

from millpond.testing.table_reading import ReadingContract, VersionContract
from millpond.testing.table_transactions import TransactionContract
from millpond.testing.table_types import TypesContract
from millpond.testing.table_writing import DurableContract, WritingContract


class VolatileTableContract(ReadingContract, WritingContract, TypesContract, TransactionContract, VersionContract):
    """The contract of a table that may be empty after a restart."""


class TableContract(VolatileTableContract, DurableContract):
    """The contract of a table."""
