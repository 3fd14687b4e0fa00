"""Kafka's client in C, which the driver uses without a JVM: its configuration, its topics, and its errors.

Options are written with the names of Kafka's client in Java; what has another name in C is translated, and an option
that has no equivalent is reported, so that none is silently ignored.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from millpond.errors import MillpondError, SetupError, SourceError
from millpond.kafka.address import Address, client_properties, reachable
from millpond.kafka.kafka_errors import failure, missing, unreachable

# The most seconds that one request of the administration client may take, and after which errors are looked at.
ANSWER_S, TURN_S = 15.0, 1.0
REPLICAS_DEFAULT = 3
# Properties with the same name and meaning in both clients.
_SAME = {
    "acks",
    "batch.size",
    "bootstrap.servers",
    "client.id",
    "client.rack",
    "compression.type",
    "connections.max.idle.ms",
    "delivery.timeout.ms",
    "enable.idempotence",
    "fetch.max.bytes",
    "fetch.min.bytes",
    "isolation.level",
    "linger.ms",
    "max.in.flight.requests.per.connection",
    "max.partition.fetch.bytes",
    "metadata.max.age.ms",
    "reconnect.backoff.max.ms",
    "reconnect.backoff.ms",
    "request.timeout.ms",
    "retries",
    "retry.backoff.max.ms",
    "retry.backoff.ms",
    "sasl.kerberos.service.name",
    "sasl.mechanism",
    "security.protocol",
    "socket.connection.setup.timeout.ms",
    "ssl.cipher.suites",
    "ssl.endpoint.identification.algorithm",
    "ssl.key.password",
    "ssl.keystore.password",
    "transaction.timeout.ms",
}
_RENAMED = {
    "fetch.max.wait.ms": "fetch.wait.max.ms",
    "max.request.size": "message.max.bytes",
    "receive.buffer.bytes": "socket.receive.buffer.bytes",
    "send.buffer.bytes": "socket.send.buffer.bytes",
    "ssl.keystore.certificate.chain": "ssl.certificate.pem",
    "ssl.keystore.key": "ssl.key.pem",
    "ssl.truststore.certificates": "ssl.ca.pem",
}
# Of Java only: bounds of calls that wait, for which there are arguments in C, and the types of stores.
_WITHOUT_EFFECT = ("default.api.timeout.ms", "max.block.ms", "ssl.truststore.type", "ssl.keystore.type")
# Properties that only a producer accepts.
_OF_PRODUCERS = {
    "acks",
    "batch.size",
    "compression.type",
    "delivery.timeout.ms",
    "enable.idempotence",
    "linger.ms",
    "request.timeout.ms",
    "retries",
    "transaction.timeout.ms",
}
_LOGIN = re.compile(r"\.(Plain|Scram)LoginModule\s", re.ASCII)
_PART = re.compile(r"""\b(username|password)\s*=\s*(?:"((?:[^"\\]|\\.)*)"|'((?:[^'\\]|\\.)*)')""")


def untranslated(values: Mapping[str, Any]) -> str | None:
    """The first `kafka.*` option that the client in C does not have; None if it has all of them."""
    given = {name.removeprefix("kafka."): str(v) for name, v in values.items() if name.startswith("kafka.")}
    return next((f"kafka.{name}" for name in given if not _is_known(name, given)), None)


def _is_known(name: str, given: Mapping[str, str]) -> bool:
    if name == "sasl.jaas.config":
        return _LOGIN.search(given[name]) is not None and len(_PART.findall(given[name])) == 2
    if name in ("ssl.truststore.location", "ssl.truststore.password"):
        return given.get("ssl.truststore.type", "JKS").upper() == "PEM"
    if name == "ssl.keystore.location":
        return given.get("ssl.keystore.type", "JKS").upper() in ("PEM", "PKCS12")
    return name in _SAME or name in _RENAMED or name in _WITHOUT_EFFECT


def c_properties(address: Address, values: Mapping[str, Any]) -> dict[str, str]:
    """The configuration of the client in C for an address and options; see `untranslated`."""
    given = client_properties(address, values)
    found: dict[str, str] = {}
    for name, value in given.items():
        if name in _SAME:
            found[name] = value
        elif name in _RENAMED:
            found[_RENAMED[name]] = value
    if "sasl.jaas.config" in given:
        found |= {f"sasl.{part}": _unescaped(a or b) for part, a, b in _PART.findall(given["sasl.jaas.config"])}
    if "ssl.truststore.location" in given:
        found["ssl.ca.location"] = given["ssl.truststore.location"]
    if "ssl.keystore.location" in given:
        is_pem = given.get("ssl.keystore.type", "").upper() == "PEM"
        names = ("ssl.certificate.location", "ssl.key.location") if is_pem else ("ssl.keystore.location",)
        found |= dict.fromkeys(names, given["ssl.keystore.location"])
    if found.get("ssl.endpoint.identification.algorithm") == "":
        found["ssl.endpoint.identification.algorithm"] = "none"
    # Errors are returned by the calls; the library would also write them to standard error.
    return {**found, "log_level": "0"}


def _unescaped(text: str) -> str:
    return re.sub(r"\\(.)", r"\1", text)


def reader_properties(address: Address, values: Mapping[str, Any]) -> dict[str, str]:
    """The configuration without what only producers accept."""
    return {name: value for name, value in c_properties(address, values).items() if name not in _OF_PRODUCERS}


def library() -> Any:
    """The module confluent_kafka; MP309 if it is not installed."""
    try:
        import confluent_kafka
        import confluent_kafka.admin
    except ImportError as error:
        message = "This requires Kafka's client in C, confluent-kafka."
        raise SetupError("MP309", message, hint="Run: pip install 'millpond[kafka]'") from error
    return confluent_kafka


