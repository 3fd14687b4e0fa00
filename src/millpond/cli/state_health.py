"""Damage in a state directory beside its tables, in identity, journals, feed files and checkpoints; and its repair."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from millpond.cli.health import DAMAGED, WARN, Finding
from millpond.errors import StateError
from millpond.runtime.flows.checkpoint import OFFSETS, unreadable
from millpond.runtime.flows.epochs import CHECKPOINT
from millpond.runtime.flows.resuming import HINT, damage_of
from millpond.runtime.keeping.ledger import IDENTITY_ENTRY, FlowEntry, flow_entry_of, flow_key
from millpond.runtime.keeping.state import IDENTITY, identity_of
from millpond.small_files import read_sealed, write_sealed
from millpond.sources.feed import damage_in, has_feed

REPAIR = "millpond doctor --repair --state "


def damage_beside_tables(folder: Path, ledger: Mapping[str, Any]) -> Iterator[Finding]:
    """A finding for each file that is damaged or missing; nothing is changed."""
    for flow in sorted((folder / "flows").glob("*")):
        entry = flow_entry_of(ledger.get(flow_key(flow.name)))
        for file in sorted((flow / "source").glob("*.json")):
            yield from _sealed(file)
        if has_feed(flow / "source"):
            yield from (_damaged(wrong) for wrong in damage_in(flow / "source", entry.batch + 1))
        yield from _of_checkpoint(folder, flow, entry)


def _sealed(file: Path) -> Iterator[Finding]:
    try:
        read_sealed(file)
    except StateError as error:
        yield _damaged(error.problems[0].message)


def _of_checkpoint(state: Path, flow: Path, entry: FlowEntry) -> Iterator[Finding]:
    """Only a join depends on its checkpoint: that of any other flow is written from the ledger at each start."""
    if (flow / "events").exists():
        yield from (_damaged(wrong) for wrong in damage_of(flow / CHECKPOINT, entry, entry.batch))
        return
    begun = None if has_feed(flow / "source") else flow / CHECKPOINT / OFFSETS / str(entry.batch + 1)
    for file in sorted(found for folder in flow.glob(f"{CHECKPOINT}*") for found in unreadable(folder)):
        if file == begun:
            yield Finding("state", DAMAGED, f"{file} is damaged: it is not what Spark writes.", f"{REPAIR}{state}")
        else:
            yield Finding("state", WARN, f"{file} is damaged; the next start makes it again from the ledger.")


def _damaged(sentence: str) -> Finding:
    return Finding("state", DAMAGED, sentence, HINT)


def mended(folder: Path, ledger: Mapping[str, Any]) -> Iterator[str]:
    """Make again what follows from the ledger; what was done, a sentence for each file."""
    known = ledger.get(IDENTITY_ENTRY)
    if known is not None and not _has_identity(folder):
        write_sealed(folder / IDENTITY, known)
        yield f"{IDENTITY} was made again from the ledger."
    for flow in sorted((folder / "flows").glob("*")):
        entry = flow_entry_of(ledger.get(flow_key(flow.name)))
        begun = flow / CHECKPOINT / OFFSETS / str(entry.batch + 1)
        if not has_feed(flow / "source") and not (flow / "events").exists() and begun in unreadable(flow / CHECKPOINT):
            begun.unlink()
            yield (
                f"{begun.relative_to(folder)} was removed: the batch that had begun is cut anew, so that a Kafka sink "
                "may get rows of it twice under other numbers."
            )


def _has_identity(folder: Path) -> bool:
    try:
        return bool(identity_of(folder))
    except StateError:
        return False
