"""`Command`, the declaration of a subcommand, and the arguments that several of them share."""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NoReturn

from millpond.errors import OptionError, did_you_mean

Arguments = argparse.Namespace


@dataclass(frozen=True)
class Command:
    """A subcommand of `millpond`: `configure` declares its arguments, `run` does the work and returns the exit code."""

    name: str
    summary: str
    configure: Callable[[argparse.ArgumentParser], None]
    run: Callable[[Arguments], int]


class Parser(argparse.ArgumentParser):
    """The argument parser of one command, which raises MP310 instead of printing argparse's usage text."""

    def __init__(self, command: Command) -> None:
        # No abbreviations: `--stat` is a mistake with a suggestion, not silently `--state`.
        super().__init__(prog=f"millpond {command.name}", description=command.summary, allow_abbrev=False)
        command.configure(self)
        self.add_argument("--debug", action="store_true", help="show stack traces and Spark's own log")

    def read(self, words: Sequence[str]) -> Arguments:
        """The parsed arguments; OptionError MP310 with the most similar flag if one is unknown."""
        arguments, unknown = self.parse_known_args(words)
        if unknown:
            flags = [flag for action in self._actions for flag in action.option_strings]
            word = unknown[0].partition("=")[0]
            kind = "option" if word.startswith("-") else "argument"
            self._refuse(f"There is no {kind} '{word}'.", did_you_mean(word, flags))
        return arguments

    def error(self, message: str) -> NoReturn:
        self._refuse(f"{message[0].upper()}{message[1:]}.")

    def _refuse(self, message: str, hint: str = "") -> NoReturn:
        raise OptionError("MP310", message, hint=f"{hint} See: {self.prog} --help".strip())


def add_file(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("file", metavar="FILE", help="the SQL file")


def add_variables(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--set",
        dest="variables",
        metavar="NAME=VALUE",
        action="append",
        default=[],
        type=_variable,
        help="the value of ${NAME} in the SQL, overriding the environment; may be repeated",
    )


def add_state(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--state", metavar="DIR", help="the state directory (.millpond/<file name> beside the SQL file)"
    )


def add_cluster(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--master", metavar="URL", help="the Spark master (local[*])")
    parser.add_argument("--storage", metavar="FOLDER", help="a folder that the executors of a cluster share")


def cluster_settings(arguments: Arguments) -> dict[str, str]:
    """The settings that `add_cluster` was given."""
    given = {"master": arguments.master} if arguments.master else {}
    return given | ({"storage": os.path.abspath(arguments.storage)} if arguments.storage else {})


def add_app(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--app", metavar="FILE", help="the app's SQL file, which determines its state directory")


def add_json(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--json", action="store_true", help="one JSON object per line")


def add_timeout(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--timeout",
        metavar="TIME",
        default="10s",
        help="how long to wait for a running app to respond; the query itself may take longer (10s)",
    )


def _variable(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals or not name.strip():
        raise argparse.ArgumentTypeError(f"'{text}' is not NAME=VALUE")
    return name.strip(), value
