"""The settings of an app, declared in one table and read from the command line, SET, environment, millpond.toml."""

from __future__ import annotations

import tomllib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from millpond.errors import OptionError, Place, did_you_mean
from millpond.options import ADDRESS, BOOLEAN, DURATION, INTEGER, POSITIVE, SPAN, TEXT, Option, choice, find_option

# The file of settings, in the SQL file's folder.
TOML = "millpond.toml"

# Both settings and options of a statement's WITH: what a flow does with bad records, failing rows and missing tables.
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
        "What to do when an expression fails on a row: stop the flow, store the row as a dead letter, or stop the app.",
    ),
    Option("table.wait.timeout", DURATION, "60s", "How long a flow waits for the tables it reads to be ready."),
    Option(
        "on.table.missing",
        choice("wait", "fail", "skip", "nulls", "default"),
        "wait",
        "What a statement does when a table is not ready after 'table.wait.timeout'.",
    ),
    Option(
        "late.rows",
        choice("dead-letter", "drop", "update"),
        "dead-letter",
        "What happens to a row whose window has closed; update is for tables only.",
    ),
    Option("idle.timeout", DURATION, None, "After this long without records the watermark advances by the clock."),
)

SETTINGS = (
    Option("state", TEXT, None, "The state directory; .millpond/<name> beside the SQL file unless given."),
    Option("master", TEXT, "local[*]", "The Spark master."),
    Option(
        "storage",
        TEXT,
        None,
        "The absolute path of a folder that the driver shares with the executors of a cluster; required for a cluster.",
    ),
    Option(
        "http",
        ADDRESS,
        None,
        "Where the page and the HTTP API listen: HOST:PORT, off, or auto, the first free port from 8080 of 127.0.0.1. "
        "Unless given, auto for `millpond run` and off with --once and in Python.",
    ),
    Option("http.token", TEXT, None, "The token that HTTP requests need; required unless HOST is local.", secret=True),
    Option("http.write", BOOLEAN, "false", "Whether tables can be changed, and dead letters replayed, over HTTP."),
    Option(
        "http.hosts", TEXT, None, "Host names, comma between, by which the page may be opened beside this machine's."
    ),
    Option("http.query.timeout", SPAN, "60s", "The longest time that a query over HTTP may take."),
    Option("http.rows.max", POSITIVE, "1000000", "The most rows that a query over HTTP returns."),
    Option("pg", ADDRESS, "off", "Where clients of PostgreSQL's protocol can connect: HOST:PORT, or off."),
    Option("pg.write", BOOLEAN, "false", "Whether they can change tables."),
    Option(
        "pg.password",
        TEXT,
        None,
        "Their password, 'http.token' unless given; required unless HOST is local.",
        secret=True,
    ),
    Option("pg.tls.cert", TEXT, None, "The PEM file of the certificate with which their connections are encrypted."),
    Option("pg.tls.key", TEXT, None, "The PEM file of its key, if that is another one.", secret=True),
    Option("json", BOOLEAN, "false", "Print one JSON object per line."),
    Option("debug", BOOLEAN, "false", "Show stack traces and Spark's own log."),
    Option("spark.ui", BOOLEAN, "false", "Start Spark's own web page."),
    Option("kafka.brokers", TEXT, "localhost:9092", "Brokers of a kafka:// URI that names none."),
    Option("dead.letters.max", INTEGER, "100000", "Rows kept in dead_letters; the oldest are removed first."),
    Option(
        "driver.max.rows",
        INTEGER,
        "200000",
        "Batches up to this size are evaluated on the driver where Arrow can; larger ones by Spark.",
    ),
    Option("time.zone", TEXT, "UTC", "The time zone of the session."),
    Option(
        "connection.*", TEXT, None, "A named database connection: SET connection.crm = 'postgresql://...'.", secret=True
    ),
    Option("spark.conf.*", TEXT, None, "Passed to Spark unchanged, without the prefix 'spark.conf.'.", secret=True),
    *FLOW_OPTIONS,
)


def is_local(master: str) -> bool:
    """Whether Spark runs within the process of the driver; `local-cluster` starts executors of its own."""
    return master == "local" or master.startswith("local[")


# Settings that apply before the SQL file is read, so that SET comes too late; each with the ways to set it.
BEFORE_THE_FILE = {
    "state": "Set it with --state, MILLPOND_STATE or millpond.toml: it is required before the file is read.",
    "debug": "Set it with --debug or MILLPOND_DEBUG.",
}


@dataclass(frozen=True)
class Setting:
    """A value and its origin; repr does not show the value, which may be a secret."""

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
        """The values of a pattern such as `spark.conf.*`, by name without the prefix."""
        return {n.removeprefix(prefix): s.value for n, s in self.found.items() if n.startswith(prefix)}

    def __iter__(self) -> Iterator[str]:
        return iter(self.found)

    def with_set(self, name: str, text: str, place: Place | None = None) -> Settings:
        """The settings after a SET of the SQL file; the command line takes precedence over SET."""
        option = _option(name, place)
        current = self.found.get(name.lower())
        if current is not None and current.origin == "command line":
            return self
        return Settings({**self.found, name.lower(): Setting(option.read(text, place), "SET")})


def environment_name(name: str) -> str:
    """`kafka.brokers` is MILLPOND_KAFKA_BROKERS."""
    return "MILLPOND_" + name.upper().replace(".", "_").replace("-", "_")


def load_settings(given: Mapping[str, str], environment: Mapping[str, str], toml_file: Path | None = None) -> Settings:
    """The settings, each from the first that has it: command line, environment, millpond.toml, default."""
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
        hint = did_you_mean(name, names) or f"Available: {', '.join(names)}."
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
