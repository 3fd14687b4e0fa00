"""The Spark session: quiet, and tuned for small batches on few cores."""

from __future__ import annotations

import fcntl
import logging
import os
import shutil
import signal
import sys
import tempfile
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from pyspark import SparkContext
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from millpond.disk import make_folder
from millpond.errors import SetupError
from millpond.runtime.spark.errors import is_gone
from millpond.runtime.spark.java import JAVA_MIN, find_java, java_version
from millpond.runtime.spark.local_files import use_own_local_files
from millpond.runtime.spark.process import launch_java

# Measured (docs/performance.md): the first two take a trigger from 150 ms to under 40 ms on a local disk, because
# Spark's default file manager starts a process for every file it touches. They are safe here: a lock on the state
# directory makes sure of one writer.
STREAMING_CONF = {
    "spark.sql.streaming.checkpointFileManagerClass": (
        "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
    ),
    "spark.hadoop.fs.file.impl": "org.apache.hadoop.fs.RawLocalFileSystem",
    "spark.sql.streaming.minBatchesToRetain": "10",
    # The log of feed files seen is rewritten whole every so many batches.
    "spark.sql.streaming.fileSource.log.compactInterval": "200",
    # A flow has one feed file to remove per batch: a thread of its own for that would only wait.
    "spark.sql.streaming.fileSource.cleaner.numThreads": "0",
    "spark.sql.streaming.stopTimeout": "60s",
    "spark.sql.streaming.noDataMicroBatches.enabled": "false",
    # Small batches: adaptive planning costs more than it brings, and everything that fits is broadcast.
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.autoBroadcastJoinThreshold": "256MB",
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    "spark.sql.execution.arrow.maxRecordsPerBatch": "65536",
}

# SQL means SQL: ANSI rules, "x" is a name, and a temporary view must be dropped by us alone.
SEMANTIC_CONF = {
    "spark.sql.ansi.enabled": "true",
    "spark.sql.ansi.doubleQuotedIdentifiers": "true",
    "spark.sql.storeAssignmentPolicy": "ANSI",
    "spark.sql.crossJoin.enabled": "true",
    "spark.sql.caseSensitive": "false",
    "spark.sql.legacy.timeParserPolicy": "CORRECTED",
}

# pyspark logs every exception it raises as JSON on standard error; we tell it ourselves, in words.
logging.getLogger("SQLQueryContextLogger").setLevel(logging.CRITICAL + 1)
logging.getLogger("DataFrameQueryContextLogger").setLevel(logging.CRITICAL + 1)
# The same holds for its bridge to Java, when that is gone.
logging.getLogger("py4j").setLevel(logging.CRITICAL + 1)

# The ports that Spark opens on this machine are open to all its users, who must not be able to ask for data there: in
# local mode Spark makes the secret itself. What Spark writes is for its own user.
PRIVATE_CONF = {"spark.authenticate": "true", "spark.hadoop.fs.permissions.umask-mode": "077"}

QUIET_CONF = {
    "spark.ui.showConsoleProgress": "false",
    "spark.log.level": "OFF",
    "spark.sql.streaming.metricsEnabled": "false",
}


LOOK_MS_PER_FLOW, LOOK_MS_MIN, LOOK_MS_MAX = 4, 20, 250


