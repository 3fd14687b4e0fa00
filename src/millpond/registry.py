"""Plug-ins by name, imported on first use; a wrong name gets a suggestion, a missing package an install hint."""

from __future__ import annotations

import importlib
from dataclasses import dataclass
from typing import Any

from millpond.errors import OptionError, Place, SetupError
from millpond.suggest import did_you_mean


@dataclass(frozen=True)
class Registration:
    """Where a plug-in lives; `install` is the command that brings what it needs."""

    kind: str
    name: str
    module: str
    attribute: str
    install: str = ""


_REGISTERED: dict[tuple[str, str], Registration] = {}

# One line per plug-in: adding a source, sink or backend is its module and a line here.
BUILT_IN = (
    Registration("source", "file", "millpond.sources.file", "PLUGIN"),
    Registration("source", "generate", "millpond.sources.generate", "PLUGIN"),
    Registration("source", "kafka", "millpond.sources.kafka", "PLUGIN", "millpond doctor --install kafka"),
    Registration("source", "memory", "millpond.sources.memory", "PLUGIN"),
    Registration("source", "postgresql", "millpond.sources.later", "POSTGRESQL"),
    Registration("source", "mysql", "millpond.sources.later", "MYSQL"),
    Registration("source", "clickhouse", "millpond.sources.later", "CLICKHOUSE"),
    Registration("source", "sql", "millpond.sources.later", "SQL"),
    Registration("source", "http", "millpond.sources.later", "HTTP"),
    Registration("source", "s3", "millpond.sources.later", "S3"),
    Registration("sink", "file", "millpond.sinks.file", "PLUGIN"),
    Registration("sink", "terminal", "millpond.sinks.terminal", "PLUGIN"),
    Registration("sink", "kafka", "millpond.sinks.kafka", "PLUGIN", "millpond doctor --install kafka"),
    Registration("backend", "memory", "millpond.tables.memory", "PLUGIN"),
    Registration("backend", "cache", "millpond.tables.cache", "PLUGIN"),
    Registration("backend", "sqlite", "millpond.tables.sqlite", "PLUGIN"),
)

# Other spellings of a scheme.
SCHEME_ALIASES = {"postgres": "postgresql", "mariadb": "mysql", "https": "http", "s3a": "s3"}


def register(registration: Registration) -> None:
    """Add a plug-in; a later one of the same kind and name replaces the earlier."""
    _REGISTERED[registration.kind, registration.name] = registration


def names(kind: str) -> tuple[str, ...]:
    """The names of a kind, in the order of registration."""
    return tuple(name for of_kind, name in _REGISTERED if of_kind == kind)


def find(kind: str, name: str, place: Place | None = None) -> Any:
    """The plug-in of this name, imported now if it was not; MP308 for a wrong name, MP309 when a package is missing."""
    wanted = name.lower()
    if kind in ("source", "sink"):
        wanted = SCHEME_ALIASES.get(wanted, wanted)
    registration = _REGISTERED.get((kind, wanted))
    if registration is None:
        known = names(kind)
        hint = did_you_mean(name, known) or f"There are: {', '.join(known)}."
        raise OptionError("MP308", f"There is no {kind} '{name}'.", place=place, hint=hint)
    try:
        module = importlib.import_module(registration.module)
    except ModuleNotFoundError as error:
        hint = f"Run: {registration.install}" if registration.install else "Install that package."
        message = f"The {kind} '{name}' needs the package '{error.name}', which is not installed."
        raise SetupError("MP309", message, place=place, hint=hint) from error
    return getattr(module, registration.attribute)


for _built_in in BUILT_IN:
    register(_built_in)
