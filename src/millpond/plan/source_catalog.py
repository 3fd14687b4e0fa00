"""The catalog of sources that a file reads: each URI with its options once, with declared or discovered columns."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pyarrow as pa

from millpond import registry
from millpond.contracts.change_stream import stream_hidden, streams_changes
from millpond.contracts.source import DELETED, IDENTITY, ORDER_MAJOR, ORDER_MINOR, Found, Mode, SourcePlugin, SourceSpec
from millpond.errors import MillpondError, Place, did_you_mean
from millpond.options import Option, complete, find_option, useless
from millpond.plan.findings import Findings
from millpond.plan.model import SourcePlan
from millpond.schema import Column, Schema
from millpond.settings import Settings
from millpond.sql.statements import OptionEntry, Watermark
from millpond.sql.text import with_variables
from millpond.uris import Uri, parse_uri

Discover = Callable[[SourcePlugin, SourceSpec], Found]
# Options of captured changes that only tables, or only streams, have: the name, what the others are, and a hint.
OF_TABLES, OF_STREAMS = ("cdc.fallback", "fail", "It is for tables."), ("cdc.format", "native", "It is for streams.")


@dataclass(frozen=True)
class Surroundings:
    """The environment of planning: the SQL file's folder, environment variables, and the function that discovers
    columns."""

    base: Path
    environment: Mapping[str, str]
    discover: Discover
    settings: Settings

    def complete(self, values: Mapping[str, Any], options: tuple[Option, ...]) -> dict[str, Any]:
        """The values, completed by environment, settings and defaults."""
        full = complete(values, options, self.environment)
        stand_ins = {o.name: self.settings.get(o.setting) for o in options if o.setting and full[o.name] is None}
        return {**full, **stand_ins}

    def connections(self) -> Mapping[str, str]:
        """The named connections; the variables in one of them are those of the environment, and must have values only
        if it is used."""
        return _Connections(self.settings.starting("connection."), self.environment)


class _Connections(Mapping[str, str]):
    def __init__(self, texts: Mapping[str, str], environment: Mapping[str, str]) -> None:
        self._texts, self._environment = texts, environment

    def __getitem__(self, name: str) -> str:
        return with_variables(self._texts[name], self._environment)

    def __iter__(self) -> Iterator[str]:
        return iter(self._texts)

    def __len__(self) -> int:
        return len(self._texts)


@dataclass(frozen=True)
class SourceRequest:
    """A source as a statement refers to it; `name` is the stream's name, if it has one."""

    uri: str
    place: Place
    entries: tuple[OptionEntry, ...] = ()
    name: str | None = None
    columns: Schema | None = None
    watermark: Watermark | None = None
    as_table: bool = False


@dataclass(frozen=True)
class Opened:
    """A planned source; `unseen` is the reason if its columns are unknown, else empty; `condition` is the 'where' of a
    captured table, of which all rows are captured."""

    plan: SourcePlan
    plugin: SourcePlugin
    unseen: str = ""
    condition: str | None = None


