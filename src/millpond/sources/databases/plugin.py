"""The plug-in of a database: what all have in common, with the checks of their options and what explain shows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from millpond.contracts.source import Mode, Patience, SourcePlugin, SourceSpec
from millpond.databases.address import wrong_address
from millpond.databases.options import PACE, PARAMETERS
from millpond.databases.sql_text import Dialect, Selection, bound, shown
from millpond.options import Option
from millpond.sources.databases.lookup import DatabaseKeys
from millpond.sources.databases.table import DatabaseTable, OpenServer, catalog_columns

# What restricts the rows that are read, but not the changes that are captured.
UNCAPTURED = ("order.by", "limit")


def database_source(
    scheme: str, options: tuple[Option, ...], open_server: OpenServer, dialect: Dialect
) -> SourcePlugin:
    """A database whose tables and queries are loaded, and compared when they are read again."""
    return SourcePlugin(
        name=scheme,
        options=options,
        stream_mode=Mode.SNAPSHOT,
        table_mode=Mode.SNAPSHOT,
        parameters=PARAMETERS,
        open_table=lambda spec: DatabaseTable(spec, open_server),
        sample=lambda spec, spark: catalog_columns(spec, open_server),
        has_catalog=True,
        watched=lambda values: values["poll.interval"] is not None,
        pace=PACE,
        patience=Patience.with_a_server,
        validate=validate,
        sent=lambda spec: sent_by(spec, dialect),
        unseen=unseen,
        notes=notes,
    )


def with_lookups(plugin: SourcePlugin, open_server: OpenServer) -> SourcePlugin:
    """The same for a database that can be asked for the rows of keys."""
    return replace(plugin, looks_up=looks_up, open_keys=lambda spec: DatabaseKeys(spec, open_server))


def validate(spec: SourceSpec) -> str | None:
    """What is wrong with a URI or its options, as a sentence."""
    values = spec.values
    wrong = wrong_address(spec.uri, values)
    if wrong is not None:
        return wrong
    if values.get("query"):
        bound(spec)
    elif values.get("query.params") is not None:
        return "'query.params' are the values of a query; a table has none."
    if values.get("poll.query") and not values.get("incremental.column"):
        return "'poll.query' needs 'incremental.column': its `?` is the last value of that column."
    if values.get("load") == "lookup" and values.get("cdc"):
        return "'load' = 'lookup' loads nothing, so there is nothing to follow with 'cdc'."
    if values.get("cdc") and values.get("incremental.column"):
        return "'incremental.column' is for polling; with 'cdc' every change is captured."
    if values.get("cdc") and values.get("query"):
        return "The changes of a query cannot be captured: name a table."
    if values.get("cdc") and values.get("initial.load") == "full" and values["cdc.start"] not in ("initial", "latest"):
        return "'initial.load' = 'full' begins with the rows as they are now, not at a position of the log."
    readers, size = values.get("parallel.readers", 1), values.get("pool.size")
    if readers > 1 and size is not None and size <= readers:
        return f"'parallel.readers' = '{readers}' needs {readers + 1} connections, but 'pool.size' is {size}."
    unfit = next((name for name in UNCAPTURED if values.get("cdc") and values.get(name) is not None), None)
    if unfit is not None:
        return f"'{unfit}' is not for captured changes: write it into the SELECT, which is evaluated here."
    return None


def sent_by(spec: SourceSpec, dialect: Dialect) -> str:
    """The query that is sent, as far as it is known without the catalog."""
    if spec.values.get("load") == "lookup":
        return "a query for the keys of each batch, through the cache"
    return shown(Selection(spec, dialect, spec.columns).statement())


def unseen(spec: SourceSpec) -> str | None:
    """What a table does not see because of its options."""
    column = spec.values.get("incremental.column")
    if column is None:
        return None
    return f"Deleted rows of '{spec.shown}' are not noticed: only rows at or above the last '{column}' are read."


def notes(spec: SourceSpec) -> tuple[str, ...]:
    """What changes are not captured, as a sentence for the user."""
    column, interval_us = spec.values.get("incremental.column"), spec.values.get("poll.interval")
    if spec.values.get("load") == "lookup":
        return (_freshness(spec),)
    if spec.values.get("cdc"):
        return ("follows every change",)
    if column is not None:
        return (f"after the first load only rows at or above the last '{column}' are read: deletes are not seen",)
    if interval_us is None:
        return ("read again at each start only",)
    return (f"read again and compared every {interval_us / 1e6:g} s",)


def _freshness(spec: SourceSpec) -> str:
    """How old looked-up rows may be."""
    if not spec.values.get("cache.max_size"):
        return "rows are as new as the database when a batch looks them up"
    ttl_s, absent_s = (spec.values[name] / 1e6 for name in ("cache.ttl", "cache.negative.ttl"))
    return f"rows are as new as the cache allows: up to {ttl_s:g} s old, missing ones up to {absent_s:g} s"


def looks_up(values: Mapping[str, Any]) -> bool:
    """Whether rows are looked up instead of loaded."""
    return values.get("load") == "lookup"
