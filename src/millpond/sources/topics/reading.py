"""What Spark's Kafka connector is told to read a source."""

from __future__ import annotations

from millpond.contracts.source import SourceSpec
from millpond.kafka.address import address_of, client_properties

# Aborted transactions are never read, unless the user asks for them.
COMMITTED = {"kafka.isolation.level": "read_committed"}
# While brokers are away Spark's query cannot be stopped, so it is not to ask again and again by itself: the flow does,
# as the options say.
IMPATIENT = {"fetchOffset.numRetries": "1"}
# Messages that one call of Kafka's client hands over, and bytes of one answer: by its own numbers a large batch takes
# nearly twice the time.
LARGE_POLLS = {
    "kafka.max.poll.records": "20000",
    "kafka.max.partition.fetch.bytes": str(8 << 20),
    "kafka.fetch.max.bytes": str(64 << 20),
}


def reader_options(spec: SourceSpec, topics: tuple[str, ...]) -> dict[str, str]:
    """Options by Spark's names; where to start is not among them."""
    address = address_of(spec.uri, spec.values)
    client = {f"kafka.{name}": value for name, value in client_properties(address, spec.values).items()}
    options = {**COMMITTED, **IMPATIENT, **LARGE_POLLS, **client, "includeHeaders": "true", "failOnDataLoss": "true"}
    options["maxOffsetsPerTrigger"] = str(max(1, spec.values["max.rows.per.batch"]))
    if address.pattern is not None:
        options["subscribePattern"] = address.pattern
    else:
        options["subscribe"] = ",".join(topics)
    if spec.values["group.id.prefix"]:
        options["groupIdPrefix"] = spec.values["group.id.prefix"]
    return options
