"""What a query gives back."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pyarrow as pa

from millpond.errors import SetupError


class Result:
    """The rows of a query, all here; iterate for dicts."""

    def __init__(self, table: pa.Table) -> None:
        self._table = table

    def to_arrow(self) -> pa.Table:
        return self._table

    def to_pandas(self) -> Any:
        """A pandas DataFrame; MP309 when pandas is not installed."""
        try:
            return self._table.to_pandas()
        except ImportError as error:
            raise SetupError("MP309", "This needs pandas.", hint="Run: pip install pandas") from error

    def rows(self) -> list[dict[str, Any]]:
        """The rows as Python dicts, decimals as Decimal, times with their zone."""
        found: list[dict[str, Any]] = self._table.to_pylist()
        return found

    @property
    def columns(self) -> tuple[str, ...]:
        return tuple(self._table.column_names)

    def __iter__(self) -> Iterator[dict[str, Any]]:
        return iter(self.rows())

    def __len__(self) -> int:
        return int(self._table.num_rows)

    def __repr__(self) -> str:
        return f"<Result of {len(self)} rows: {', '.join(self.columns)}>"
