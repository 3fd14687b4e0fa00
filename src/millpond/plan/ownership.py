"""Whose option is it: each name of a WITH goes to the source, sink, join, statement or table that it belongs to."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from millpond import registry
from millpond.errors import MillpondError
from millpond.options import BOOLEAN, DURATION, INTEGER, TEXT, Option, choice, find_option
from millpond.plan.findings import Findings
from millpond.plan.sources import read_into
from millpond.settings import FLOW_OPTIONS, SETTINGS
from millpond.sql import foreign
from millpond.sql.statements import OptionEntry, OptionGroup
from millpond.suggest import nearest

JOIN_OPTIONS = (
    Option(
        "on.missing",
        choice("nulls", "skip", "wait", "fail", "default"),
        None,
        "What happens to an event whose joined row is absent; the kind of join decides unless given.",
    ),
    Option("default.*", TEXT, None, "The value of a column when the joined row is absent: 'default.tier' = 'BASIC'."),
    Option("wait.timeout", DURATION, "10s", "How long an event waits for its joined row."),
    Option("wait.max.rows", INTEGER, "100000", "How many events may wait at a time."),
)

# What a statement over a stream takes for the groups that it keeps.
GROUP_OPTIONS = (
    Option("state.ttl", DURATION, None, "How long a group without a window is kept after the last event for it."),
)

# What any table takes, whatever its backend.
TABLE_OPTIONS = (
    Option("backend", TEXT, "memory", "Where the rows live.", defines=True),
    Option("extension", TEXT, None, "Another name for 'backend'.", defines=True),
    Option("cache.max_size", INTEGER, None, "Rows of a read-through cache in front of the table."),
    Option("cache.ttl", DURATION, None, "How long the read-through cache keeps a row."),
    Option("retention", DURATION, None, "How long a window stays in the table after its end."),
    Option(
        "backfill",
        BOOLEAN,
        "false",
        "Whether a GROUP BY table that is added to a stream which has been read, or that gets more aggregates, is "
        "computed again from the beginning of its source.",
    ),
)


@dataclass(frozen=True)
class Owner:
    """Something that takes options; `where` says where in the text its WITH is written."""

    kind: str
    label: str
    options: tuple[Option, ...]
    where: str
    key: object = None

    def takes(self, name: str) -> bool:
        return find_option(name, self.options) is not None


STATEMENT = Owner(
    "statement", "the statement", (*FLOW_OPTIONS, *GROUP_OPTIONS), "at the end of the statement that reads"
)
JOIN = Owner("join", "the join", JOIN_OPTIONS, "right after the join's ON")
TABLE = Owner("table", "a table", TABLE_OPTIONS, "at the end of its CREATE TABLE")
SETTING = Owner("setting", "the app", SETTINGS, "in a statement of its own")


@dataclass
class Shares:
    """The entries that each owner got."""

    given: dict[tuple[str, object], list[OptionEntry]] = field(default_factory=dict)

    def of(self, kind: str, key: object = None) -> tuple[OptionEntry, ...]:
        return tuple(self.given.get((kind, key), ()))

    def add(self, owner: Owner, entry: OptionEntry) -> None:
        self.given.setdefault((owner.kind, owner.key), []).append(entry)


def share(
    group: OptionGroup, owners: Sequence[Owner], elsewhere: Sequence[Owner], shares: Shares, findings: Findings
) -> None:
    """Hand out the entries of one WITH. `owners` may own what stands here; `elsewhere` are the statement's other
    owners, whose options would have to be written in another place."""
    seen: set[str] = set()
    for entry in group.entries:
        if entry.name in seen:
            findings.error("MP306", f"Option '{entry.name}' is given twice.", entry.place, "Keep one of them.")
            continue
        seen.add(entry.name)
        owner = _owner(entry, owners, elsewhere, findings)
        if owner is not None:
            shares.add(owner, entry)


def _owner(entry: OptionEntry, owners: Sequence[Owner], elsewhere: Sequence[Owner], findings: Findings) -> Owner | None:
    here = [o for o in owners if o.takes(entry.name)]
    # At the end of INSERT INTO uri SELECT ... FROM uri nobody can tell whose 'format' it is.
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
    """Whoever else could take an option, for saying where it belongs."""
    yield from (JOIN, STATEMENT, SETTING, TABLE)
    for kind, where in (("source", "right after its URI"), ("sink", "right after its URI")):
        for name in registry.names(kind):
            yield Owner(kind, f"a {kind} such as {name}", _options(kind, name), where)
    for name in registry.names("backend"):
        yield Owner("table", f"the backend {name}", _options("backend", name), f"beside 'backend' = '{name}'")


def _options(kind: str, name: str) -> tuple[Option, ...]:
    try:
        found: tuple[Option, ...] = registry.find(kind, name).options
        return found
    except MillpondError:
        return ()


def _report_two(entry: OptionEntry, owners: Sequence[Owner], findings: Findings) -> None:
    labels = " and ".join(dict.fromkeys(o.label for o in owners))
    places = ", or ".join(dict.fromkeys(o.where for o in owners))
    findings.error("MP304", f"Option '{entry.name}' fits {labels}.", entry.place, f"Write it {places}.")


def _report_misplaced(entry: OptionEntry, owner: Owner, findings: Findings) -> None:
    if owner.kind == "setting":
        hint = f"Write it in a statement of its own: SET {entry.name} = ...;"
    else:
        hint = f"Write it {owner.where}."
    findings.error("MP303", f"Option '{entry.name}' belongs to {owner.label}, not here.", entry.place, hint)


def _report_unknown(
    entry: OptionEntry, owners: Sequence[Owner], elsewhere: Sequence[Owner], findings: Findings
) -> None:
    names = [o.name for owner in (*owners, *elsewhere) for o in owner.options]
    labels = " or ".join(dict.fromkeys(o.label for o in owners)) or "This"
    found = nearest(entry.name, names)
    here = sorted({o.name for owner in owners for o in owner.options})
    hint = foreign.OPTIONS.get(entry.name) or (f"Did you mean '{found}'?" if found else "")
    hint = hint or (f"There are: {', '.join(here)}." if here else "None can stand here.")
    findings.error("MP301", f"There is no option '{entry.name}' for {labels}.", entry.place, hint)


def read_entries(entries: Iterable[OptionEntry], options: tuple[Option, ...], findings: Findings) -> Mapping[str, Any]:
    """Typed values of what was given; wrong ones are findings and left out."""
    values: dict[str, Any] = {}
    for entry in entries:
        option = find_option(entry.name, options)
        if option is not None:
            read_into(values, option, entry, findings)
    return values
