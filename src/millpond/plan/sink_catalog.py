"""The catalog of sinks that a file writes to, each with its guarantee."""

from __future__ import annotations

import json
from typing import Any

from millpond import registry
from millpond.contracts.sink import SinkPlugin, SinkSpec
from millpond.errors import MillpondError, Place
from millpond.options import find_option
from millpond.plan.findings import Findings
from millpond.plan.model import SinkPlan
from millpond.plan.source_catalog import (
    Surroundings,
    read_into,
    read_uri,
    report_twice,
    report_without_effect,
    short_hash,
    slug,
)
from millpond.sql.statements import OptionEntry
from millpond.uris import Uri, parse_uri

TERMINAL = "terminal:"


class Sinks:
    """Collects sinks; the same URI with the same options is one sink."""

    def __init__(self, surroundings: Surroundings, findings: Findings) -> None:
        self._surroundings = surroundings
        self._findings = findings
        self._plans: dict[str, SinkPlan] = {}

    def plans(self) -> tuple[SinkPlan, ...]:
        return tuple(self._plans.values())

    def __getitem__(self, id_: str) -> SinkPlan:
        return self._plans[id_]

    def __contains__(self, id_: object) -> bool:
        return id_ in self._plans

    def plugin(self, uri: Uri, place: Place) -> SinkPlugin | None:
        """The plug-in of a URI's scheme; None, with a finding, if it is not a sink."""
        try:
            return registry.find("sink", uri.scheme, place)
        except MillpondError as error:
            self._findings.catch(error, place)
            return None

    def terminal(self, place: Place) -> SinkPlan | None:
        """The sink of bare SELECTs, which prints rows."""
        return self.open(TERMINAL, place, ())

    def open(self, text: str, place: Place, entries: tuple[OptionEntry, ...]) -> SinkPlan | None:
        """The sink of a URI; None, with a finding, if the URI or an option is invalid."""
        before = self._findings.errors
        uri = read_uri(text, place, self._findings)
        plugin = self.plugin(uri, place) if uri else None
        if uri is None or plugin is None:
            return None
        values: dict[str, Any] = {}
        for entry in entries:
            option = find_option(entry.name, plugin.options)
            if entry.name in plugin.set_by(uri):
                report_twice(entry, self._findings)
            elif option is not None:
                read_into(values, option, entry, self._findings)
        full = self._complete(uri, plugin, values, place)
        report_without_effect(entries, full, plugin.options, self._findings)
        plan = self._plan(uri, plugin, full, entries, place)
        if self._findings.errors > before:
            return None
        return self._plans.setdefault(plan.id, plan)

    def _complete(self, uri: Uri, plugin: SinkPlugin, values: dict[str, Any], place: Place) -> dict[str, Any]:
        try:
            located = plugin.located(uri, values, self._surroundings.connections())
            return self._surroundings.complete(located, plugin.options)
        except MillpondError as error:
            self._findings.catch(error, place)
            return values

    def _plan(
        self, uri: Uri, plugin: SinkPlugin, values: dict[str, Any], entries: tuple[OptionEntry, ...], place: Place
    ) -> SinkPlan:
        public = sorted((e.name, e.value) for e in entries if not _secret(e, plugin))
        shown = parse_uri(uri.shown)
        readable = slug(shown.path.rstrip("/").rsplit("/", 1)[-1] or shown.hosts) or uri.scheme
        id_ = uri.scheme if uri.text == TERMINAL else f"{readable}_{short_hash(json.dumps([uri.identity, public]))}"
        spec = SinkSpec(id_, uri, values, self._surroundings.base)
        try:
            wrong = plugin.validate(spec) if plugin.validate else None
        except MillpondError as error:
            self._findings.catch(error, place)
            wrong = None
        if wrong:
            self._findings.error("MP601", wrong, place)
        return SinkPlan(id_, plugin.name, spec, plugin.guaranteed(values), place)


def _secret(entry: OptionEntry, plugin: SinkPlugin) -> bool:
    option = find_option(entry.name, plugin.options)
    return option is not None and option.secret
