"""The contract of a source that is asked for the rows of some keys, instead of being loaded."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa


class KeyReader:
    """One source whose rows are looked up. Thread-safe. Opening it accesses nothing; each method raises SourceError
    MP506 if the source cannot be reached, MP502 for a row that cannot be read."""

    def lookup(self, columns: Sequence[str], keys: Sequence[pa.Array]) -> pa.Table:
        """All columns of at least the rows where these columns have one of the values, which are distinct and not
        NULL. Called once for the missing keys of a batch."""
        raise NotImplementedError

    def scan(self) -> pa.Table:
        """All rows, for a query that does not look them up."""
        raise NotImplementedError

    def close(self) -> None:
        """Called when the app stops."""
