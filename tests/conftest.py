"""What all tests share: one Spark session per process, an order, and no silent skips."""

import os
import signal
from collections.abc import Iterator
from typing import Any

import hypothesis
import hypothesis.core
import pytest
from tests.seeds import FRESH, replayed_by

# Tests start many short-lived JVMs: without the optimizing compiler each needs half the processor time. What the JVM
# says about it goes to the log of the session, not to the terminal.
os.environ.setdefault("JDK_JAVA_OPTIONS", "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC")

# A busy machine is no defect: how long a drawn case takes decides nothing. On CI hypothesis would draw the same in each
# run by default.
hypothesis.settings.register_profile("millpond", deadline=None, derandomize=False, print_blob=True)
hypothesis.settings.load_profile("millpond")
hypothesis.core.global_force_seed = FRESH  # type: ignore[assignment]

# A script ignores SIGINT for what it starts in the background, and so would every process of the tests.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

ON_CI = os.environ.get("CI", "").lower() == "true"


@pytest.fixture(scope="session")
def spark() -> Iterator[Any]:
    """The session that every test of this process shares."""
    from millpond.engine.spark.java import connector_jars
    from millpond.engine.spark.session import build_session

    small = {"spark.sql.shuffle.partitions": "2", "spark.driver.memory": "2g"}
    jars = ",".join(str(jar) for jar in connector_jars("kafka", os.environ))
    session = build_session(master="local[2]", extra=small | ({"spark.jars": jars} if jars else {}))
    yield session
    session.stop()


def pytest_sessionstart(session: pytest.Session) -> None:
    """Print the seed of the random tests: `-q` leaves out the header in which pytest would print it."""
    reporter = session.config.pluginmanager.get_plugin("terminalreporter")
    if reporter is not None:
        reporter.write_line(replayed_by())


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Iterator[None]:
    """And again with each failure, where it is looked for."""
    outcome: Any = yield
    report = outcome.get_result()
    if report.failed:
        report.sections.append(("Seed", replayed_by()))


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The slow kinds go first, so that no worker is left alone with a long test at the end."""
    ranks: dict[str, int] = {}
    for item in items:
        unit = _unit(item.nodeid)
        ranks[unit] = min(_rank(item), ranks.get(unit, _rank(item)))
    items.sort(key=lambda item: ranks[_unit(item.nodeid)])


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """With `-n 2`: units of tests are handed to whichever worker is free, in the order above."""
    from xdist.scheduler import LoadScopeScheduling

    class Units(LoadScopeScheduling):  # type: ignore[misc]
        def _split_scope(self, nodeid: str) -> str:
            return _unit(nodeid)

    config.option.loadscopereorder = False
    return Units(config, log)


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


def _unit(nodeid: str) -> str:
    """What one worker runs: a file, whose tests share fixtures; all of Kafka, which shares a broker; or one section or
    page, because these share nothing."""
    file = nodeid.split("::")[0]
    if file.startswith("tests/kafka/"):
        return "tests/kafka"
    return nodeid if file in ("tests/sql_files/test_sql_files.py", "tests/test_docs.py") else file


def _rank(item: pytest.Item) -> int:
    slow = (item.nodeid.startswith("tests/kafka/"), *(item.get_closest_marker(kind) for kind in ("process", "spark")))
    return next((rank for rank, holds in enumerate(slow) if holds), len(slow))


def _skipped(config: pytest.Config) -> list[Any]:
    reporter = config.pluginmanager.get_plugin("terminalreporter")
    return [] if reporter is None else list(reporter.stats.get("skipped", []))


def _reason(report: Any) -> str:
    text = report.longrepr
    return str(text[2]) if isinstance(text, tuple) else str(text)
