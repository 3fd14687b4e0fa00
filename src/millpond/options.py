"""Options: declared once with kind, default and help; parsing, docs, DESCRIBE and messages read that line."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from millpond.errors import MillpondError, OptionError, Place
from millpond.redact import declare_public
from millpond.suggest import did_you_mean
from millpond.units import parse_duration, parse_size


@dataclass(frozen=True)
class Kind:
    """What values an option takes: `parse` raises ValueError for a wrong one, `wanted` says what is right."""

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


TEXT = Kind("text", "a text", str)
# Relative ones start at the SQL file's folder.
FILE = Kind("file", "the path of a file", str)
# Yes in a place that is known, no, or which place it is; a relative one starts at the SQL file's folder.
FOLDER = Kind("folder", "true, false or the path of a folder", _folder)
BOOLEAN = Kind("boolean", "true or false", _boolean)
# No count of rows is larger than what Arrow and Spark count with.
COUNT_MAX = 2**63 - 1
INTEGER = whole(0, COUNT_MAX, "a whole number, not negative")
POSITIVE = whole(1, COUNT_MAX, "a whole number, at least 1")
NUMBER = Kind("number", "a number", _number)
DURATION = Kind("duration", "a duration such as 500ms, 30s, 5 minutes, 1h", parse_duration)
SPAN = Kind("duration", "a duration such as 500ms, 30s, 5 minutes, 1h, longer than 0s", _span)
SIZE = Kind("size", "a size such as 512MB or 2GiB", parse_size)


def _names(text: str) -> tuple[str, ...]:
    names = tuple(name.strip() for name in text.split(","))
    if not all(names):
        raise ValueError(text)
    return names


NAMES = Kind("names", "column names, comma between", _names)


def choice(*words: str) -> Kind:
    """One of a few words, in any case."""
    known = {w.lower(): w for w in words}
    return Kind("choice", " | ".join(words), lambda text: known[text.strip().lower()])


@dataclass(frozen=True)
class Beside:
    """What must stand beside an option, or it would say nothing: another one with this value, or with any."""

    name: str
    value: str = ""

    def __str__(self) -> str:
        return f"'{self.name}' = '{self.value}'" if self.value else f"'{self.name}'"

    def may_hold(self, values: Mapping[str, Any], default: str | None) -> bool:
        """`default` is what the other may be as well, because nobody has written it. None is found out later."""
        found = values.get(self.name)
        return (found is None or self.value in (found, default)) if self.value else bool(found)


@dataclass(frozen=True)
class Option:
    """One option; a name that ends in `.*` stands for every name that starts so."""

    name: str
    kind: Kind
    default: str | None
    help: str
    secret: bool = False
    environment: str | None = None
    # The unit of a bare number in the environment.
    environment_unit: str = ""
    # The setting of the app that stands in where nothing is given.
    setting: str | None = None
    only_with: tuple[Beside, ...] = ()
    # Whether another value makes another table, whose rows are not those that are there; else it may change at a start.
    defines: bool = False

    def __post_init__(self) -> None:
        if not self.secret:
            declare_public(self.name)

    def covers(self, name: str) -> bool:
        if self.name.endswith(".*"):
            return name.startswith(self.name[:-1]) and len(name) > len(self.name) - 1
        return name == self.name

    def read(self, text: str, place: Place | None = None) -> Any:
        """The value of a written text, or MP302 with what was wanted."""
        try:
            return self.kind.parse(text)
        except MillpondError as error:
            raise error.at(place) from None
        except (ValueError, KeyError, ArithmeticError):
            shown = "a value that is not shown" if self.secret else f"'{text}'"
            message = f"Option '{self.name}' cannot be {shown}."
            raise OptionError("MP302", message, place=place, hint=f"It takes {self.kind.wanted}.") from None

    def stand_in(self, environment: Mapping[str, str]) -> Any:
        """The value where nothing is given: that of the environment, else the default."""
        if self.environment is None or self.environment not in environment:
            return None if self.default is None else self.read(self.default)
        text = environment[self.environment].strip()
        try:
            return self.read(f"{text}{self.environment_unit}" if text.replace(".", "", 1).isdigit() else text)
        except MillpondError as error:
            message = f"The environment variable {self.environment} cannot be '{text}'."
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
    """The option that covers a name; an exact name before a pattern."""
    covering = [o for o in options if o.covers(name.lower())]
    return min(covering, key=lambda o: o.name.endswith(".*"), default=None)


def read_options(given: Iterable[Given], options: tuple[Option, ...], owner: str) -> dict[str, Any]:
    """Typed values of what was given, defaults and environment not yet put in; raises for the first wrong one."""
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
    """MP301 with the nearest name, or all names when none is near."""
    names = [o.name for o in options]
    known = ", ".join(sorted(names)) or "none"
    hint = did_you_mean(name, names) or f"{owner} knows: {known}."
    return OptionError("MP301", f"{owner} has no option '{name}'.", place=place, hint=hint)


def complete(values: Mapping[str, Any], options: Iterable[Option], environment: Mapping[str, str]) -> dict[str, Any]:
    """Values with environment and defaults put in where nothing was given; patterns have no default."""
    full = dict(values)
    for option in options:
        if option.name.endswith(".*") or option.name in full:
            continue
        full[option.name] = option.stand_in(environment)
    return full


def useless(given: Mapping[str, Any], values: Mapping[str, Any], options: Iterable[Option]) -> dict[str, str]:
    """Options that were given and say nothing beside the others, each with what it takes for them to."""
    declared = {o.name: o for o in options}
    found = {}
    for option in (declared[name] for name in given if name in declared):
        others = {other: None if other.name in given else declared[other.name].default for other in option.only_with}
        if others and not any(other.may_hold(values, default) for other, default in others.items()):
            found[option.name] = f"It is for {' or '.join(map(str, others))}."
    return found
