"""`${NAME}` and `${NAME:-default}`: where a variable stands and what it is replaced by."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

_REFERENCE = re.compile(r"\$\{(?P<name>[A-Za-z_][A-Za-z0-9_.]*)(?::-(?P<default>[^}]*))?\}")


@dataclass(frozen=True)
class Variable:
    """One reference: the offsets of the whole of it, and its value or None when it has none."""

    name: str
    start: int
    end: int
    value: str | None


def variable_at(text: str, offset: int, values: Mapping[str, str]) -> Variable | None:
    """The variable that starts at `offset`, if one does."""
    found = _REFERENCE.match(text, offset)
    if not found:
        return None
    return Variable(found["name"], found.start(), found.end(), values.get(found["name"], found["default"]))
