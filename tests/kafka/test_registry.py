"""A schema registry that refuses or is away is not the messages' fault: they wait, and are no dead letters."""

from collections.abc import Iterator

import pytest
from pyspark.errors import PythonException
from tests.kafka.registry import Registry

from millpond.engine.spark.spark_errors import translate
from millpond.errors import SourceError
from millpond.kafka.schema_registry import schema_of


@pytest.fixture
def registry() -> Iterator[Registry]:
    made = Registry()
    yield made
    made.stop()


@pytest.mark.parametrize(("answer", "code"), [(503, "MP506"), (401, "MP507"), (403, "MP507")])
def test_what_a_registry_does_not_say_is_reported_by_code(registry: Registry, answer: int, code: str) -> None:
    registry.add('"string"')
    assert schema_of(registry.url, 1) == '"string"'
    registry.fails_with = answer
    with pytest.raises(SourceError) as caught:
        schema_of(registry.url, 1)
    assert caught.value.code == code
    assert "pass" not in str(caught.value).replace("password@host", "")


def test_a_schema_that_is_not_there_is_the_messages_fault(registry: Registry) -> None:
    with pytest.raises(ValueError, match="has no schema 5"):
        schema_of(registry.url, 5)


def test_a_registry_that_is_away_is_one_to_wait_for(registry: Registry) -> None:
    registry.stop()
    with pytest.raises(SourceError, match="does not respond") as caught:
        schema_of(registry.url, 1)
    assert caught.value.code == "MP506"


@pytest.mark.parametrize(
    ("raised", "code", "message"),
    [
        ("RuntimeError: MP506 The registry is away.", "MP506", "The registry is away."),
        ("ValueError: A row does not fit: v", "MP701", "A row does not fit: v"),
    ],
)
def test_what_a_worker_raises_keeps_its_code_and_sentence(raised: str, code: str, message: str) -> None:
    """Whatever the lines of code in between look like."""
    lines = ["An exception was thrown from the Python worker:", "Traceback (most recent call last):", "  x[0]", raised]
    error = translate(PythonException("\n".join(lines)))
    assert (error.code, error.problems[0].message) == (code, message)
