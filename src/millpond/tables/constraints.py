"""CHECK constraints. A row violates one if its expression is FALSE; NULL is accepted."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from sqlglot import exp

from millpond.errors import ConstraintError
from millpond.schema import Check, Schema
from millpond.tables.selection import parsed

# Evaluates an expression over rows: one value per row.
Evaluate = Callable[[exp.Expression, pa.Table], pa.Array]
# A message lists at most this many rows that violate a new constraint.
NAMED_MAX = 3


def breaking(check: Check, rows: pa.Table, evaluate: Evaluate) -> npt.NDArray[np.int64]:
    """The positions of the rows that violate a constraint."""
    if not rows.num_rows:
        return np.empty(0, np.int64)
    held = evaluate(check_expression(check), rows)
    broken = pc.fill_null(pc.invert(held), False)
    return np.flatnonzero(np.asarray(broken.to_numpy(zero_copy_only=False), bool)).astype(np.int64)


def check_expression(check: Check) -> exp.Expression:
    """The condition of a constraint, over columns of the row."""
    return parsed(check.text).expression


def require_checks(table: str, schema: Schema, rows: pa.Table, evaluate: Evaluate) -> None:
    """MP413 if a row violates a constraint."""
    for check in schema.checks:
        found = breaking(check, rows, evaluate)
        if len(found):
            row = shown_row(schema, rows, int(found[0]))
            raise ConstraintError("MP413", broken_message(table, check, row), hint="Nothing was changed.")


def breaks(check: Check) -> str:
    """The reason of a dead letter."""
    return f"the row violates the constraint '{check.name}': CHECK ({check.shown})"


def broken_message(table: str, check: Check, row: str) -> str:
    """The message for a row that violates a constraint."""
    return f"The row {row} violates the constraint '{check.name}' of '{table}': CHECK ({check.shown})."


def require_kept(table: str, schema: Schema, old: Sequence[Check], rows: pa.Table, evaluate: Evaluate) -> None:
    """MP413 if existing rows violate a new constraint."""
    for check in (c for c in schema.checks if c not in old):
        found = breaking(check, rows, evaluate)
        if len(found):
            named = "; ".join(shown_row(schema, rows, int(n)) for n in found[:NAMED_MAX])
            more = ", ..." if len(found) > NAMED_MAX else ""
            count = f"{len(found)} row{'s' if len(found) != 1 else ''}"
            message = (
                f"{count} of '{table}' violate the new constraint '{check.name}', CHECK ({check.shown}): {named}{more}."
            )
            hint = "Change or delete these rows before you add the constraint; nothing was changed."
            raise ConstraintError("MP413", message, hint=hint)


def shown_row(schema: Schema, rows: pa.Table, position: int) -> str:
    """A row for messages: its key, or all columns if there is none."""
    names = list(schema.key or schema.names)
    row = rows.select(names).slice(position, 1).to_pylist()[0]
    return ", ".join(f"{name} = {value!r}" for name, value in row.items())
