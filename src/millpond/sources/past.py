"""What a feed has given: the journal of its source, and the feed files that no batch has read yet."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress

import pyarrow as pa
import pyarrow.parquet as pq

from millpond.contracts.source import Past
from millpond.errors import SourceError
from millpond.sources.feed import JOURNAL, NUMBER_DIGITS
from millpond.sources.journal import Entry, read_journal

HINT = "Take 'backfill' out to have it count from now on, or start over with another --state."


def given(past: Past) -> list[Entry]:
    """The journal of a source; MP815 where it does not have all batches that are done."""
    entries, _, _ = read_journal(past.folder / JOURNAL)
    if _last(entries) < past.batches:
        raise gone(past, "its journal does not have all batches that are in the tables")
    return entries


def unread_rows(past: Past, entries: Sequence[Entry], columns: Sequence[str]) -> Iterator[pa.Table]:
    """Columns of the feed files that a journal has and that are in none of the batches."""
    # A file is moved from the first place to the second, perhaps at this moment.
    for folder in ("aside", "feed"):
        for file in sorted((past.folder / folder).glob("[0-9]*.parquet")):
            if past.batches < int(file.name[:NUMBER_DIGITS]) <= _last(entries):
                with suppress(FileNotFoundError):
                    yield pq.read_table(file, columns=list(columns))


def _last(entries: Sequence[Entry]) -> int:
    return max((entry["feed"] for entry in entries), default=0)


def gone(past: Past, why: str) -> SourceError:
    """MP815 with the reason."""
    return SourceError("MP815", f"'{past.spec.shown}' cannot be read again from its beginning: {why}.", hint=HINT)
