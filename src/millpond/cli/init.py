"""`millpond init`: writes a new app with comments, data and a test."""

from __future__ import annotations

import argparse
import shlex
from importlib import resources
from pathlib import Path

from millpond.cli.command import Arguments, Command
from millpond.errors import OptionError, RunError

# The files of a new app, and the templates they are made from.
FILES = {
    "app.sql": "app.sql",
    "customers.csv": "customers.csv",
    "orders/1.jsonl": "orders.jsonl",
    "tests.md": "tests.md",
}
NAME = "{name}"
IGNORED = ".millpond/\nlarge/\n"


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("name", metavar="NAME", help="the folder of the app, which is created")


def run(arguments: Arguments) -> int:
    folder = Path(arguments.name)
    _require_free(folder)
    try:
        for target, template in FILES.items():
            text = (resources.files("millpond") / "templates" / template).read_text("utf-8")
            file = folder / target
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text.replace(NAME, folder.resolve().name), "utf-8")
        (folder / ".gitignore").write_text(IGNORED, "utf-8")
    except OSError as error:
        message = f"{error.filename or folder} cannot be written: {error.strerror}."
        raise RunError("MP805", message, hint="Choose another folder.") from error
    print(f"Written to {folder}: {', '.join(FILES)}. Next:\n")
    print(f"  cd {shlex.quote(str(folder))}\n  millpond run app.sql --once\n  millpond test tests.md")
    return 0


def _require_free(folder: Path) -> None:
    """MP310 for anything that exists, except an empty folder."""
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise OptionError("MP310", f"'{folder}' exists already.", hint="Choose another name, or an empty folder.")


COMMAND = Command("init", "Write a new app: SQL with comments, data and a test.", configure, run)
