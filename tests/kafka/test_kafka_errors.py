"""What Kafka's client says, sorted: missing, network, login, configuration, each with what helps."""

import pytest

from millpond.kafka.address import Address, places
from millpond.kafka.kafka_errors import failure, missing

ADDRESS = Address("b1:9092,b2:9093", ("orders",))
JAVA = "org.apache.kafka.common.errors."


@pytest.mark.parametrize(
    ("said", "code", "helps"),
    [
        (f"{JAVA}UnknownTopicOrPartitionException: This server does not host", "MP501", "--create --topic orders"),
        (f"{JAVA}TimeoutException: Timed out waiting for a node assignment", "MP506", "nc -vz b1 9092"),
        (f"{JAVA}SaslAuthenticationException: Authentication failed", "MP507", "'kafka.sasl.mechanism' = 'PLAIN'"),
        (f"{JAVA}SslAuthenticationException: SSL handshake failed", "MP507", "'kafka.security.protocol'"),
        (f"{JAVA}TopicAuthorizationException: Not authorized", "MP507", "'kafka.sasl.jaas.config'"),
        (
            "org.apache.kafka.common.config.ConfigException: Invalid url in bootstrap.servers: x",
            "MP508",
            "kafka://host:9092/topic",
        ),
        (
            f"{JAVA}IllegalSaslStateException: Unexpected handshake request with client mechanism PLAIN",
            "MP508",
            "remove 'kafka.security.protocol'",
        ),
        (f"{JAVA}InvalidReplicationFactorException: Unable to replicate 3 times", "MP508", "'topic.replication'"),
    ],
)
def test_errors_are_sorted_and_say_what_to_do(said: str, code: str, helps: str) -> None:
    problem = failure(ADDRESS, said).problems[0]
    assert problem.code == code
    assert helps in f"{problem.message} {problem.hint}"


def test_a_secret_in_what_kafka_says_is_not_reported() -> None:
    said = "ConfigException: Invalid value sasl.jaas.config='user password=\"hunter2\"' for configuration"
    assert "hunter2" not in str(failure(ADDRESS, said))


def test_a_pattern_without_topics_says_what_it_looked_for() -> None:
    error = missing(Address("b:9092", ("orders-.*",)), 6).problems[0]
    assert error.message == "No topic at b:9092 matches 'orders-.*'."


def test_brokers_are_hosts_and_ports() -> None:
    assert places("a:9092, [::1]:9093,plain") == [("a", 9092), ("::1", 9093), ("plain", 9092)]
