"""memory://name: records that Python hands over; its options, reading comes later."""

from __future__ import annotations

from millpond.contracts.source import HIDDEN_OFFSET, HIDDEN_PARTITION, HIDDEN_SOURCE, Mode, SourcePlugin, SourceSpec
from millpond.options import BOOLEAN, INTEGER, NAMES, Option

OPTIONS = (
    Option("key", NAMES, None, "The column(s) that tell one record from another, for tables."),
    Option("durable", BOOLEAN, "true", "Whether records that were sent survive a crash."),
    Option("max.rows.per.batch", INTEGER, "1000000", "The most rows that one batch takes."),
)


def validate(spec: SourceSpec) -> str | None:
    """What is wrong with a URI, as a sentence."""
    return None if spec.uri.hosts or spec.uri.path else "A memory URI needs a name, such as memory://ticks."


PLUGIN = SourcePlugin(
    name="memory",
    options=OPTIONS,
    stream_mode=Mode.APPEND,
    table_mode=Mode.CHANGES,
    hidden=(HIDDEN_SOURCE, HIDDEN_PARTITION, HIDDEN_OFFSET),
    runnable=False,
    counts_every_record=True,
    validate=validate,
)
