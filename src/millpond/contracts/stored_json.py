"""JSON values: what is stored for a plug-in in the commit log and in journals, and returned to it after a restart."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

Json: TypeAlias = "bool | int | float | str | Sequence[Json] | Mapping[str, Json] | None"
JsonObject: TypeAlias = "dict[str, Json]"
# The same value when it is read again. Only who stored it interprets it, and so determines its type.
StoredJson: TypeAlias = Any
