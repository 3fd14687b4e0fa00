"""Rows that were asked for by key lately, as dicts, so that asking again costs a few dictionary lookups."""

from __future__ import annotations

from typing import Any

ROWS_MAX = 65_536


class HotRows:
    """Row number and dict by key. Two halves: what is not asked for while one half fills up is dropped with the other.
    A row's content never changes under its number, so an entry is right for every version that has the row."""

    def __init__(self) -> None:
        self._young: dict[Any, tuple[int, dict[str, Any]]] = {}
        self._old: dict[Any, tuple[int, dict[str, Any]]] = {}

    def get(self, key: Any) -> tuple[int, dict[str, Any]] | None:
        entry = self._young.get(key)
        if entry is None:
            entry = self._old.get(key)
            if entry is not None:
                self.put(key, *entry)
        return entry

    def put(self, key: Any, row: int, values: dict[str, Any]) -> None:
        if len(self._young) >= ROWS_MAX // 2:
            self._old, self._young = self._young, {}
        self._young[key] = (row, values)
