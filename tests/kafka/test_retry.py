"""The waits between two looks at a topic: strategies, cap, and where their numbers come from."""

import itertools
from collections.abc import Mapping
from pathlib import Path

import pytest

from millpond.app.planning import plan_file
from millpond.kafka.options import Retry


def delays(options: str, folder: Path, environment: Mapping[str, str] | None = None) -> list[float]:
    """The first six waits that a stream with these options has."""
    text = f"CREATE STREAM s (id INT) FROM kafka://orders WITH ({options}); SELECT * FROM s;"
    (folder / "app.sql").write_text(text)
    plan = plan_file(folder / "app.sql", environment=environment or {})
    assert plan.errors == ()
    return list(itertools.islice(Retry.of(plan.sources[0].spec.values).delays(), 6))


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ("'format' = 'json'", [2, 3, 4.5, 6.75, 10.125, 15.1875]),
        ("'topic.retry.strategy' = 'fixed', 'topic.retry.interval' = '500ms'", [0.5] * 6),
        ("'topic.retry.strategy' = 'linear', 'topic.retry.interval' = '2s'", [2, 4, 6, 8, 10, 12]),
        ("'topic.retry.strategy' = 'LINEAR', 'topic.retry.increment' = '1 second'", [2, 3, 4, 5, 6, 7]),
        ("'topic.retry.multiplier' = '10', 'topic.retry.max.delay' = '1m'", [2, 20, 60, 60, 60, 60]),
        ("'topic.retry.interval' = '1h'", [120] * 6),
    ],
)
def test_waits_grow_by_their_strategy_up_to_the_cap(options: str, expected: list[float], tmp_path: Path) -> None:
    assert delays(options, tmp_path) == expected


def test_with_beats_the_environment_and_the_environment_the_defaults(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    given = {
        "MILLPOND_RETRY_STRATEGY": "linear",
        "MILLPOND_RETRY_INTERVAL_SECS": "1",
        "MILLPOND_RETRY_MULTIPLIER": "3",
        "MILLPOND_RETRY_MAX_DELAY_SECS": "4",
        "MILLPOND_DEFAULT_PARTITIONS": "9",
        "MILLPOND_DEFAULT_REPLICATION_FACTOR": "2",
    }
    for name, value in given.items():
        monkeypatch.setenv(name, value)
    assert delays("'format' = 'json'", tmp_path) == [1, 2, 3, 4, 4, 4]
    assert delays("'topic.retry.strategy' = 'exponential'", tmp_path) == [1, 3, 4, 4, 4, 4]
    values = plan_file(tmp_path / "app.sql").sources[0].spec.values
    assert (values["topic.partitions"], values["topic.replication"]) == (9, 2)
    assert values["topic.wait.timeout"] == 0
