"""`millpond version`: prints the installed versions."""

from __future__ import annotations

import argparse
import platform
from importlib import metadata

from millpond.cli.command import Arguments, Command


def configure(parser: argparse.ArgumentParser) -> None:
    """No arguments of its own."""


def run(arguments: Arguments) -> int:
    print(f"millpond {installed('millpond')} (pyspark {installed('pyspark')}, Python {platform.python_version()})")
    return 0


def installed(package: str) -> str:
    """The version of a package without importing it."""
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return "not installed"


COMMAND = Command("version", "Print the version.", configure, run)
