"""Owners of options: assigns each entry of a WITH to the source, sink, join, statement or table that declares it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from millpond import registry
from millpond.errors import MillpondError, nearest
from millpond.options import BOOLEAN, DURATION, INTEGER, SPAN, TEXT, Option, choice, find_option
from millpond.plan.findings import Findings
from millpond.plan.source_catalog import read_into
from millpond.settings import FLOW_OPTIONS, SETTINGS
from millpond.sql import foreign
from millpond.sql.statements import OptionEntry, OptionGroup

JOIN_OPTIONS = (
    Option(
        "on.missing",
        choice("nulls", "skip", "wait", "fail", "default"),
        None,
        "What happens to an event without a matching row; by default the kind of join determines it.",
    ),
    Option("default.*", TEXT, None, "The value of a column if there is no matching row: 'default.tier' = 'BASIC'."),
    Option("wait.timeout", DURATION, "10s", "How long an event waits for its matching row."),
    Option("wait.max.rows", INTEGER, "100000", "The maximal number of waiting events."),
)

# Options of a statement over a stream for its groups.
GROUP_OPTIONS = (
    Option("state.ttl", DURATION, None, "How long a group without a window is kept after the last event for it."),
)

# Options of a statement with window functions (OVER) over a stream.
OVER_OPTIONS = (
    Option(
        "over.wait",
        choice("none", "watermark"),
        None,
        "Whether window functions over a stream take events at once, or in the order of time when the watermark has "
        "passed them.",
    ),
    Option("retention", DURATION, None, "How long window functions over a stream remember a key without events."),
)

# Options of any table, independent of its backend.
TABLE_OPTIONS = (
    Option("backend", TEXT, "memory", "Where the rows are stored.", defines=True),
    Option("extension", TEXT, None, "Another name for 'backend'.", defines=True),
    Option(
        "cache.max_size", INTEGER, None, "The maximal number of rows of a read-through cache in front of the table."
    ),
    Option("cache.ttl", DURATION, None, "How long the read-through cache keeps a row."),
    Option(
        "retention",
        DURATION,
        None,
        "How long a window is kept in the table after its end; with OVER, how long a key without events is remembered.",
    ),
    Option("history", SPAN, None, "How long a row is kept after it was replaced or deleted, for AS OF."),
    Option(
        "history.time",
        TEXT,
        None,
        "The column with the time from which a row is valid; by default it is valid from the time of its commit.",
    ),
    Option(
        "backfill",
        BOOLEAN,
        "false",
        "Whether a GROUP BY table that is added to a stream that was already read, or that gets more aggregates, is "
        "recomputed from the beginning of its source.",
    ),
)


@dataclass(frozen=True)
class Owner:
    """Something that has options; `where` describes where its WITH is written."""

    kind: str
    label: str
    options: tuple[Option, ...]
    where: str
    key: object = None

    def takes(self, name: str) -> bool:
        return find_option(name, self.options) is not None


STATEMENT = Owner(
    "statement",
    "the statement",
    (*FLOW_OPTIONS, *GROUP_OPTIONS, *OVER_OPTIONS),
    "at the end of the statement that reads",
)
JOIN = Owner("join", "the join", JOIN_OPTIONS, "right after the join's ON")
TABLE = Owner("table", "a table", TABLE_OPTIONS, "at the end of its CREATE TABLE")
SETTING = Owner("setting", "the app", SETTINGS, "in a separate SET statement")


@dataclass
class Shares:
    """The entries of each owner."""

    given: dict[tuple[str, object], list[OptionEntry]] = field(default_factory=dict)

    def of(self, kind: str, key: object = None) -> tuple[OptionEntry, ...]:
        return tuple(self.given.get((kind, key), ()))

    def add(self, owner: Owner, entry: OptionEntry) -> None:
        self.given.setdefault((owner.kind, owner.key), []).append(entry)


def share(
    group: OptionGroup, owners: Sequence[Owner], elsewhere: Sequence[Owner], shares: Shares, findings: Findings
) -> None:
    """Assign the entries of one WITH to owners. `owners` may own entries here; `elsewhere` are the statement's other
    owners, whose options must be written in another place."""
    seen: set[str] = set()
    if any(entry.name == "load" and entry.value.strip().lower() == "lookup" for entry in group.entries):
        # The cache of rows that are looked up belongs to the source: nothing is stored in the table.
        owners = [_without_cache(o) if o.kind == "table" else o for o in owners]
    for entry in group.entries:
        if entry.name in seen:
            findings.error("MP306", f"Option '{entry.name}' is given twice.", entry.place, "Keep one of them.")
            continue
        seen.add(entry.name)
        owner = _owner(entry, owners, elsewhere, findings)
        if owner is not None:
            shares.add(owner, entry)


def _without_cache(owner: Owner) -> Owner:
    return replace(owner, options=tuple(o for o in owner.options if not o.name.startswith("cache.")))


def _owner(entry: OptionEntry, owners: Sequence[Owner], elsewhere: Sequence[Owner], findings: Findings) -> Owner | None:
    here = [o for o in owners if o.takes(entry.name)]
    if entry.name == "retention" and any(o.kind == "table" for o in here):
        # Of CREATE TABLE AS SELECT: it is written once, and means the rows of the table or the keys of OVER.
        here = [o for o in here if o.kind == "table"]
    # At the end of INSERT INTO uri SELECT ... FROM uri, the owner of 'format' is ambiguous.
    rivals = [o for o in elsewhere if o.kind == "sink" and o.takes(entry.name)] if len(owners) > 1 else []
    if len(here) == 1 and not rivals:
        return here[0]
    if here:
        _report_two(entry, [*here, *rivals], findings)
    elif other := next((o for o in (*elsewhere, *_anywhere()) if o.takes(entry.name)), None):
        _report_misplaced(entry, other, findings)
    else:
        _report_unknown(entry, owners, elsewhere, findings)
    return None


def _anywhere() -> Iterator[Owner]:
    """All other possible owners of an option, for the hint where to write it."""
    yield from (JOIN, STATEMENT, SETTING, TABLE)
    for kind, where in (("source", "right after its URI"), ("sink", "right after its URI")):
        for name in registry.names(kind):
            yield Owner(kind, f"a {kind} such as {name}", _options(kind, name), where)
    for name in registry.names("backend"):
        yield Owner("table", f"the backend {name}", _options("backend", name), f"together with 'backend' = '{name}'")


def _options(kind: str, name: str) -> tuple[Option, ...]:
    try:
        return registry.find(kind, name).options
    except MillpondError:
        return ()


def _report_two(entry: OptionEntry, owners: Sequence[Owner], findings: Findings) -> None:
    labels = " and ".join(dict.fromkeys(o.label for o in owners))
    places = ", or ".join(dict.fromkeys(o.where for o in owners))
    findings.error(
        "MP304", f"Option '{entry.name}' is ambiguous: it is an option of {labels}.", entry.place, f"Write it {places}."
    )


def _report_misplaced(entry: OptionEntry, owner: Owner, findings: Findings) -> None:
    if owner.kind == "setting":
        hint = f"Write a separate statement: SET {entry.name} = ...;"
    else:
        hint = f"Write it {owner.where}."
    findings.error(
        "MP303", f"Option '{entry.name}' is not allowed here; it is an option of {owner.label}.", entry.place, hint
    )


def _report_unknown(
    entry: OptionEntry, owners: Sequence[Owner], elsewhere: Sequence[Owner], findings: Findings
) -> None:
    names = [o.name for owner in (*owners, *elsewhere) for o in owner.options]
    labels = " or ".join(dict.fromkeys(o.label for o in owners)) or "This"
    found = nearest(entry.name, names)
    here = sorted({o.name for owner in owners for o in owner.options})
    hint = foreign.OPTIONS.get(entry.name) or (f"Did you mean '{found}'?" if found else "")
    hint = hint or (f"Available: {', '.join(here)}." if here else "No option is allowed here.")
    findings.error("MP301", f"There is no option '{entry.name}' for {labels}.", entry.place, hint)


def read_entries(entries: Iterable[OptionEntry], options: tuple[Option, ...], findings: Findings) -> Mapping[str, Any]:
    """The parsed values of entries; invalid ones are findings and left out."""
    values: dict[str, Any] = {}
    for entry in entries:
        option = find_option(entry.name, options)
        if option is not None:
            read_into(values, option, entry, findings)
    return values
