"""The registry of plug-ins: sources, sinks and backends by name, each imported on first use.

Beside those that are built in or registered by a program, there are the plug-ins of installed packages: a package names
its own under the entry points `millpond.sources`, `millpond.sinks` and `millpond.backends`.
"""

from __future__ import annotations

import importlib
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from importlib.metadata import entry_points
from typing import TYPE_CHECKING, Any, Literal, overload

from millpond.errors import MillpondError, OptionError, Place, SetupError, did_you_mean

if TYPE_CHECKING:
    from millpond.contracts.server import MakeServer, Served
    from millpond.contracts.sink import SinkPlugin
    from millpond.contracts.source import SourcePlugin
    from millpond.contracts.table import BackendPlugin


@dataclass(frozen=True)
class Registration:
    """Where a plug-in is defined; `install` is the command that installs what it requires."""

    kind: str
    name: str
    module: str
    attribute: str
    install: str = ""
    # The installed package that brings it; none for those that are built in or registered by a program.
    package: str = ""


# The entry points by which installed packages bring plug-ins.
GROUPS = {"source": "millpond.sources", "sink": "millpond.sinks", "backend": "millpond.backends"}

_REGISTERED: dict[tuple[str, str], Registration] = {}

# Import on first use keeps the start fast: an app pays only for the connectors that it uses.
BUILT_IN = (
    Registration("source", "file", "millpond.sources.files.source", "PLUGIN"),
    Registration("source", "generate", "millpond.sources.generate", "PLUGIN"),
    Registration("source", "kafka", "millpond.sources.kafka.source", "PLUGIN", "millpond doctor --install kafka"),
    Registration("source", "memory", "millpond.sources.memory", "PLUGIN"),
    Registration("source", "postgresql", "millpond.sources.databases.postgresql.source", "PLUGIN"),
    Registration("source", "mysql", "millpond.sources.databases.mysql.source", "PLUGIN"),
    Registration("source", "clickhouse", "millpond.sources.databases.clickhouse", "PLUGIN"),
    Registration("source", "sql", "millpond.sources.databases.sqlalchemy", "PLUGIN"),
    Registration("source", "http", "millpond.sources.http.source", "PLUGIN"),
    Registration("source", "webhook", "millpond.sources.webhook.source", "PLUGIN"),
    Registration("source", "s3", "millpond.sources.s3", "PLUGIN", "pip install 'millpond[s3]'"),
    Registration("sink", "file", "millpond.sinks.file", "PLUGIN"),
    Registration("sink", "s3", "millpond.sinks.s3", "PLUGIN", "pip install 'millpond[s3]'"),
    Registration("sink", "terminal", "millpond.sinks.terminal", "PLUGIN"),
    Registration("sink", "postgresql", "millpond.sinks.databases.postgresql", "PLUGIN"),
    Registration("sink", "mysql", "millpond.sinks.databases.mysql", "PLUGIN"),
    Registration("sink", "clickhouse", "millpond.sinks.databases.clickhouse", "PLUGIN"),
    Registration("sink", "sql", "millpond.sinks.databases.sqlalchemy", "PLUGIN"),
    Registration("sink", "kafka", "millpond.sinks.kafka", "PLUGIN", "millpond doctor --install kafka"),
    Registration("backend", "memory", "millpond.tables.memory", "PLUGIN"),
    Registration("backend", "cache", "millpond.tables.cache", "PLUGIN"),
    Registration("backend", "lookup", "millpond.tables.lookup", "PLUGIN"),
    Registration("backend", "sqlite", "millpond.tables.sqlite.backend", "PLUGIN"),
    Registration("backend", "postgresql", "millpond.tables.postgresql", "PLUGIN"),
    Registration("backend", "mysql", "millpond.tables.mysql", "PLUGIN"),
    Registration("backend", "redis", "millpond.tables.redis", "PLUGIN"),
    Registration("backend", "mongodb", "millpond.tables.mongodb", "PLUGIN"),
    Registration("backend", "delta", "millpond.tables.delta.backend", "PLUGIN"),
    Registration("server", "http", "millpond.serve.server", "AppServer"),
)

# Other spellings of a scheme.
SCHEME_ALIASES = {"postgres": "postgresql", "mariadb": "mysql", "https": "http", "s3a": "s3"}


def register(registration: Registration) -> None:
    """Add a plug-in; a later one of the same kind and name replaces the earlier."""
    _REGISTERED[registration.kind, registration.name] = registration


def names(kind: str) -> tuple[str, ...]:
    """The names of a kind: those of installed packages last."""
    own = [name for of_kind, name in _REGISTERED if of_kind == kind]
    return tuple(dict.fromkeys([*own, *_installed(kind)]))


def registration_of(kind: str, name: str) -> Registration | None:
    """Where a plug-in lives; no package replaces one that is built in or was registered."""
    wanted = name.lower()
    if kind in ("source", "sink", "backend"):
        wanted = SCHEME_ALIASES.get(wanted, wanted)
    return _REGISTERED.get((kind, wanted)) or _installed(kind).get(wanted)


@cache
def _installed(kind: str) -> dict[str, Registration]:
    """The plug-ins of installed packages; their modules are not imported yet."""
    found: dict[str, Registration] = {}
    for point in entry_points(group=GROUPS[kind]):
        package = point.dist.name if point.dist is not None else ""
        made = Registration(kind, point.name.lower(), point.module, point.attr or "PLUGIN", package=package)
        found.setdefault(made.name, made)
    return found


def import_all() -> None:
    """Import every source, sink and backend that can be imported, which declares their options."""
    for kind in GROUPS:
        for name in names(kind):
            with suppress(MillpondError):
                find(kind, name)


@overload
def find(kind: Literal["source"], name: str, place: Place | None = None) -> SourcePlugin: ...
@overload
def find(kind: Literal["sink"], name: str, place: Place | None = None) -> SinkPlugin: ...
@overload
def find(kind: Literal["backend"], name: str, place: Place | None = None) -> BackendPlugin: ...
@overload
def find(kind: str, name: str, place: Place | None = None) -> SourcePlugin | SinkPlugin | BackendPlugin: ...
def find(kind: str, name: str, place: Place | None = None) -> object:
    """The plug-in of this name, imported on first use; MP308 for an unknown name, MP309 if a package is missing or
    cannot be imported."""
    return _loaded(kind, name, place)


def _loaded(kind: str, name: str, place: Place | None) -> Any:
    registration = registration_of(kind, name)
    if registration is None:
        known = names(kind)
        hint = did_you_mean(name, known) or f"Available: {', '.join(known)}."
        raise OptionError("MP308", f"There is no {kind} '{name}'.", place=place, hint=hint)
    try:
        return getattr(importlib.import_module(registration.module), registration.attribute)
    except ModuleNotFoundError as error:
        hint = f"Run: {registration.install}" if registration.install else "Install that package."
        message = f"The {kind} '{name}' requires the package '{error.name}', which is not installed."
        raise SetupError("MP309", message, place=place, hint=hint) from error
    except Exception as error:
        if not registration.package:
            raise
        message = f"The {kind} '{name}' of the package '{registration.package}' cannot be loaded: {error}."
        raise SetupError("MP309", message, place=place, hint="Repair that package, or uninstall it.") from error


def find_server(app: type[Served], name: str = "http") -> MakeServer[Served]:
    """The class that serves apps of this class; imported on first use like every plug-in."""
    made: MakeServer[Served] = _loaded("server", name, None)
    return made


for _built_in in BUILT_IN:
    register(_built_in)
