"""Planning of a SQL file: reads it, discovers the columns of its sources and stores them; without Spark."""

from __future__ import annotations

import base64
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pyarrow as pa

from millpond.app.added_statements import Added, added_to, beside, explained, joined, placed
from millpond.contracts.source import Found, Mode, SourcePlugin, SourceSpec
from millpond.engine.state_directory import COLUMNS, amend_identity, identity_of
from millpond.errors import InputError, MillpondError, NotYetError, Place, SqlError
from millpond.plan.build import build_plan
from millpond.plan.checks.parameters import check_app
from millpond.plan.findings import by_place
from millpond.plan.model import OneShot, Plan
from millpond.registry import find
from millpond.schema import Schema
from millpond.settings import TOML, Settings, load_settings
from millpond.sql.parser import parse_script


def remember(state: Path, source: str, found: Found) -> None:
    """Store the discovered columns of a source."""
    assert found.columns is not None
    text = base64.b64encode(found.columns.arrow().serialize().to_pybytes()).decode()
    entry = {"columns": text, "key": list(found.columns.key)} if found.columns.key else text
    amend_identity(state, {COLUMNS: {**_entries(state), source: entry}})


def recall(state: Path, source: str) -> Found | None:
    """The columns that were discovered at an earlier start; None if there are none."""
    entry = _entries(state).get(source)
    if entry is None:
        return None
    text, key = (entry, ()) if isinstance(entry, str) else (entry["columns"], tuple(entry["key"]))
    arrow = pa.ipc.read_schema(pa.py_buffer(base64.b64decode(text)))
    return Found(Schema.from_arrow(arrow).with_key(key))


def recalled(state: Path, plan: Plan) -> dict[str, Found]:
    """The columns of local streams that were different at an earlier start, by the ids of their sources: rows with
    those columns are in the tables, and new rows must match them; and those of catalogs, as they were."""
    local = [s for s in plan.sources if s.mode is Mode.APPEND and not s.declared and find("source", s.type).local]
    # Those of a catalog are asked for again when the app runs.
    asked = [s for s in plan.sources if s.columns is None and find("source", s.type).has_catalog]
    found = {source.spec.id: (source, recall(state, source.id)) for source in (*local, *asked)}
    return {id_: known for id_, (source, known) in found.items() if known and known.columns != source.columns}


def _entries(state: Path) -> Mapping[str, Any]:
    entries: Mapping[str, Any] = identity_of(state).get(COLUMNS, {})
    return entries


@dataclass(frozen=True)
class AppText:
    """The text of an app, read once, so that editing its file does not affect the running app. `file` is its name in
    messages; `base` is the folder of the file, with its millpond.toml, or None for a text."""

    text: str
    file: str = "<text>"
    name: str = "app"
    base: Path | None = None

    @classmethod
    def of_file(cls, path: Path) -> AppText:
        """MP110 when the file cannot be read."""
        return cls(read_sql(path), str(path), path.stem, path.resolve().parent)

    @classmethod
    def of(cls, file: str | Path | None, sql: str | None) -> AppText:
        """The text of a file, or a text itself; MP310 for both."""
        if file is not None and sql is not None:
            raise SqlError("MP310", "An app has either a file or a text, not both.", hint="Pass one of file and sql.")
        return cls.of_file(Path(file)) if file is not None else cls(sql or "")

    def followed_by(self, more: str) -> AppText:
        """The text with more statements at its end; its last semicolon may be missing."""
        return replace(self, text=f"{self.text}\n;\n{more}")

    def plan(
        self,
        *,
        variables: Mapping[str, str] | None = None,
        settings: Mapping[str, str] | None = None,
        environment: Mapping[str, str] | None = None,
        found: Mapping[str, Found] | None = None,
        added: Sequence[Added] = (),
    ) -> Plan:
        """The plan, with all errors in its problems. `found` are the columns that a running app discovered in sources
        on the network, by their ids; `added` are the statements of `app.execute`."""
        around = os.environ if environment is None else environment
        text, lines = joined(self.text, beside(self.text, {**os.environ, **(variables or {})}, added))
        read = load_settings(settings or {}, around, None if self.base is None else self.base / TOML)
        plan = plan_text(
            text,
            file=self.file,
            name=self.name,
            base=self.base,
            settings=read,
            variables=variables,
            found=found,
        )
        problems = by_place((*plan.problems, *check_app(plan.one_shots)))
        return replace(plan, problems=tuple(placed(problem, lines) for problem in problems))


def plan_file(
    path: Path,
    *,
    variables: Mapping[str, str] | None = None,
    settings: Mapping[str, str] | None = None,
    environment: Mapping[str, str] | None = None,
    added: Sequence[Added] = (),
) -> Plan:
    """The plan of a SQL file; MP110 if it cannot be read. All other errors are in the plan's problems."""
    return AppText.of_file(path).plan(variables=variables, settings=settings, environment=environment, added=added)


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
    """The plan of a text; relative paths start at `base`, by default the working directory."""
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


def plan_app(
    make: Callable[..., Plan],
    state_path: Callable[[Plan], Path | None],
    added: Sequence[Added] | None,
    found: Mapping[str, Found],
) -> Plan:
    """The plan with what is known of the columns of its sources, and with the statements that were added, those of the
    state directory unless they are given; raises all that is wrong with it."""
    plan = make(found=found)
    path = state_path(plan)
    more = (added_to(path) if path is not None else ()) if added is None else added
    if more:
        plan = make(found=found, added=more)
    before = recalled(path, plan) if path is not None else {}
    if before.keys() - found.keys():
        plan = make(found={**before, **found}, added=more)
    if plan.errors:
        only_later = all(problem.code == "MP901" for problem in plan.errors)
        errors = plan.errors if added is not None else [explained(problem) for problem in plan.errors]
        raise (NotYetError if only_later else InputError).of(errors)
    return plan


QUERY = "<query>"


def without_lines(plan: Plan, lines: int) -> Plan:
    """A plan without the declarations before the query: places are counted from the line after them, and problems of
    those lines are removed, because they were reported when the tables were created."""
    own = [p for p in plan.problems if p.place is None or p.place.line > lines]
    problems = tuple(p if p.place is None else replace(p, place=_moved(p.place, lines)) for p in own)
    return replace(plan, problems=problems, one_shots=tuple(_moved_shot(s, lines) for s in plan.one_shots))


def _moved_shot(shot: OneShot, lines: int) -> OneShot:
    place = _moved(shot.place, lines)
    return replace(shot, place=place, statement=replace(shot.statement, place=place))


def _moved(place: Place, lines: int) -> Place:
    return replace(place, file=QUERY, line=place.line - lines)


def read_sql(path: Path) -> str:
    """The text of a SQL file; MP110 with the reason if it cannot be read."""
    try:
        return path.read_text("utf-8-sig")
    except UnicodeDecodeError as error:
        raise SqlError("MP110", f"{path} is not UTF-8 text.", hint="Save the file as UTF-8.") from error
    except OSError as error:
        raise SqlError("MP110", f"{path} cannot be read: {error.strerror}.", hint="Check the path.") from error


def discover_local(plugin: SourcePlugin, spec: SourceSpec) -> Found:
    """Discover the columns of a source, if that does not require network access."""
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
