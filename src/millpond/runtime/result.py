"""What a query gives back."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from millpond.errors import SetupError

if TYPE_CHECKING:
    import pandas


class Result:
    """The rows of a query, all here; iterate for dicts."""

    def __init__(self, table: pa.Table) -> None:
        self._table = table

    def to_arrow(self) -> pa.Table:
        """The rows as a pyarrow.Table."""
        return self._table

    def to_pandas(self) -> pandas.DataFrame:
        """The rows as a pandas DataFrame, decimals as Decimal, times with their zone; MP309 where pandas is not
        installed."""
        try:
            return self._table.to_pandas()
        except ImportError as error:
            raise SetupError("MP309", "This needs pandas.", hint="Run: pip install 'millpond[pandas]'") from error

    def rows(self) -> list[dict[str, Any]]:
        """The rows as Python dicts, decimals as Decimal, times with their zone."""
        found: list[dict[str, Any]] = self._table.to_pylist()
        return found

    @property
    def columns(self) -> tuple[str, ...]:
        """The names of the columns, in order."""
        return tuple(self._table.column_names)

    def __iter__(self) -> Iterator[dict[str, Any]]:
        return iter(self.rows())

    def __len__(self) -> int:
        return int(self._table.num_rows)

    def __dir__(self) -> list[str]:
        return [name for name in super().__dir__() if not name.startswith("_")]

    def __repr__(self) -> str:
        return f"<Result of {len(self)} rows: {', '.join(self.columns)}>"