class Sources:
    """Collects sources; the same URI with the same options, columns and use is one source."""

    def __init__(self, surroundings: Surroundings, findings: Findings) -> None:
        self._surroundings = surroundings
        self._findings = findings
        self._opened: dict[str, Opened] = {}
        self._by_shape: dict[object, str] = {}

    def __getitem__(self, id_: str) -> Opened:
        return self._opened[id_]

    def __contains__(self, id_: object) -> bool:
        return id_ in self._opened

    def __iter__(self) -> Iterator[str]:
        return iter(self._opened)

    def plans(self) -> tuple[SourcePlan, ...]:
        return tuple(o.plan for o in self._opened.values())

    def open(self, request: SourceRequest) -> Opened | None:
        """The source of a request; None, with a finding, if its URI or options are invalid."""
        before = self._findings.errors
        uri = read_uri(request.uri, request.place, self._findings)
        plugin = find_source(uri, request.place, self._findings) if uri else None
        if uri is None or plugin is None:
            return None
        values = self._values(uri, plugin, request)
        if self._findings.errors > before:
            return None
        identity = _identity(uri, request, plugin)
        # If the same source is read at another pace too, the pace is part of the id.
        free = identity.id if identity.id not in self._opened else identity.id_with_pace
        id_ = self._by_shape.setdefault((identity.read, request.columns, _delay(request.watermark)), free)
        if id_ not in self._opened:
            self._opened[id_] = self._make(id_, uri, plugin, values, request)
        return self._opened[id_]

    def hold_key(self, id_: str, names: tuple[str, ...]) -> None:
        """Define these columns as those of the message key, because they are the key of a table; missing ones are
        added."""
        opened = self._opened[id_]
        found = opened.plan.columns
        if found is not None:
            added = [Column(name, pa.string()) for name in names if name not in found]
            found = Schema.of([*added, *found])
        spec = replace(opened.plan.spec, values={**opened.plan.spec.values, "key": names}, columns=found)
        self._opened[id_] = replace(opened, plan=replace(opened.plan, spec=spec, columns=found))

    def _values(self, uri: Uri, plugin: SourcePlugin, request: SourceRequest) -> dict[str, Any]:
        given = self._parameters(uri, plugin, request)
        for entry in request.entries:
            option = find_option(entry.name, plugin.options)
            if entry.name in given or entry.name in plugin.set_by(uri):
                report_twice(entry, self._findings)
            elif option is not None:
                read_into(given, option, entry, self._findings)
                self._warn_of_reset(entry)
        try:
            located = plugin.located(uri, given, self._surroundings.connections())
            values = self._surroundings.complete(located, plugin.options)
        except MillpondError as error:
            self._findings.catch(error, request.place)
            return given
        known = {**plugin.implied(uri), **{name: value for name, value in values.items() if value is not None}}
        report_without_effect(request.entries, {**values, **known}, plugin.options, self._findings)
        return values

    def _warn_of_reset(self, entry: OptionEntry) -> None:
        if entry.name == "auto.offset.reset" and entry.value.strip().lower() not in ("earliest", "latest"):
            message = f"Invalid value '{entry.value}' for option 'auto.offset.reset'; earliest is used."
            self._findings.warn("MP302", message, entry.value_place, "Write earliest or latest.")

    def _parameters(self, uri: Uri, plugin: SourcePlugin, request: SourceRequest) -> dict[str, Any]:
        values: dict[str, Any] = {}
        for name, text in () if plugin.sends_parameters else uri.params:
            wanted = plugin.parameters.get(name.lower())
            option = find_option(wanted, plugin.options) if wanted else None
            if wanted is None or option is None:
                known = list(plugin.parameters)
                near = did_you_mean(name, known)
                # A name that is not similar to any other may be part of a secret that contains & or ?.
                named = f"parameter '{name}'" if near else "such parameter"
                none = "It has no parameters; write a question mark in a path as %3F."
                hint = near or (f"Available: {', '.join(known)}." if known else none)
                message = f"The source '{plugin.name}' has no {named}."
                self._findings.error("MP301", message, request.place, hint)
                continue
            if wanted in values:
                message = f"Parameter '{name}' is given twice."
                self._findings.error("MP306", message, request.place, "Keep one of them.")
            try:
                values[wanted] = option.read(text, request.place)
            except MillpondError as error:
                self._findings.catch(error, request.place)
        return values

    def _make(
        self, id_: str, uri: Uri, plugin: SourcePlugin, values: Mapping[str, Any], request: SourceRequest
    ) -> Opened:
        mode = plugin.table_mode if request.as_table else plugin.stream_mode
        assert mode is not None, "the caller requests only modes that the plug-in has"
        is_changes = not request.as_table and streams_changes(plugin, values)
        mode = Mode.APPEND if is_changes else mode
        self._report_unfit_capture(plugin, request, is_changes=is_changes)
        declared = request.columns is not None
        condition = values.get("where") if streams_changes(plugin, values) else None
        if condition is not None:
            values = {**values, "where": None}
            if is_changes:
                hint = "Write it into the statement that reads the stream."
                self._findings.error("MP508", "'where' is not for a stream of changes.", request.place, hint)
        spec = SourceSpec(id_, uri, values, request.columns, self._surroundings.base, declared)
        sound = self._validate(plugin, spec, request.place)
        columns, unseen = self._columns(plugin, spec, request) if sound else (request.columns, "")
        plan = SourcePlan(
            id_,
            request.name or _shown_name(uri),
            plugin.name,
            mode,
            replace(spec, columns=columns),
            columns,
            plugin.hidden if request.as_table else stream_hidden(plugin, values, columns),
            declared,
            request.place,
        )
        # A source that is not supported yet gets no other findings.
        return Opened(plan, plugin, unseen if plugin.runnable else "", condition)

    def _report_unfit_capture(self, plugin: SourcePlugin, request: SourceRequest, *, is_changes: bool) -> None:
        """Options of captured changes that have no effect, because they are a table or a stream."""
        if plugin.open_changes is None:
            return
        unfit, usual, hint = OF_TABLES if is_changes else OF_STREAMS
        for entry in request.entries:
            if entry.name == unfit and entry.value.strip().lower() != usual:
                self._findings.error("MP303", f"Option '{unfit}' has no effect here.", entry.place, hint)

    def _validate(self, plugin: SourcePlugin, spec: SourceSpec, place: Place) -> bool:
        """Whether the source is valid, so that its columns may be discovered; errors are findings."""
        try:
            wrong = plugin.validate(spec) if plugin.validate else None
        except MillpondError as error:
            self._findings.catch(error, place)
            return False
        if wrong:
            self._findings.error("MP508", wrong, place)
            return False
        unseen = plugin.unseen(spec)
        if unseen is not None:
            self._findings.note("MP515", unseen, place)
        return True

    def _columns(self, plugin: SourcePlugin, spec: SourceSpec, request: SourceRequest) -> tuple[Schema | None, str]:
        if plugin.fixed is not None:
            return request.columns or plugin.fixed, ""
        try:
            found = self._surroundings.discover(plugin, spec)
        except MillpondError as error:
            self._findings.catch(error, request.place)
            return request.columns, ""
        if found.missing and plugin.local:
            detail = found.detail or "it does not exist yet"
            hint = "It must exist when the app runs."
            self._findings.warn("MP501", f"{spec.shown} does not exist: {detail.rstrip('.')}.", request.place, hint)
        if request.columns is not None:
            return request.columns, ""
        reason = found.detail or ("it does not exist yet" if found.missing else "it is empty")
        return found.columns, "" if found.columns is not None else reason.rstrip(".")


