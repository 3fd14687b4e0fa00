"""The plan of changes to a table's rows event by event, including MERGE: plain data for explain and the engine."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from sqlglot import exp

from millpond.sql.statements import When

# The name by which the SET of an ON CONFLICT reads the row to insert.
EXCLUDED = "excluded"


@dataclass(frozen=True)
class MergeBranch:
    """One WHEN of a MERGE; the first that applies is used. `condition` and `values`, by column, are the numbers of
    outputs of the statement's query, which is over the source and the table. A branch without values deletes."""

    when: When
    condition: int | None
    values: tuple[tuple[str, int], ...]


@dataclass(frozen=True)
class OnConflict:
    """What happens to a row whose key exists; its expressions read the table by its name and the new row as EXCLUDED.
    Without assignments the row is not changed."""

    assignments: tuple[tuple[str, exp.Expression], ...]
    where: exp.Expression | None = None


# In the expressions of a branch: the row after the previous events, and the values of the event.
ROW, EVENT = "a", "e"
# A column of ROW: whether the row exists. The others are NULL while it does not.
HERE = "__mp_here"


class Effect(StrEnum):
    """What happens to the row of a key."""

    PUT = "put"  # all columns get these values, whether it existed or not
    SET = "set"  # some columns get new values
    DELETE = "delete"


@dataclass(frozen=True)
class Branch:
    """One branch of an action. It applies if the row exists (`matched`), does not exist (False) or either (None), and
    `condition` over ROW and EVENT is true. `values` of PUT has every column of the table, that of SET some columns,
    none of the key."""

    effect: Effect
    matched: bool | None = None
    condition: exp.Expr | None = None
    values: Mapping[str, exp.Expr] = field(default_factory=dict)


@dataclass(frozen=True)
class Action:
    """What a statement does to the row of a key; the first branch that applies is used. `items`, a query over BATCH and
    tables other than the target, returns for each relevant event the target's `columns`, including the key, and what
    else the branches read of the event, under the names `extra`. `always`: every item is applied, so that one that
    violates a constraint can be rejected before it is applied to its row."""

    items: exp.Query
    columns: tuple[str, ...]
    extra: tuple[str, ...]
    branches: tuple[Branch, ...]
    always: bool = False

    @property
    def resets(self) -> bool:
        """Whether the row after an item does not depend on the row before it."""
        first = self.branches[0]
        if first.condition is not None or first.matched is False:
            return False
        if first.effect is Effect.DELETE:
            return first.matched is None or len(self.branches) == 1
        return first.effect is Effect.PUT and first.matched is None and self.always and not _reads_row(first)


@dataclass(frozen=True)
class Writer:
    """One statement of a group, by its position in the file. Without an `action` it does not find its rows by key, for
    the given `reason`: it is run on the events whose positions `events` returns (on all if None), in runs between the
    events of other statements, or `one_by_one`."""

    index: int
    action: Action | None = None
    reason: str = ""
    one_by_one: bool = False
    events: exp.Query | None = None


@dataclass(frozen=True)
class ChangeGroup:
    """The statements of a flow that change one table together: each event is applied by all of them before the next."""

    table: str
    writers: tuple[Writer, ...]

    @property
    def by_key(self) -> bool:
        """Whether all of them find their rows by key, so that a batch is applied in one fold."""
        return all(writer.action is not None for writer in self.writers)


def _reads_row(branch: Branch) -> bool:
    columns = (c for value in branch.values.values() for c in value.find_all(exp.Column))
    return any(column.table == ROW for column in columns)
