"""What statements of a stream do to the rows of a table, event by event: plain data for explain and the runtime."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from sqlglot import exp

# In the expressions of a branch: the row as the events before left it, and what the event brings.
ROW, EVENT = "a", "e"
# A column of ROW: whether the row exists. The others are NULL while it does not.
HERE = "__mp_here"


class Effect(StrEnum):
    """What becomes of the row of a key."""

    PUT = "put"  # it has these values in all of its columns from now on, whether it existed or not
    SET = "set"  # some columns of it have other values
    DELETE = "delete"


@dataclass(frozen=True)
class Branch:
    """One possibility. It holds where the row exists (`matched`), does not (False) or either (None), and `condition`
    over ROW and EVENT is true. `values` of PUT has every column of the table, that of SET some, none of the key."""

    effect: Effect
    matched: bool | None = None
    condition: exp.Expr | None = None
    values: Mapping[str, exp.Expr] = field(default_factory=dict)


@dataclass(frozen=True)
class Action:
    """What a statement does to the row of a key; the first branch that holds is taken. `items`, over BATCH and tables
    other than the target, yields for each event that matters the target's `columns`, those of the key among them, and
    what else the branches read of it, under the names `extra`. `always`: every item is taken, so that one that
    breaks a rule can be rejected before it meets its row."""

    items: exp.Query
    columns: tuple[str, ...]
    extra: tuple[str, ...]
    branches: tuple[Branch, ...]
    always: bool = False

    @property
    def resets(self) -> bool:
        """Whether the row after an item has nothing to do with the row before it."""
        first = self.branches[0]
        if first.condition is not None or first.matched is False:
            return False
        if first.effect is Effect.DELETE:
            return first.matched is None or len(self.branches) == 1
        return first.effect is Effect.PUT and first.matched is None and self.always and not _reads_row(first)


@dataclass(frozen=True)
class Writer:
    """One statement of a group, by its place in the file. Without an `action` it finds its rows by something else than
    their key, for the `reason`: it is run on the events whose places `events` yields (on all, where that is None), as
    many together as come between those of other statements, or `one_by_one`."""

    index: int
    action: Action | None = None
    reason: str = ""
    one_by_one: bool = False
    events: exp.Query | None = None


@dataclass(frozen=True)
class ChangeGroup:
    """The statements of a flow that change one table together: each event goes through all of them before the next."""

    table: str
    writers: tuple[Writer, ...]

    @property
    def by_key(self) -> bool:
        """Whether all of them find their rows by key, so that a batch is one fold."""
        return all(writer.action is not None for writer in self.writers)


def _reads_row(branch: Branch) -> bool:
    columns = (c for value in branch.values.values() for c in value.find_all(exp.Column))
    return any(column.table == ROW for column in columns)
