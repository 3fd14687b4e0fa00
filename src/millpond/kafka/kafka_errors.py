"""Translation of errors of Kafka's client into coded errors: missing, network, login or configuration, with hints."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from millpond.errors import MillpondError, SourceError
from millpond.kafka.address import Address, listens
from millpond.redact import redact

# Words of Java's class names and messages -> our code. The first match decides, so the specific ones come first.
SORTS: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("MP507", ("AuthenticationException", "AuthorizationException", "SslAuthentication", "SSLHandshakeException")),
    ("MP511", ("data may have been missed", "OffsetOutOfRangeException", "may have been aged out")),
    ("MP501", ("UnknownTopicOrPartitionException", "This server does not host this topic-partition")),
    (
        "MP508",
        (
            "ConfigException",
            "InvalidReplicationFactorException",
            "InvalidPartitionsException",
            "InvalidTopicException",
            "No resolvable bootstrap urls",
            "JaasConf",
            "Unexpected handshake request",
            "RecordTooLargeException",
            "Failed to create new KafkaAdminClient",
            "Failed to construct kafka",
        ),
    ),
    (
        "MP506",
        (
            "TimeoutException",
            "DisconnectException",
            "ConnectException",
            "Connection refused",
            "not available",
            "Broker",
        ),
    ),
)
# Hints for an invalid configuration, by a word of Kafka's message; the last one is for everything else.
CORRECTIONS = (
    (
        "ReplicationFactor",
        "Use at most as many replicas as there are brokers, such as WITH ('topic.replication' = '1').",
    ),
    ("InvalidPartitions", "Use at least one partition, such as WITH ('topic.partitions' = '6')."),
    ("InvalidTopic", "The name of a topic consists of letters, digits, dots, underscores and hyphens."),
    (
        "Unexpected handshake",
        "These brokers do not use such a login: remove 'kafka.security.protocol' and 'kafka.sasl.*', or use the port of"
        " the brokers that does.",
    ),
    (
        "RecordTooLarge",
        "Increase the limit WITH ('kafka.max.request.size' = '8388608') and max.message.bytes of the topic.",
    ),
    ("bootstrap", "Correct the broker's name in the URI, kafka://host:9092/topic, or the setting kafka.brokers."),
    ("", "Correct this 'kafka.*' option, WITH ('kafka.name' = 'value')."),
)
CONSOLE = "kafka-topics.sh --bootstrap-server {brokers} --create --topic {topic} --partitions {partitions}"


def sort_of(text: str) -> str | None:
    """The code of a message of Kafka's client; None if it is not Kafka's."""
    return next((code for code, words in SORTS if any(word in text for word in words)), None)


def missing(address: Address, partitions: int, *, waits: bool = True) -> SourceError:
    """MP501 for a missing topic, with how to create it and, for a source, how to wait for it."""
    topic = address.topics[0]
    command = CONSOLE.format(brokers=address.brokers, topic=topic, partitions=partitions)
    if address.pattern is not None:
        message = f"No topic at {address.brokers} matches '{topic}'."
        return SourceError("MP501", message, hint="To wait for one, write WITH ('topic.wait.timeout' = '60s').")
    wait = " -- or wait for it WITH ('topic.wait.timeout' = '60s')" if waits else ""
    hint = f"Create it: {command} -- or let Millpond create it WITH ('topic.create.if.missing' = 'true'){wait}."
    return SourceError("MP501", f"There is no topic '{address.shown}' at {address.brokers}.", hint=hint)


def failure(address: Address, text: str) -> SourceError:
    """The coded error for a message of Kafka's client."""
    code = sort_of(text) or "MP502"
    if code == "MP506":
        return unreachable(address)
    messages = {
        "MP501": (f"There is no topic '{address.shown}' at {address.brokers}.", missing(address, 6).hint),
        "MP511": (
            f"Messages of '{address.shown}' were removed before they were read.",
            "They were older than the topic's retention, or the topic was deleted and created again. Start with a new"
            " state directory to read the current messages.",
        ),
        "MP507": (
            f"The brokers at {address.brokers} rejected the login.",
            "Set the login WITH ('kafka.security.protocol' = 'SASL_SSL', 'kafka.sasl.mechanism' = 'PLAIN',"
            " 'kafka.sasl.jaas.config' = '${KAFKA_JAAS}').",
        ),
        "MP508": (
            f"Kafka rejected the configuration: {_reason(text)}",
            next((hint for word, hint in CORRECTIONS if word in text), CORRECTIONS[-1][1]),
        ),
        "MP502": (f"'{address.shown}' at {address.brokers} cannot be read: {_reason(text)}", ""),
    }
    message, hint = messages[code]
    return SourceError(code, message, hint=hint)


def unreachable(address: Address) -> SourceError:
    """MP506 for brokers that do not respond."""
    if listens(address):
        message = f"No broker responds at {address.brokers}, although something listens there."
        hint = "Check that it is a Kafka broker, and that 'kafka.security.protocol' is the one that it requires."
        return SourceError("MP506", message, hint=hint)
    place = address.brokers.split(",")[0].replace(":", " ")
    hint = f"Start it, or use another: kafka://host:9092/{address.topics[0]}; check whether it listens: nc -vz {place}"
    return SourceError("MP506", f"No broker responds at {address.brokers}.", hint=hint)


def _reason(text: str) -> str:
    """The most useful line of a Java exception: its innermost cause."""
    causes = [line for line in text.splitlines() if "Exception" in line and not line.strip().startswith("at ")]
    line = (causes or text.splitlines() or [""])[-1].strip()
    return redact(line.rpartition("Exception: ")[2] or line)[:300].rstrip(".") + "."


@contextmanager
def translated(address: Address) -> Iterator[None]:
    """Translate errors of Kafka's client inside."""
    try:
        yield
    except MillpondError:
        raise
    except Exception as error:
        raise failure(address, str(error)) from error
