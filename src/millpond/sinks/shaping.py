"""Which columns of a row become the key, the headers and the value of its message."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from millpond.errors import SinkError

# Formats without names, in which a value is one column: what is the key is then not the value.
BARE = ("raw", "text", "bytes")


@dataclass(frozen=True)
class Parts:
    """Names of columns. The value has the key's too, except where it can be one column only."""

    key: list[str]
    headers: list[str]
    value: list[str]


def parts_of(values: Mapping[str, Any], columns: Sequence[str]) -> Parts:
    """By the sink's options; MP601 where the columns do not fit them."""
    key, headers = (_named(values[option], columns, option) for option in ("key", "headers"))
    value = [name for name in columns if name not in headers]
    if values["format"] in BARE and len(value) > 1:
        value = [name for name in value if name not in key]
    if values["format"] in BARE and len(value) != 1:
        message = f"A message of the format '{values['format']}' is one column, and the query yields {len(value)}."
        raise SinkError("MP601", message, hint="Select one column beside key and headers, or use 'format' = 'json'.")
    return Parts(key, headers, value)


def _named(names: Sequence[str] | None, columns: Sequence[str], option: str) -> list[str]:
    found = {name.lower(): name for name in columns}
    for name in names or ():
        if name.lower() not in found:
            message = f"'{option}' names '{name}', which the query does not yield."
            raise SinkError("MP601", message, hint=f"It yields: {', '.join(found.values())}.")
    return [found[name.lower()] for name in names or ()]
