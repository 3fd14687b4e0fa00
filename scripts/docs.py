"""The generated parts of docs/: codes, options, settings, functions, metrics; written between markers from the code."""

import re
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from textwrap import wrap

from millpond import registry
from millpond.errors import CODES
from millpond.expressions.library import Entry, documented
from millpond.options import Option
from millpond.plan.from_clause import EXPLODING, INLINING
from millpond.plan.function_names import AGGREGATES, FUNCTIONS, RANKINGS
from millpond.serve.metrics import COUNTER, METRICS
from millpond.settings import SETTINGS, environment_name
from millpond.sql.function_calls import REFUSED

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


# Words that Spark lists among its functions and that are operators, clauses, types or generators.
_WORDS = """
    and between bigint binary boolean case cast collations current_catalog current_database current_schema date decimal
    div double extract float if in int json_tuple like not or python_worker_logs range session_window smallint
    sql_keywords stack string timestamp tinyint variant_explode variant_explode_outer when window
"""
NO_SCALARS = {*AGGREGATES, *RANKINGS, *EXPLODING, *INLINING, *_WORDS.split()}


def functions() -> str:
    """Every function evaluated without Spark with its meaning, by topic, and the names of the others."""
    topics = documented()
    parts = [_topic(title, entries) for title, entries in topics.items()]
    here = {name for entries in topics.values() for entry in entries for name in (entry.name, *entry.others)}
    others = ", ".join(
        f"`{name}`" for name in sorted(FUNCTIONS - here - NO_SCALARS - {name.lower() for name in REFUSED})
    )
    return "\n\n".join([*parts, "## By Spark alone", "\n".join(wrap(f"{others}.", 118))])


def _topic(title: str, entries: Iterable[Entry]) -> str:
    rows = [f"| {', '.join(f'`{n}`' for n in (e.name, *e.others))} | {_cell(e.meaning)} |" for e in entries]
    return "\n".join([f"## {title}", "", "| Function | Meaning |", "|---|---|", *rows])


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


def metrics() -> str:
    """Every metric with its labels."""
    names = {m.name: f"{m.name}_total" if m.kind == COUNTER else m.name for m in METRICS}
    rows = [f"| `{names[m.name]}` | {m.kind} | {_labels(m.labels)} | {m.help} |" for m in METRICS]
    return "\n".join(["| Metric | Type | Labels | Meaning |", "|---|---|---|---|", *rows])


def _labels(names: Iterable[str]) -> str:
    return ", ".join(f"`{name}`" for name in names)


SECTIONS: dict[str, Callable[[], str]] = {
    "errors": errors,
    "options": options,
    "settings": settings,
    "functions": functions,
    "metrics": metrics,
}


def renewed(text: str) -> str:
    """A page with each `<!-- begin NAME -->` ... `<!-- end NAME -->` written anew."""
    for name, write in SECTIONS.items():
        between = re.compile(rf"(<!-- begin {name} -->\n).*?(<!-- end {name} -->)", re.S)
        if between.search(text):
            body = write().replace("\\", r"\\")
            text = between.sub(rf"\1\n{body}\n\n\2", text)
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
