"""Records that a feed has returned, read again from its source: those of all committed batches, and no others."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame

from millpond.contracts.feeder import LIVE_ROWS
from millpond.contracts.source import Past, SourcePlugin, SourceSpec
from millpond.engine.feeds.feed import JOURNAL, NUMBER_DIGITS
from millpond.engine.feeds.feed_reader import positions_of
from millpond.engine.feeds.journal import Entry, read_journal
from millpond.engine.feeds.records import Decoder, Shape

BYTES_MAX = 256 << 20


def past_records(
    spec: SourceSpec, plugin: SourcePlugin, folder: Path, batches: int, to_spark: Callable[[pa.Table], DataFrame]
) -> Iterator[pa.Table]:
    """The records of a stream's first batches, in stream order and in parts of bounded size; `folder` is that of the
    stream, and is only read. MP815 if the records were removed or changed."""
    assert plugin.past is not None
    entries, _, _ = read_journal(folder / JOURNAL)
    past = Past(spec, positions_of(entries), lambda columns: _unread(folder, batches, entries, columns))
    if _last(entries) < batches:
        raise past.gone("its journal does not have all batches that are in the tables")
    form, parts = plugin.past(past)
    yield from Decoder(form, Shape.of(spec, plugin.hidden), to_spark).batches(parts, LIVE_ROWS, BYTES_MAX)


def _unread(folder: Path, batches: int, entries: Sequence[Entry], columns: Sequence[str]) -> Iterator[pa.Table]:
    """Columns of the feed files that are in the journal and not in a committed batch."""
    # A file is renamed from the first place to the second, possibly at this moment.
    for place in ("aside", "feed"):
        for file in sorted((folder / place).glob("[0-9]*.parquet")):
            if batches < int(file.name[:NUMBER_DIGITS]) <= _last(entries):
                with suppress(FileNotFoundError):
                    yield pq.read_table(file, columns=list(columns))


def _last(entries: Sequence[Entry]) -> int:
    return max((entry["feed"] for entry in entries), default=0)
