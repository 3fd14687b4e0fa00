"""mysql:// and mariadb:// as a source: its options and how it is opened."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from millpond.contracts.source import SourceSpec
from millpond.databases.address import completed, set_by
from millpond.databases.mysql.connection import SCHEME
from millpond.databases.options import CAPTURE, CONNECTION, LOOKUP, READING, WORD, captured
from millpond.errors import OptionError
from millpond.options import TEXT, whole
from millpond.sources.databases.mysql.changes import MysqlChanges, capture_group
from millpond.sources.databases.mysql.tables import DIALECT, MysqlServer
from millpond.sources.databases.plugin import database_source, with_lookups
from millpond.sources.databases.plugin import validate as validate_any
from millpond.uris import Uri

NOT_READ = ("parallel.readers", "max.rows.per.batch")
SERVER_ID = whole(1, 2**32 - 1, "a number, 1 to 4294967295")
OPTIONS = (
    *CONNECTION,
    *(option for option in READING if option.name not in NOT_READ),
    *LOOKUP,
    *CAPTURE,
    captured("binlog.file", TEXT, None, "The file of the log in which capture starts, without the existing rows."),
    captured("binlog.position", WORD, "auto", "The position in that file; auto: where the snapshot is."),
    captured("server.id", SERVER_ID, None, "The number by which the server identifies the app; by default chosen."),
)
# The first event of a file of the log.
FILE_BEGIN = 4
START = re.compile(r"initial|latest|[^:,]+\.\d+:\d+|\d+-\d+-\d+(,\d+-\d+-\d+)*|[0-9a-f-]{36}(:\d+(-\d+)?)+(,.*)?", re.I)


def located(uri: Uri, given: Mapping[str, Any], named: Mapping[str, str]) -> dict[str, Any]:
    """The values with those of the URI. A file and a position of the log are where capture starts."""
    values = completed(SCHEME, uri, given, named)
    file = values.get("binlog.file")
    if file is None:
        return values
    if "cdc.start" in given:
        hint = "'binlog.file' sets it too: keep one of them."
        raise OptionError("MP306", "Option 'cdc.start' is given twice.", hint=hint)
    offset = str(values.get("binlog.position", "auto"))
    return {**values, "cdc.start": f"{file}:{FILE_BEGIN if offset == 'auto' else offset}"}


def validate(spec: SourceSpec) -> str | None:
    values = spec.values
    if values["cdc"] and not values["binlog.file"] and values["binlog.position"] != "auto":
        return "'binlog.position' is a position in 'binlog.file': name that too."
    if values["cdc"] and not START.fullmatch(str(values["cdc.start"]).strip()):
        return "'cdc.start' is initial, latest, a position such as binlog.000012:4, or the GTIDs behind which to start."
    return validate_any(spec)


PLUGIN = replace(
    with_lookups(database_source(SCHEME, OPTIONS, MysqlServer, DIALECT), MysqlServer),
    captures=lambda values: bool(values["cdc"]),
    validate=validate,
    capture_group=capture_group,
    open_changes=MysqlChanges,
    set_by=set_by,
    located=located,
)
