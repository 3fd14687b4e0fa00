"""What Kafka's client throws, sorted into missing, network, authentication and configuration, each with what helps."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from millpond.errors import MillpondError, SourceError
from millpond.kafka.address import Address
from millpond.kafka.reaching import listens
from millpond.redact import redact

# Words of Java's class names and messages -> our code. The first that is found decides, so the narrow ones stand first.
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
# What helps against a wrong configuration, by a word of what Kafka says; the last for everything else.
CORRECTIONS = (
    ("ReplicationFactor", "Ask for at most as many as there are brokers, such as WITH ('topic.replication' = '1')."),
    ("InvalidPartitions", "Ask for at least one, such as WITH ('topic.partitions' = '6')."),
    ("InvalidTopic", "A topic's name has letters, digits, dots, underscores and hyphens only."),
    (
        "Unexpected handshake",
        "These brokers ask for no such login: leave 'kafka.security.protocol' and 'kafka.sasl.*' out, or name their"
        " port that does.",
    ),
    (
        "RecordTooLarge",
        "Allow it WITH ('kafka.max.request.size' = '8388608') and by the topic's max.message.bytes, or send less.",
    ),
    ("bootstrap", "Correct the broker's name in the URI, kafka://host:9092/topic, or the setting kafka.brokers."),
    ("", "Correct the 'kafka.*' option that is named, WITH ('kafka.name' = 'value')."),
)
CONSOLE = "kafka-topics.sh --bootstrap-server {brokers} --create --topic {topic} --partitions {partitions}"


def sort_of(text: str) -> str | None:
    """The code of what Kafka's client says; None when it is not Kafka's."""
    return next((code for code, words in SORTS if any(word in text for word in words)), None)


def missing(address: Address, partitions: int, *, waits: bool = True) -> SourceError:
    """MP501 for a topic that is not there, with the two ways to get it and, for who can, the one to wait for it."""
    topic = address.topics[0]
    command = CONSOLE.format(brokers=address.brokers, topic=topic, partitions=partitions)
    if address.pattern is not None:
        message = f"No topic at {address.brokers} matches '{topic}'."
        return SourceError("MP501", message, hint="Wait for one WITH ('topic.wait.timeout' = '60s').")
    wait = " -- or wait for it WITH ('topic.wait.timeout' = '60s')" if waits else ""
    hint = f"Make it: {command} -- or let Millpond make it WITH ('topic.create.if.missing' = 'true'){wait}."
    return SourceError("MP501", f"There is no topic '{address.shown}' at {address.brokers}.", hint=hint)


def failure(address: Address, text: str) -> SourceError:
    """One of ours for what Kafka's client said."""
    code = sort_of(text) or "MP502"
    if code == "MP506":
        return unreachable(address)
    messages = {
        "MP501": (f"There is no topic '{address.shown}' at {address.brokers}.", missing(address, 6).hint),
        "MP511": (
            f"Messages of '{address.shown}' are gone that were not read yet.",
            "They were older than the topic's retention, or the topic was deleted and made anew. Start with a new state"
            " directory to read what there is now.",
        ),
        "MP507": (
            f"The brokers at {address.brokers} refuse the login.",
            "Say who you are WITH ('kafka.security.protocol' = 'SASL_SSL', 'kafka.sasl.mechanism' = 'PLAIN',"
            " 'kafka.sasl.jaas.config' = '${KAFKA_JAAS}').",
        ),
        "MP508": (
            f"Kafka refuses the configuration: {_reason(text)}",
            next((hint for word, hint in CORRECTIONS if word in text), CORRECTIONS[-1][1]),
        ),
        "MP502": (f"'{address.shown}' at {address.brokers} cannot be read: {_reason(text)}", ""),
    }
    message, hint = messages[code]
    return SourceError(code, message, hint=hint)


def unreachable(address: Address) -> SourceError:
    """MP506 for brokers that do not answer."""
    if listens(address):
        message = f"No broker answers at {address.brokers}, although something listens there."
        hint = "See whether it is a Kafka broker, and whether 'kafka.security.protocol' is what it asks for."
        return SourceError("MP506", message, hint=hint)
    place = address.brokers.split(",")[0].replace(":", " ")
    hint = f"Start it, or name another: kafka://host:9092/{address.topics[0]}; see whether it listens: nc -vz {place}"
    return SourceError("MP506", f"No broker answers at {address.brokers}.", hint=hint)


def _reason(text: str) -> str:
    """The most telling line of a Java exception: its innermost cause."""
    causes = [line for line in text.splitlines() if "Exception" in line and not line.strip().startswith("at ")]
    line = (causes or text.splitlines() or [""])[-1].strip()
    return redact(line.rpartition("Exception: ")[2] or line)[:300].rstrip(".") + "."


@contextmanager
def told(address: Address) -> Iterator[None]:
    """Errors of Kafka's client as ours."""
    try:
        yield
    except MillpondError:
        raise
    except Exception as error:
        raise failure(address, str(error)) from error
