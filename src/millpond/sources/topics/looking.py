"""Looking for the topics of a source; making them where that is asked."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from millpond.kafka.address import Address
from millpond.kafka.client import Client, connected
from millpond.kafka.failures import missing

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def topics_there(spark: SparkSession, address: Address, values: Mapping[str, Any]) -> tuple[str, ...]:
    """The topics that are there; MP501 when one is not and is not to be made."""
    with connected(spark, address, values) as client:
        return topics_found(client, address, values)


def topics_found(client: Client, address: Address, values: Mapping[str, Any]) -> tuple[str, ...]:
    """The same, asked of a client."""
    found = client.topics()
    partitions = values["topic.partitions"]
    absent = [] if address.pattern else [t for t in address.topics if t not in found]
    if absent and values["topic.create.if.missing"]:
        for topic in absent:
            client.create(topic, partitions, values["topic.replication"])
        return address.topics
    if absent or not found:
        raise missing(Address(address.brokers, tuple(absent) or address.topics), partitions)
    return found