def read_uri(text: str, place: Place | None, findings: Findings) -> Uri | None:
    try:
        return parse_uri(text, place)
    except MillpondError as error:
        findings.catch(error, place)
        return None


def find_source(uri: Uri, place: Place | None, findings: Findings) -> SourcePlugin | None:
    """The plug-in of a URI's scheme; None, with a finding, if there is none."""
    try:
        return registry.find("source", uri.scheme, place)
    except MillpondError as error:
        findings.catch(error, place)
        return None


def read_into(values: dict[str, Any], option: Option, entry: OptionEntry, findings: Findings) -> None:
    """Parse one option's value into `values`; an invalid value is a finding."""
    try:
        values[entry.name] = option.read(entry.value, entry.value_place)
    except MillpondError as error:
        findings.catch(error, entry.value_place)


def report_twice(entry: OptionEntry, findings: Findings) -> None:
    findings.error(
        "MP306", f"Option '{entry.name}' is given twice.", entry.place, "The URI sets it too: keep one of them."
    )


def report_without_effect(
    entries: tuple[OptionEntry, ...], values: Mapping[str, Any], options: tuple[Option, ...], findings: Findings
) -> None:
    """Options that have no effect together with the others are an error, because the user expects an effect."""
    given = {entry.name: entry for entry in entries}
    for name, hint in useless(given, values, options).items():
        findings.error("MP303", f"Option '{name}' has no effect here.", given[name].place, hint)


@dataclass(frozen=True)
class _Identity:
    """`read` identifies what is read and how, `id` is its name in the state directory."""

    read: str
    id: str
    id_with_pace: str


def _identity(uri: Uri, request: SourceRequest, plugin: SourcePlugin) -> _Identity:
    """The identity of a source, independent of the rest of the file. Declared columns belong to their stream, so its
    name is part of the id; secrets and the pace are not, because a new password does not make it another source."""
    public = sorted((e.name, e.value) for e in request.entries if not _secret(e.name, plugin.options))
    what = [entry for entry in public if not _is_pace(entry[0], plugin)]
    use = "table" if request.as_table else "stream"
    read, named = json.dumps([uri.identity, public, use]), json.dumps([uri.identity, what, use])
    shaped = request.columns is not None or request.watermark is not None
    owner = request.name if request.name and shaped else ""
    readable = slug(owner or _shown_name(uri)) or uri.scheme
    ids = [f"{readable}_{short_hash(owner.lower() + text)}" for text in (named, read)]
    return _Identity(read, *ids)


def _is_pace(name: str, plugin: SourcePlugin) -> bool:
    starts = tuple(p.removesuffix("*") for p in plugin.pace if p.endswith("*"))
    return name in plugin.pace or (bool(starts) and name.startswith(starts))


def _delay(watermark: Watermark | None) -> tuple[str, int] | None:
    return (watermark.column.key, watermark.delay_us) if watermark is not None else None


def _secret(name: str, options: tuple[Option, ...]) -> bool:
    option = find_option(name, options)
    return option is not None and option.secret


def short_hash(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:8]


def slug(text: str) -> str:
    """Letters, digits and underscores of a text, for readable names."""
    return re.sub(r"[^0-9a-z]+", "_", text.lower()).strip("_")[:40]


def _shown_name(uri: Uri) -> str:
    """A readable name of the source: the table, the topic, the file, else the scheme."""
    shown = parse_uri(uri.shown)
    table = next((value for name, value in shown.params if name.lower() == "table" and value), None)
    if table is not None:
        return table
    return shown.path.rstrip("/").rsplit("/", 1)[-1] or shown.hosts or shown.scheme


ORDER_COLUMNS = (Column(ORDER_MAJOR, pa.int64()), Column(ORDER_MINOR, pa.int64()))
KEY_COLUMNS = (Column(DELETED, pa.bool_()), Column(IDENTITY, pa.binary()))


def record_schema(source: SourcePlan) -> Schema:
    """The columns of a source's records, including hidden ones."""
    assert source.columns is not None
    keyed = registry.find("source", source.type).table_mode is Mode.CHANGES
    return Schema((*source.columns.columns, *source.hidden, *ORDER_COLUMNS, *(KEY_COLUMNS if keyed else ())))
