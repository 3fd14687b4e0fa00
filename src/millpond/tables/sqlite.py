"""The SQLite backend: understood and checked; it cannot run yet."""

from __future__ import annotations

from millpond.contracts.table import BackendPlugin, Capabilities
from millpond.options import TEXT, Option

PLUGIN = BackendPlugin(
    name="sqlite",
    options=(Option("path", TEXT, None, "The database file."),),
    capabilities=Capabilities(outside=True),
    help="Rows in a SQLite file.",
    runnable=False,
)
