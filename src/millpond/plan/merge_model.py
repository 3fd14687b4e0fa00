"""MERGE and ON CONFLICT as the plan holds them: which rows each branch applies to, and what it does."""

from __future__ import annotations

from dataclasses import dataclass

from sqlglot import exp

from millpond.sql.statements import When

# Under which name the SET of an ON CONFLICT reads the row that was to be inserted.
EXCLUDED = "excluded"


@dataclass(frozen=True)
class MergeBranch:
    """One WHEN of a MERGE; the first that holds is taken. `condition` and `values`, by column, are numbers of outputs
    of the statement's query, which is over the source and the table. A branch without values deletes."""

    when: When
    condition: int | None
    values: tuple[tuple[str, int], ...]


@dataclass(frozen=True)
class OnConflict:
    """What becomes of a row whose key is there already; its expressions read the table by its name and the new row as
    EXCLUDED. Without assignments the row stays as it is."""

    assignments: tuple[tuple[str, exp.Expression], ...]
    where: exp.Expression | None = None
