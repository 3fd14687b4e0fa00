"""Which column of a schema a written name means."""

from __future__ import annotations

from collections.abc import Mapping
from difflib import get_close_matches

from sqlglot import exp

from millpond.errors import BindError
from millpond.schema import Column, Schema

# Relation name or alias in lower case -> column name in lower case -> the column's name in the schema.
Names = Mapping[str, Mapping[str, str]]


def resolve(reference: exp.Column, schema: Schema, names: Names | None) -> tuple[Column, tuple[str, ...]]:
    """The column, and the struct fields that are read from it."""
    parts = [part.name for part in reference.parts]
    relation = (names or {}).get(parts[0].lower())
    if relation is not None and len(parts) > 1 and parts[1].lower() in relation:
        return schema[relation[parts[1].lower()]], tuple(parts[2:])
    found = schema.get(parts[0])
    if found is not None:
        return found, tuple(parts[1:])
    raise _no_such_column(".".join(parts), parts[-1], schema)


def _no_such_column(written: str, last: str, schema: Schema) -> BindError:
    close = get_close_matches(last.lower(), [n.lower() for n in schema.names], n=1)
    best = schema[close[0]].name if close else ""
    hint = f"Did you mean '{best}'?" if best else f"The columns are {', '.join(schema.names)}."
    return BindError("MP202", f"There is no column '{written}'.", hint=hint)
