"""The contract of the engines that evaluate queries, and the sizes by which one of the two is chosen."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol, TypeAlias, TypeVar

import pyarrow as pa
from sqlglot import exp

from millpond.contracts.table import ReadTable


class Engine(StrEnum):
    """Spark is the reference. Arrow is faster for data that fits on the driver, and rejects what it cannot evaluate
    exactly as Spark does."""

    ARROW = "arrow"
    SPARK = "spark"


@dataclass(frozen=True)
class Route:
    """The engine of a query and the reason for it."""

    engine: Engine
    reason: str


DRIVER_ROWS = 200_000
# Each of these is a multiple of 'driver.max.rows', so that one setting scales them all; measured by bench/flows.py and
# bench/kafka_figures.py with 200,000 rows.
PARSED_FACTOR, TABLE_FACTOR, PAIRS_FACTOR = 5, 5, 10


# Records that only Spark can parse are evaluated on the driver up to this many: transferring more takes longer.
COLLECTED_ROWS_MAX = 40_000


@dataclass(frozen=True)
class Limits:
    """The sizes up to which the driver evaluates a query; beyond them Spark does."""

    driver_rows: int = DRIVER_ROWS
    is_local: bool = True

    @property
    def parsed_rows(self) -> int:
        """Records of a batch that Spark would have to parse first; the driver stays faster up to more of these."""
        return self.driver_rows * (PARSED_FACTOR if self.is_local else 1)

    @property
    def collected_rows(self) -> int:
        """Records of a batch that Spark has parsed, and that are transferred to the driver."""
        return min(self.driver_rows, COLLECTED_ROWS_MAX)

    @property
    def table_rows(self) -> int:
        """Rows of a table that is read completely because no key or index fits the query."""
        return self.driver_rows * TABLE_FACTOR

    @property
    def pairs(self) -> int:
        """Pairs of rows that a join or a correlated subquery may form at a time."""
        return self.driver_rows * PAIRS_FACTOR


@dataclass(frozen=True)
class TableInput:
    """A table that a query reads. `ways` are the columns by which rows may be looked up, the key first; none if it is
    read completely. `by_any`: rows can be looked up by any columns. `changed`: its version does not reflect all
    changes, such as those of the open transaction."""

    table: ReadTable
    ways: tuple[tuple[str, ...], ...] = ()
    changed: bool = False
    by_any: bool = False


Input: TypeAlias = pa.Table | TableInput
Inputs: TypeAlias = Mapping[str, Input]
Rows = TypeVar("Rows", covariant=True)


class Evaluator(Protocol[Rows]):
    """One engine. `Rows` is the type of its results: a table on the driver, or a DataFrame in Spark."""

    @property
    def engine(self) -> Engine:
        """Which engine it is."""

    def evaluate(self, query: exp.Query, inputs: Inputs) -> Rows:
        """Return the rows of a bound query, columns by position; `inputs` has every relation that it names, by its
        name in lower case. Not thread-safe. Raises NotCompilable, without side effects, if the engine does not support
        the query or a value. The rows are ordered by the ORDER BY of the query, else in any order."""
