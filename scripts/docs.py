"""The generated parts of docs/: codes, options and settings, written between markers from what the code declares."""

import re
import sys
from collections.abc import Callable, Iterable
from pathlib import Path

from millpond import registry
from millpond.errors import CODES
from millpond.options import Option
from millpond.settings import SETTINGS, environment_name

DOCS = Path(__file__).parents[1] / "docs"

ERROR_GROUPS = {
    "1": "The text",
    "2": "Names, types and shape",
    "3": "Options, settings, plug-ins",
    "4": "Tables",
    "5": "Sources",
    "6": "Sinks",
    "7": "Running",
    "8": "State",
    "9": "This installation",
}
PLUGIN_GROUPS = {"source": "Sources", "sink": "Sinks", "backend": "Table backends"}


def errors() -> str:
    """Every code with what it means, by hundreds."""
    parts = []
    for digit, title in ERROR_GROUPS.items():
        lines = [f"| `{code}` | {meaning}. |" for code, meaning in CODES.items() if code[2] == digit]
        parts.append("\n".join([f"## {digit}xx: {title}", "", "| Code | Meaning |", "|---|---|", *lines]))
    return "\n\n".join(parts)


def options() -> str:
    """Every option of every plug-in, as its module declares it."""
    parts = []
    for kind, title in PLUGIN_GROUPS.items():
        parts.append(f"## {title}")
        parts += [_plugin(kind, name) for name in registry.names(kind)]
    return "\n\n".join(parts)


def settings() -> str:
    """Every setting with its environment variable."""
    head = ["| Setting | Environment | Takes | Default | What it does |", "|---|---|---|---|---|"]
    return "\n".join([*head, *map(_setting, SETTINGS)])


def _plugin(kind: str, name: str) -> str:
    plugin = registry.find(kind, name)
    later = "" if getattr(plugin, "runnable", True) else "\n\nUnderstood by `check`, but it cannot run in this version."
    return f"### {name}{later}\n\n{_option_table(plugin.options)}"


def _option_table(declared: Iterable[Option]) -> str:
    rows = [f"| `{o.name}` | {_cell(o.kind.wanted)} | {_default(o)} | {_cell(o.help)} |" for o in declared]
    if not rows:
        return "It has no options."
    return "\n".join(["| Option | Takes | Default | What it does |", "|---|---|---|---|", *rows])


def _setting(option: Option) -> str:
    variable = "" if option.name.endswith(".*") else f"`{environment_name(option.name)}`"
    takes = _cell(option.kind.wanted)
    return f"| `{option.name}` | {variable} | {takes} | {_default(option)} | {_cell(option.help)} |"


def _default(option: Option) -> str:
    default = "none" if option.default is None else f"`{_cell(option.default) or ' '}`"
    return f"{default} (or `{option.environment}`)" if option.environment else default


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")


SECTIONS: dict[str, Callable[[], str]] = {"errors": errors, "options": options, "settings": settings}


def renewed(text: str) -> str:
    """A page with each `<!-- begin NAME -->` ... `<!-- end NAME -->` written anew."""
    for name, write in SECTIONS.items():
        between = re.compile(rf"(<!-- begin {name} -->\n).*?(<!-- end {name} -->)", re.S)
        if between.search(text):
            body = write()
            text = between.sub(lambda match, body=body: f"{match[1]}\n{body}\n\n{match[2]}", text)
    return text


def main() -> int:
    for page in sorted(DOCS.glob("*.md")):
        before = page.read_text("utf-8")
        after = renewed(before)
        if after != before:
            page.write_text(after, "utf-8")
            print(f"written: {page.name}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
