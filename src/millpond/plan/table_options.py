"""Options of a table that only make sense together, or not at all with some of the others."""

from __future__ import annotations

from collections.abc import Sequence

from millpond.contracts.table import TableSpec
from millpond.plan.findings import Findings
from millpond.sql.statements import OptionEntry

# Handed to the store with the values of the backend, in front of which the cache is.
READ_THROUGH = ("cache.max_size", "cache.ttl")
_SIZES = ("max_size", "cache.max_size")


def check_options(spec: TableSpec, entries: Sequence[OptionEntry], findings: Findings) -> None:
    """MP302, MP303 and MP305 for values that would do nothing or cannot be."""
    for entry in entries:
        if entry.name in _SIZES and spec.values.get(entry.name) == 0:
            message = f"Option '{entry.name}' cannot be '{entry.value}': nothing would ever be kept."
            findings.error("MP302", message, entry.value_place, "It takes a whole number of rows, at least 1.")
        elif entry.name == "spill" and spec.values.get("spill") and spec.values.get("max_memory") is None:
            message = f"Table '{spec.name}' may spill, but nothing says when: 'max_memory' is missing."
            findings.error("MP305", message, entry.place, "Add how much it may keep in memory: 'max_memory' = '512MB'.")
        elif entry.name in READ_THROUGH:
            _check_cache(spec, entry, findings)


def _check_cache(spec: TableSpec, entry: OptionEntry, findings: Findings) -> None:
    if spec.backend == "cache":
        message = f"'{entry.name}' puts a cache in front of a table, but '{spec.name}' is one itself."
        hint = f"Write '{entry.name.removeprefix('cache.')}', the table's own option."
        findings.error("MP303", message, entry.place, hint)
    elif spec.schema.columns and not spec.schema.key:
        message = f"'{entry.name}' keeps rows by their key, but '{spec.name}' has no PRIMARY KEY."
        findings.error("MP303", message, entry.place, "Declare a PRIMARY KEY, or leave the option out.")
