"""postgresql:// as a source: its options and how it is opened."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from millpond.contracts.source import SourceSpec
from millpond.databases.address import completed, set_by
from millpond.databases.options import CAPTURE, CONNECTION, LOOKUP, READING, captured
from millpond.databases.postgresql.connection import SCHEME
from millpond.options import TEXT
from millpond.sources.databases.plugin import database_source, with_lookups
from millpond.sources.databases.plugin import validate as validate_any
from millpond.sources.databases.postgresql.changes import PostgresChanges, capture_group, left_behind, wrong_start
from millpond.sources.databases.postgresql.tables import DIALECT, PostgresServer

if TYPE_CHECKING:
    pass

OPTIONS = (
    *CONNECTION,
    *READING,
    *LOOKUP,
    *CAPTURE,
    captured("slot.name", TEXT, None, "The replication slot of the capture; by default one per app and database."),
    captured("publication.name", TEXT, None, "The publication of the capture; by default one per app and database."),
)


def validate(spec: SourceSpec) -> str | None:
    wrong = wrong_start(spec.values) if spec.values["cdc"] else None
    return validate_any(spec) or wrong


PLUGIN = replace(
    with_lookups(database_source(SCHEME, OPTIONS, PostgresServer, DIALECT), PostgresServer),
    captures=lambda values: bool(values["cdc"]),
    validate=validate,
    capture_group=capture_group,
    open_changes=PostgresChanges,
    left_behind=left_behind,
    set_by=set_by,
    located=lambda uri, given, named: completed(SCHEME, uri, given, named),
)
