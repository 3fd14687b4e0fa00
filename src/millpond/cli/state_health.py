"""Damage in the files of a state directory that are not tables: identity, journals, feeds, checkpoints; its repair."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from millpond.cli.health import DAMAGED, WARN, Finding
from millpond.disk import read_sealed, write_sealed
from millpond.engine.feeds.feed import damage_in, has_feed
from millpond.engine.ledger import CHECKPOINT, IDENTITY_ENTRY, FlowEntry, flow_entry_of, flow_key
from millpond.engine.spark_checkpoint import HINT, OFFSETS, damage_of, unreadable
from millpond.engine.state_directory import IDENTITY, identity_of
from millpond.errors import StateError

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
    """Only a stream join depends on its checkpoint; that of any other flow is written from the ledger at each start."""
    if (flow / "events").exists():
        yield from (_damaged(wrong) for wrong in damage_of(flow / CHECKPOINT, entry, entry.batch))
        return
    begun = None if has_feed(flow / "source") else flow / CHECKPOINT / OFFSETS / str(entry.batch + 1)
    for file in sorted(found for folder in flow.glob(f"{CHECKPOINT}*") for found in unreadable(folder)):
        if file == begun:
            yield Finding("state", DAMAGED, f"{file} is damaged: Spark cannot read it.", f"{REPAIR}{state}")
        else:
            yield Finding("state", WARN, f"{file} is damaged; the next start rebuilds it from the ledger.")


def _damaged(sentence: str) -> Finding:
    return Finding("state", DAMAGED, sentence, HINT)


def mended(folder: Path, ledger: Mapping[str, Any]) -> Iterator[str]:
    """Rebuild the files that follow from the ledger; returns a sentence for each."""
    known = ledger.get(IDENTITY_ENTRY)
    if known is not None and not _has_identity(folder):
        write_sealed(folder / IDENTITY, known)
        yield f"{IDENTITY} was rebuilt from the ledger."
    for flow in sorted((folder / "flows").glob("*")):
        entry = flow_entry_of(ledger.get(flow_key(flow.name)))
        begun = flow / CHECKPOINT / OFFSETS / str(entry.batch + 1)
        if not has_feed(flow / "source") and not (flow / "events").exists() and begun in unreadable(flow / CHECKPOINT):
            begun.unlink()
            yield (
                f"{begun.relative_to(folder)} was removed: the interrupted batch is formed again, so that a Kafka sink "
                "may get its rows twice, under different numbers."
            )


def _has_identity(folder: Path) -> bool:
    try:
        return bool(identity_of(folder))
    except StateError:
        return False
