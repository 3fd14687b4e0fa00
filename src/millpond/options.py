"""Declared options: name, kind, default and help in one place, read by the parser, the docs, DESCRIBE and messages."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

from millpond.errors import MillpondError, OptionError, Place, did_you_mean
from millpond.redact import declare_public
from millpond.units import parse_duration, parse_size

# The values of options by name. The type of each follows from the kind of its option, which a type cannot express.
OptionValues: TypeAlias = Mapping[str, Any]


@dataclass(frozen=True)
class Kind:
    """The type of an option's values: `parse` raises ValueError for an invalid one; `wanted` describes a valid one."""

    name: str
    wanted: str
    parse: Callable[[str], Any]


def _boolean(text: str) -> bool:
    words = {"true": True, "false": False, "yes": True, "no": False, "1": True, "0": False}
    return words[text.strip().lower()]


def _folder(text: str) -> bool | str:
    try:
        return _boolean(text)
    except KeyError:
        return text.strip().removeprefix("file://").removeprefix("file:") or _boolean(text)


def whole(least: int, most: int, wanted: str) -> Kind:
    """A whole number within bounds."""

    def parse(text: str) -> int:
        value = int(text.strip().replace("_", "").replace(",", ""))
        if not least <= value <= most:
            raise ValueError(text)
        return value

    return Kind("integer", wanted, parse)


