"""What all tests share: one Spark session per process, and no silent skips."""

import os
from collections.abc import Iterator
from typing import Any

import hypothesis
import pytest

# Tests start many short-lived JVMs: without the optimizing compiler each needs half the processor time. What the JVM
# says about it goes to the log of the session, not to the terminal.
os.environ.setdefault("JDK_JAVA_OPTIONS", "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC")

# A busy machine is no defect: how long a drawn case takes decides nothing.
hypothesis.settings.register_profile("millpond", deadline=None)
hypothesis.settings.load_profile("millpond")

ON_CI = os.environ.get("CI", "").lower() == "true"


@pytest.fixture(scope="session")
def spark() -> Iterator[Any]:
    """The session that every test of this process shares."""
    from millpond.runtime.spark.jars import connector_jars
    from millpond.runtime.spark.session import build_session

    small = {"spark.sql.shuffle.partitions": "2", "spark.driver.memory": "2g"}
    jars = ",".join(str(jar) for jar in connector_jars("kafka", os.environ))
    session = build_session(master="local[2]", extra=small | ({"spark.jars": jars} if jars else {}))
    yield session
    session.stop()


def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    """On CI a skipped test is a failure: what was not run was not shown to work."""
    if ON_CI and exitstatus == pytest.ExitCode.OK and _skipped(session.config):
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    """List every skipped test with its reason, loudly."""
    skipped = _skipped(config)
    if not skipped:
        return
    verdict = "a failure on CI" if ON_CI else "would be a failure on CI"
    terminalreporter.section(f"{len(skipped)} SKIPPED: {verdict}", sep="!", red=True, bold=True)
    for report in skipped:
        terminalreporter.line(f"{report.nodeid}  {_reason(report)}")


def _skipped(config: pytest.Config) -> list[Any]:
    reporter = config.pluginmanager.get_plugin("terminalreporter")
    return [] if reporter is None else list(reporter.stats.get("skipped", []))


def _reason(report: Any) -> str:
    text = report.longrepr
    return str(text[2]) if isinstance(text, tuple) else str(text)
