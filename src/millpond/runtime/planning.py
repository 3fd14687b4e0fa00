"""From a SQL file to its plan: reads the file and lets sources find their columns; no Spark."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from millpond.contracts.source import Found, SourcePlugin, SourceSpec
from millpond.errors import MillpondError, Place, SqlError
from millpond.plan.build import build_plan
from millpond.plan.checks.parameters import check_app
from millpond.plan.findings import by_place
from millpond.plan.model import OneShot, Plan
from millpond.settings import TOML, Settings, load_settings
from millpond.sql.parser import parse_script


@dataclass(frozen=True)
class AppText:
    """What an app is planned from, read once: editing its file changes nothing of an app that runs. `file` is how
    messages name it; `base` is the folder of a file, with its millpond.toml, and None for a text."""

    text: str
    file: str = "<text>"
    name: str = "app"
    base: Path | None = None

    @classmethod
    def of_file(cls, path: Path) -> AppText:
        """MP110 when the file cannot be read."""
        return cls(read_sql(path), str(path), path.stem, path.resolve().parent)

    def followed_by(self, more: str) -> AppText:
        """The same with more statements at its end, where the last semicolon may be missing."""
        return replace(self, text=f"{self.text}\n;\n{more}")

    def plan(
        self,
        *,
        variables: Mapping[str, str] | None = None,
        settings: Mapping[str, str] | None = None,
        environment: Mapping[str, str] | None = None,
        found: Mapping[str, Found] | None = None,
    ) -> Plan:
        """The plan; what is wrong is in its problems. `found` is what a running app saw of its sources on the network,
        by their ids."""
        around = os.environ if environment is None else environment
        read = load_settings(settings or {}, around, None if self.base is None else self.base / TOML)
        plan = plan_text(
            self.text,
            file=self.file,
            name=self.name,
            base=self.base,
            settings=read,
            variables=variables,
            found=found,
        )
        return replace(plan, problems=by_place((*plan.problems, *check_app(plan.one_shots))))


def plan_file(
    path: Path,
    *,
    variables: Mapping[str, str] | None = None,
    settings: Mapping[str, str] | None = None,
    environment: Mapping[str, str] | None = None,
) -> Plan:
    """The plan of a SQL file; MP110 when it cannot be read, everything else wrong with it is in the plan's problems."""
    return AppText.of_file(path).plan(variables=variables, settings=settings, environment=environment)


def plan_text(
    text: str,
    *,
    file: str = "<text>",
    name: str = "app",
    base: Path | None = None,
    settings: Settings | None = None,
    variables: Mapping[str, str] | None = None,
    found: Mapping[str, Found] | None = None,
) -> Plan:
    """The plan of a text; relative paths start at `base`, the working directory without one."""
    script = parse_script(text, file=file, variables={**os.environ, **(variables or {})})
    seen = found or {}
    return build_plan(
        script,
        name=name,
        base=base or Path.cwd(),
        settings=settings or load_settings({}, os.environ, Path.cwd() / TOML),
        environment=os.environ,
        discover=lambda plugin, spec: seen.get(spec.id) or discover_local(plugin, spec),
    )


QUERY = "<query>"


def without_lines(plan: Plan, lines: int) -> Plan:
    """A plan whose first lines are not the query's: places are counted from after them, and what is wrong with those
    lines was reported when the tables were made."""
    own = [p for p in plan.problems if p.place is None or p.place.line > lines]
    problems = tuple(p if p.place is None else replace(p, place=_moved(p.place, lines)) for p in own)
    return replace(plan, problems=problems, one_shots=tuple(_moved_shot(s, lines) for s in plan.one_shots))


def _moved_shot(shot: OneShot, lines: int) -> OneShot:
    place = _moved(shot.place, lines)
    return replace(shot, place=place, statement=replace(shot.statement, place=place))


def _moved(place: Place, lines: int) -> Place:
    return replace(place, file=QUERY, line=place.line - lines)


def read_sql(path: Path) -> str:
    """The text of a SQL file; MP110 with the reason when it cannot be read."""
    try:
        return path.read_text("utf-8-sig")
    except UnicodeDecodeError as error:
        raise SqlError("MP110", f"{path} is not UTF-8 text.", hint="Save the file as UTF-8.") from error
    except OSError as error:
        raise SqlError("MP110", f"{path} cannot be read: {error.strerror}.", hint="Check the path.") from error


def discover_local(plugin: SourcePlugin, spec: SourceSpec) -> Found:
    """Columns by looking at the source, if that touches no network."""
    if plugin.fixed is not None:
        return Found(plugin.fixed)
    if not plugin.local or plugin.discover is None:
        return Found(missing=True, detail="it is not on this machine")
    try:
        return plugin.discover(spec)
    except MillpondError:
        raise
    except OSError as error:
        return Found(missing=True, detail=error.strerror or str(error))