def _number(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise ValueError(text)
    return value


def _span(text: str) -> int:
    value = parse_duration(text)
    if value == 0:
        raise ValueError(text)
    return value


def host_and_port(text: str) -> tuple[str, int]:
    """The parts of HOST:PORT or [HOST]:PORT; ValueError for anything else."""
    host, colon, port = text.strip().rpartition(":")
    bracketed = host.startswith("[") and host.endswith("]")
    if not colon or not port.isascii() or not port.isdigit() or int(port) > PORT_MAX or (":" in host and not bracketed):
        raise ValueError(text)
    return host.strip("[]"), int(port)


def _address(text: str) -> str:
    if text.strip().lower() not in ("off", "auto"):
        host_and_port(text)
    return text.strip()


PORT_MAX = 65_535
ADDRESS = Kind("address", "HOST:PORT, such as 127.0.0.1:8080, off or auto", _address)
TEXT = Kind("text", "a text", str)
# A relative path starts at the SQL file's folder.
FILE = Kind("file", "the path of a file", str)
# True for a folder that the owner of the option chooses, false for none, or a path, relative to the SQL file's folder.
FOLDER = Kind("folder", "true, false or the path of a folder", _folder)
BOOLEAN = Kind("boolean", "true or false", _boolean)
# Arrow and Spark count rows with signed 64-bit integers.
COUNT_MAX = 2**63 - 1
INTEGER = whole(0, COUNT_MAX, "a whole number, not negative")
POSITIVE = whole(1, COUNT_MAX, "a whole number, at least 1")


def _interval(text: str) -> int | None:
    """Microseconds; None for never."""
    if text.strip().lower() == "never":
        return None
    found = parse_duration(text)
    if not found:
        raise ValueError(text)
    return found


def _multiplier(text: str) -> float:
    factor = float(_number(text))
    if factor < 1:
        raise ValueError(text)
    return factor


NUMBER = Kind("number", "a number", _number)
DURATION = Kind("duration", "a duration such as 500ms, 30s, 5 minutes, 1h", parse_duration)
# How often something is read again.
INTERVAL = Kind("duration", "a duration such as 30s, longer than 0s, or never", _interval)
# By which the time between two attempts grows.
MULTIPLIER = Kind("number", "a number, at least 1", _multiplier)
SPAN = Kind("duration", "a duration such as 500ms, 30s, 5 minutes, 1h, longer than 0s", _span)
SIZE = Kind("size", "a size such as 512MB or 2GiB", parse_size)


def _names(text: str) -> tuple[str, ...]:
    names = tuple(name.strip() for name in text.split(","))
    if not all(names):
        raise ValueError(text)
    return names


NAMES = Kind("names", "column names, separated by commas", _names)


def choice(*words: str) -> Kind:
    """One of several words, in upper or lower case."""
    known = {w.lower(): w for w in words}
    return Kind("choice", " | ".join(words), lambda text: known[text.strip().lower()])


@dataclass(frozen=True)
class Beside:
    """Another option, with this value or with any, without which an option has no effect."""

    name: str
    value: str = ""

    def __str__(self) -> str:
        return f"'{self.name}' = '{self.value}'" if self.value else f"'{self.name}'"

    def may_hold(self, values: Mapping[str, Any], default: str | None) -> bool:
        """Whether the other option has the required value. `default` counts too where the user set none, and so does a
        value of None, which is determined later."""
        found = values.get(self.name)
        return (found is None or self.value in (found, default)) if self.value else bool(found)


@dataclass(frozen=True)
class Option:
    """One option; a name that ends in `.*` is a pattern for every name with that prefix."""

    name: str
    kind: Kind
    default: str | None
    help: str
    secret: bool = False
    environment: str | None = None
    # The unit of a bare number in the environment.
    environment_unit: str = ""
    # The app's setting that applies where the option is not given.
    setting: str | None = None
    only_with: tuple[Beside, ...] = ()
    # Whether a changed value changes the table's rows, so that the stored ones are not valid any more; any other option
    # may change from one start to the next.
    defines: bool = False

    def __post_init__(self) -> None:
        if not self.secret:
            declare_public(self.name)

    def covers(self, name: str) -> bool:
        if self.name.endswith(".*"):
            return name.startswith(self.name[:-1]) and len(name) > len(self.name) - 1
        return name == self.name

    def read(self, text: str, place: Place | None = None) -> Any:
        """The parsed value of a text; MP302 with a description of valid values if it has none."""
        try:
            return self.kind.parse(text)
        except MillpondError as error:
            raise error.at(place) from None
        except (ValueError, KeyError, ArithmeticError):
            shown = "(not shown)" if self.secret else f"'{text}'"
            message = f"Invalid value {shown} for option '{self.name}'."
            raise OptionError("MP302", message, place=place, hint=f"Expected {self.kind.wanted}.") from None

    def stand_in(self, environment: Mapping[str, str]) -> Any:
        """The value of an option that is not given: that of the environment, else the default."""
        if self.environment is None or self.environment not in environment:
            return None if self.default is None else self.read(self.default)
        text = environment[self.environment].strip()
        try:
            return self.read(f"{text}{self.environment_unit}" if text.replace(".", "", 1).isdigit() else text)
        except MillpondError as error:
            message = f"Invalid value '{text}' of the environment variable {self.environment}."
            raise OptionError("MP302", message, hint=error.hint) from error


@dataclass(frozen=True)
class Given:
    """An option as a user wrote it."""

    name: str
    value: str
    place: Place | None = None
    value_place: Place | None = None

    def __repr__(self) -> str:
        return f"Given({self.name!r})"


def find_option(name: str, options: Iterable[Option]) -> Option | None:
    """The option of a name; an exact name takes precedence over a pattern."""
    covering = [o for o in options if o.covers(name.lower())]
    return min(covering, key=lambda o: o.name.endswith(".*"), default=None)


def read_options(given: Iterable[Given], options: tuple[Option, ...], owner: str) -> dict[str, Any]:
    """The parsed values of the given options, without defaults and environment; raises for the first invalid one."""
    values: dict[str, Any] = {}
    for item in given:
        option = find_option(item.name, options)
        if option is None:
            raise unknown_option(item.name, options, owner, item.place)
        if item.name in values:
            message = f"Option '{item.name}' is given twice."
            raise OptionError("MP306", message, place=item.place, hint="Keep one of them.")
        values[item.name] = option.read(item.value, item.value_place or item.place)
    return values


def unknown_option(name: str, options: Iterable[Option], owner: str, place: Place | None) -> OptionError:
    """MP301 with the most similar name, or all names when none is similar."""
    names = [o.name for o in options]
    known = ", ".join(sorted(names)) or "none"
    hint = did_you_mean(name, names) or f"Options of {owner}: {known}."
    return OptionError("MP301", f"{owner} has no option '{name}'.", place=place, hint=hint)


def complete(values: Mapping[str, Any], options: Iterable[Option], environment: Mapping[str, str]) -> dict[str, Any]:
    """The values, completed by environment and defaults; patterns have no default."""
    full = dict(values)
    for option in options:
        if option.name.endswith(".*") or option.name in full:
            continue
        full[option.name] = option.stand_in(environment)
    return full


def useless(given: Mapping[str, Any], values: Mapping[str, Any], options: Iterable[Option]) -> dict[str, str]:
    """Given options that have no effect together with the others, each with a sentence about what they require."""
    declared = {o.name: o for o in options}
    found = {}
    for option in (declared[name] for name in given if name in declared):
        known = [other for other in option.only_with if other.name in declared]
        others = {other: None if other.name in given else declared[other.name].default for other in known}
        if others and not any(other.may_hold(values, default) for other, default in others.items()):
            found[option.name] = f"It applies only with {' or '.join(map(str, others))}."
    return found