class _Users:
    """How many use the one session that a process can have: apps, and whoever had made it before the first of them."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self._context: SparkContext | None = None
        self._count = 0
        # Where its temporary files are, and a lock that keeps them there while it runs.
        self._files: tuple[Path, int] | None = None

    def add(self, session: SparkSession, *, existed: bool) -> None:
        """One more; a session that existed and is not one of ours has a user already."""
        if session.sparkContext is not self._context:
            self._context, self._count = session.sparkContext, int(existed)
        self._count += 1

    def keep(self, files: Path | None) -> None:
        """Nobody may remove these files before `release`: the app in whose folder they are may stop before others."""
        if files is not None:
            lock = os.open(make_folder(files) / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            fcntl.flock(lock, fcntl.LOCK_EX)
            self._files = files, lock

    def release(self) -> None:
        """Spark has ended: its files go, and with them a state directory of which nothing else is left."""
        if self._files is not None:
            files, lock = self._files
            self._files = None
            os.close(lock)
            shutil.rmtree(files, ignore_errors=True)
            with suppress(OSError):
                files.parent.rmdir()

    def remove(self, session: SparkSession) -> bool:
        """One less; whether that was the last."""
        if session.sparkContext is not self._context:
            return True
        self._count -= 1
        return self._count <= 0


_USERS = _Users()


def build_session(
    *,
    master: str = "local[*]",
    ui: bool = False,
    time_zone: str = "UTC",
    log_file: Path | None = None,
    files: Path | None = None,
    extra: Mapping[str, str] | None = None,
    streams: bool = True,
) -> SparkSession:
    """A session for Millpond; what the JVM prints goes to `log_file` (nowhere without one), never to the terminal, and
    its temporary files into the folder `files`. `streams`: flows will run in it, which make many files."""
    require_java()
    cores = str(os.cpu_count() or 2)
    builder = SparkSession.builder.master(master).appName("millpond")
    conf = {
        **STREAMING_CONF,
        **SEMANTIC_CONF,
        **QUIET_CONF,
        "spark.ui.enabled": str(ui).lower(),
        "spark.sql.session.timeZone": time_zone,
        "spark.sql.shuffle.partitions": cores,
        "spark.default.parallelism": cores,
        "spark.driver.memory": os.environ.get("MILLPOND_DRIVER_MEMORY", "4g"),
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
        **PRIVATE_CONF,
        **(extra or {}),
    }
    if not master.startswith("local"):
        for name in ("spark.driver.bindAddress", "spark.driver.host", "spark.authenticate"):
            conf.pop(name, None)
    # Not part of what Java is started with: it may outlive this session and these folders.
    for name, value in (conf | (_temporary_conf(files) if files is not None else {})).items():
        builder = builder.config(name, value)
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    with _interrupts_kept(), _USERS.lock:
        try:
            launch_java(conf, log_file)
            existed = SparkContext._active_spark_context is not None
            if not existed:
                _USERS.release()
                _USERS.keep(files)
                _set_temporary(files)
            session = builder.getOrCreate()
            _USERS.add(session, existed=existed)
        except (PySparkException, RuntimeError, OSError) as error:
            hint = "Run: millpond doctor" + (f"; Spark's own words are in {log_file}." if log_file else "")
            raise SetupError("MP705", f"Spark did not start: {_first_line(error)}", hint=hint) from error
    if streams:
        use_own_local_files(session)
    return session


def _temporary_conf(files: Path) -> dict[str, str]:
    return {"spark.local.dir": str(files / "local"), "spark.sql.warehouse.dir": f"file://{files}/warehouse"}


def _set_temporary(files: Path | None) -> None:
    """Where Spark makes temporary folders from now on; without a folder it is the system's, as Java lives on when a
    session ends and its folder goes."""
    jvm: Any = SparkContext._jvm
    folder = tempfile.gettempdir() if files is None else str(make_folder(files / "tmp"))
    jvm.java.lang.System.setProperty("java.io.tmpdir", folder)


def end_session(session: SparkSession) -> None:
    """Stop Spark, unless another app of this process uses it; one that was ended from outside is no error."""
    with _USERS.lock:
        if not _USERS.remove(session):
            return
    try:
        session.stop()
        _USERS.release()
        _set_temporary(None)
    except Exception as error:
        if not is_gone(error):
            raise


def look_often(session: SparkSession, flows: int) -> None:
    """Set how often each flow looks for a new batch: every look costs a few milliseconds of a core, so that many flows
    look less often."""
    delay_ms = min(max(LOOK_MS_PER_FLOW * flows, LOOK_MS_MIN), LOOK_MS_MAX)
    session.conf.set("spark.sql.streaming.pollingDelay", f"{delay_ms}ms")


def adopt_session(session: SparkSession) -> SparkSession:
    """A session that the user brought: what decides the meaning of SQL is set, the rest is left as it is."""
    for name, value in SEMANTIC_CONF.items():
        session.conf.set(name, value)
    return session


def require_java() -> None:
    """MP902 when there is no Java of the needed age: Spark's own message would be a stack trace."""
    java = find_java()
    hint = "Install a JDK of at least 17, e.g. apt-get install openjdk-17-jre-headless, and run: millpond doctor"
    if java is None:
        raise SetupError("MP902", "Spark needs Java, and there is none.", hint=hint)
    version = java_version(java)
    if version is not None and version < JAVA_MIN:
        raise SetupError("MP902", f"Spark needs Java {JAVA_MIN}, and this is {version}.", hint=hint)


def _first_line(error: BaseException) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0]


@contextmanager
def _interrupts_kept() -> Iterator[None]:
    """Spark's context takes over Ctrl-C to cancel its jobs; it stays with whoever had it, who lets batches finish."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    kept = signal.getsignal(signal.SIGINT)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, kept)