def is_installed() -> bool:
    try:
        library()
    except SetupError:
        return False
    return True


# The errors of the client in C by their names -> words by which `failures` recognizes those of the client in Java.
_WORDS = {
    "_ALL_BROKERS_DOWN": "TimeoutException",
    "_AUTHENTICATION": "AuthenticationException",
    "_INVALID_ARG": "ConfigException",
    "_MSG_TIMED_OUT": "TimeoutException",
    "_RESOLVE": "No resolvable bootstrap urls",
    "_SSL": "SSLHandshakeException",
    "_TIMED_OUT": "TimeoutException",
    "_TIMED_OUT_QUEUE": "TimeoutException",
    "_TRANSPORT": "DisconnectException",
    "_UNKNOWN_TOPIC": "UnknownTopicOrPartitionException",
    "COORDINATOR_LOAD_IN_PROGRESS": "TimeoutException",
    "COORDINATOR_NOT_AVAILABLE": "TimeoutException",
    "GROUP_AUTHORIZATION_FAILED": "AuthorizationException",
    "CLUSTER_AUTHORIZATION_FAILED": "AuthorizationException",
    "INVALID_PARTITIONS": "InvalidPartitionsException",
    "INVALID_REPLICATION_FACTOR": "InvalidReplicationFactorException",
    "NOT_COORDINATOR": "TimeoutException",
    "MSG_SIZE_TOO_LARGE": "RecordTooLargeException",
    "OFFSET_OUT_OF_RANGE": "OffsetOutOfRangeException",
    "SASL_AUTHENTICATION_FAILED": "AuthenticationException",
    "TOPIC_AUTHORIZATION_FAILED": "AuthorizationException",
    "TOPIC_EXCEPTION": "InvalidTopicException",
    "TRANSACTIONAL_ID_AUTHORIZATION_FAILED": "AuthorizationException",
    "UNKNOWN_TOPIC_OR_PART": "UnknownTopicOrPartitionException",
}


# Names by which the client in C reports properties -> those that users write.
_REPORTED = {
    "message.send.max.retries": "retries",
    "queue.buffering.max.ms": "linger.ms",
    **{theirs: ours for ours, theirs in _RENAMED.items()},
}


def kafka_error(error: BaseException) -> Any:
    """The KafkaError of an exception of the library, or None."""
    found = error.args[0] if error.args else None
    return found if isinstance(error, library().KafkaException) and hasattr(found, "name") else None


def meaning(address: Address, error: BaseException) -> SourceError:
    """The coded error of an exception of the library."""
    found = kafka_error(error)
    if found is None:
        return failure(address, str(error))
    word = _WORDS.get(found.name(), "TimeoutException" if found.retriable() else "")
    text = re.sub(r"[a-z.]{5,}[a-z]", lambda name: _REPORTED.get(name[0], name[0]), found.str())
    return failure(address, f"{word}: {text}" if word else text)


@contextmanager
def c_errors(address: Address) -> Iterator[None]:
    """Translate errors of the library inside."""
    try:
        yield
    except MillpondError:
        raise
    except Exception as error:
        raise meaning(address, error) from error


class Topics:
    """The administration client of an address."""

    def __init__(self, address: Address, values: Mapping[str, Any]) -> None:
        if not reachable(address):
            raise unreachable(address)
        self._address, self._values = address, values
        self._errors: list[Any] = []
        watched = {"error_cb": self._errors.append}
        with c_errors(address):
            self._admin = library().admin.AdminClient({**reader_properties(address, values), **watched})

    def names(self) -> frozenset[str]:
        """All topics that exist and that the login may see."""
        return frozenset(self._metadata().topics)

    def _metadata(self) -> Any:
        """The brokers and topics. A rejected login is reported by a callback only, and the request runs out of time."""
        deadline = time.monotonic() + ANSWER_S
        while True:
            try:
                return self._admin.list_topics(timeout=TURN_S)
            except library().KafkaException as error:
                self._admin.poll(0)
                if {found.name() for found in self._errors} & {"_AUTHENTICATION", "_SSL"}:
                    raise failure(self._address, "AuthenticationException") from error
                if time.monotonic() > deadline:
                    raise meaning(self._address, error) from error

    def require(self, *, written: bool) -> None:
        """Create the topic of the address if it is missing and that is enabled; else MP501, unless it is written to and
        the brokers create topics themselves."""
        (topic,), values = self._address.topics, self._values
        if topic in self.names():
            return
        if values["topic.create.if.missing"]:
            self._create(topic, values["topic.partitions"], values["topic.replication"])
        elif not (written and self._makes_topics()):
            raise missing(self._address, values["topic.partitions"], waits=not written)

    def _create(self, topic: str, partitions: int, replicas: int | None) -> None:
        with c_errors(self._address):
            brokers = len(self._metadata().brokers)
            new = library().admin.NewTopic(topic, partitions, replicas or min(REPLICAS_DEFAULT, brokers))
            try:
                self._admin.create_topics([new])[topic].result(ANSWER_S)
            except library().KafkaException as error:
                # Another process created it first, which is fine.
                if kafka_error(error).name() != "TOPIC_ALREADY_EXISTS":
                    raise

    def _makes_topics(self) -> bool:
        """Whether brokers create a topic when it is first written to; True if that cannot be determined."""
        admin, name = library().admin, "auto.create.topics.enable"
        try:
            broker = next(iter(self._metadata().brokers))
            resource = admin.ConfigResource(admin.RESOURCE_BROKER, str(broker))
            found = self._admin.describe_configs([resource])[resource].result(ANSWER_S).get(name)
        except Exception:
            # Clients with write access often may not read the configuration.
            return True
        return found is None or found.value != "false"
