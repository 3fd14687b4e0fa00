"""postgresql:// as a source: its options and how it is opened."""

from __future__ import annotations

from typing import TYPE_CHECKING

from millpond.contracts.source import Mode, Patience, SourcePlugin, SourceSpec
from millpond.databases.address import completed, set_by
from millpond.databases.options import CAPTURE, CONNECTION, LOOKUP, PACE, PARAMETERS, READING, captured
from millpond.databases.postgresql.connection import SCHEME
from millpond.options import TEXT
from millpond.sources.databases.lookup import DatabaseKeys
from millpond.sources.databases.plugin import looks_up, notes, sent_by, unseen
from millpond.sources.databases.plugin import validate as validate_any
from millpond.sources.databases.postgresql.changes import PostgresChanges, capture_group, left_behind, wrong_start
from millpond.sources.databases.postgresql.tables import DIALECT, PostgresServer
from millpond.sources.databases.table import DatabaseTable, catalog_columns

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


PLUGIN = SourcePlugin(
    name=SCHEME,
    options=OPTIONS,
    stream_mode=Mode.SNAPSHOT,
    table_mode=Mode.SNAPSHOT,
    parameters=PARAMETERS,
    open_table=lambda spec: DatabaseTable(spec, PostgresServer),
    open_keys=lambda spec: DatabaseKeys(spec, PostgresServer),
    looks_up=looks_up,
    sample=lambda spec, spark: catalog_columns(spec, PostgresServer),
    has_catalog=True,
    watched=lambda values: values["poll.interval"] is not None,
    captures=lambda values: bool(values["cdc"]),
    pace=PACE,
    patience=Patience.with_a_server,
    validate=validate,
    capture_group=capture_group,
    open_changes=PostgresChanges,
    left_behind=left_behind,
    set_by=set_by,
    located=lambda uri, given, named: completed(SCHEME, uri, given, named),
    sent=lambda spec: sent_by(spec, DIALECT),
    unseen=unseen,
    notes=notes,
)
