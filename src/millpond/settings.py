"""What an app can be told, in one table: command line, SET, environment (MILLPOND_*), millpond.toml, default."""

from __future__ import annotations

import tomllib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from millpond.errors import OptionError, Place
from millpond.options import BOOLEAN, DURATION, INTEGER, TEXT, Option, choice, find_option
from millpond.suggest import did_you_mean

# The file of settings, in the SQL file's folder.
TOML = "millpond.toml"

# Options that a statement's WITH, SET and the settings share: what a flow does when something is wrong or missing.
FLOW_OPTIONS = (
    Option(
        "on.bad.record",
        choice("dead-letter", "skip", "fail"),
        "dead-letter",
        "What happens to a record that cannot be read or cast.",
    ),
    Option(
        "on.error",
        choice("stop", "dead-letter", "stop-app"),
        "stop",
        "What happens when an expression fails on a row: the flow stops, the row steps aside, or the app stops.",
    ),
    Option("table.wait.timeout", DURATION, "60s", "How long a flow waits for the tables it reads to be ready."),
    Option(
        "on.table.missing",
        choice("wait", "fail", "skip", "nulls", "default"),
        "wait",
        "What a statement does when a table is still not ready after that time.",
    ),
    Option(
        "late.rows",
        choice("dead-letter", "drop", "update"),
        "dead-letter",
        "What happens to a row whose window has closed; update is for tables only.",
    ),
    Option("idle.timeout", DURATION, None, "After this long without records the watermark goes on by the clock."),
)

SETTINGS = (
    Option("state", TEXT, None, "The state directory; .millpond/<name> beside the SQL file unless given."),
    Option("master", TEXT, "local[*]", "The Spark master."),
    Option("http", TEXT, "127.0.0.1:8642", "Where the dashboard and API listen."),
    Option("json", BOOLEAN, "false", "Print one JSON object per line."),
    Option("debug", BOOLEAN, "false", "Show stack traces and Spark's own log."),
    Option("spark.ui", BOOLEAN, "false", "Start Spark's own web page."),
    Option("kafka.brokers", TEXT, "localhost:9092", "Brokers of a kafka:// URI that names none."),
    Option("dead.letters.max", INTEGER, "100000", "Rows kept in dead_letters; the oldest go first."),
    Option("time.zone", TEXT, "UTC", "The time zone of the session."),
    Option(
        "connection.*", TEXT, None, "A named database connection: SET connection.crm = 'postgresql://...'.", secret=True
    ),
    Option("spark.conf.*", TEXT, None, "Passed to Spark as it is, without 'spark.conf.' before it.", secret=True),
    *FLOW_OPTIONS,
)

# Settings that nothing reads yet.
LATER = ("http", "connection.*")
# Settings that must be known before the SQL file is read, and how they are given then.
BEFORE_THE_FILE = {
    "state": "Give it with --state, MILLPOND_STATE or millpond.toml: it must be known before the file is read.",
    "debug": "Give it with --debug or MILLPOND_DEBUG.",
}


@dataclass(frozen=True)
class Setting:
    """A value and where it came from; the value is not shown by repr, it may be a secret."""

    value: Any = field(repr=False)
    origin: str


@dataclass(frozen=True)
class Settings:
    """The settings of one app: read with `settings["kafka.brokers"]`."""

    found: Mapping[str, Setting]

    def __getitem__(self, name: str) -> Any:
        return self.found[name].value

    def get(self, name: str) -> Any:
        setting = self.found.get(name)
        return None if setting is None else setting.value

    def starting(self, prefix: str) -> dict[str, Any]:
        """The values under a pattern, prefix removed."""
        return {n.removeprefix(prefix): s.value for n, s in self.found.items() if n.startswith(prefix)}

    def __iter__(self) -> Iterator[str]:
        return iter(self.found)

    def with_set(self, name: str, text: str, place: Place | None = None) -> Settings:
        """After a SET of the SQL file; what the command line said stays."""
        option = _option(name, place)
        current = self.found.get(name.lower())
        if current is not None and current.origin == "command line":
            return self
        return Settings({**self.found, name.lower(): Setting(option.read(text, place), "SET")})


def later(name: str) -> bool:
    """Whether nothing reads a setting yet."""
    return find_option(name, [option for option in SETTINGS if option.name in LATER]) is not None


def environment_name(name: str) -> str:
    """`kafka.brokers` is MILLPOND_KAFKA_BROKERS."""
    return "MILLPOND_" + name.upper().replace(".", "_").replace("-", "_")


def load_settings(given: Mapping[str, str], environment: Mapping[str, str], toml_file: Path | None = None) -> Settings:
    """Settings by precedence: what was given on the command line, the environment, millpond.toml, the default."""
    found: dict[str, Setting] = {}
    for option in SETTINGS:
        if option.default is not None:
            found[option.name] = Setting(option.read(option.default), "default")
        elif not option.name.endswith(".*"):
            found[option.name] = Setting(None, "default")
    for name, text in _toml(toml_file):
        found[name] = Setting(_option(name).read(text), str(toml_file and toml_file.name))
    for option in SETTINGS:
        variable = environment_name(option.name)
        if variable in environment:
            found[option.name] = Setting(option.read(environment[variable]), variable)
    for name, text in given.items():
        found[name] = Setting(_option(name).read(text), "command line")
    return Settings(found)


def _option(name: str, place: Place | None = None) -> Option:
    option = find_option(name, SETTINGS)
    if option is None:
        names = [o.name for o in SETTINGS]
        hint = did_you_mean(name, names) or f"There are: {', '.join(names)}."
        raise OptionError("MP307", f"There is no setting '{name}'.", place=place, hint=hint)
    return option


def _toml(file: Path | None) -> Iterable[tuple[str, str]]:
    if file is None or not file.is_file():
        return ()
    try:
        return list(_flat(tomllib.loads(file.read_text("utf-8")), ""))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, OSError) as error:
        raise OptionError("MP307", f"{file.name} cannot be read: {error}.", hint="It must be a TOML file.") from error


def _flat(table: Mapping[str, Any], prefix: str) -> Iterator[tuple[str, str]]:
    for name, value in table.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{prefix}{name}.")
        else:
            text = str(value).lower() if isinstance(value, bool) else str(value)
            yield f"{prefix}{name}".lower(), text
