"""The Spark session: quiet, tuned for small batches, and writing local files without starting a process for each."""

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
from importlib.resources import files
from pathlib import Path
from typing import Any

from py4j.protocol import Py4JError
from pyspark import SparkContext
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from millpond.disk import make_folder
from millpond.engine.spark.java import JAVA_MIN, find_java, java_version
from millpond.engine.spark.process import PRIVATE_UMASK, launch_java
from millpond.engine.spark.spark_errors import is_gone
from millpond.errors import SetupError
from millpond.settings import is_local

SOURCE, NAME = "LocalFiles.java", "millpond.LocalFiles"
ROOT = "file:///"


class SparkNotStarted(BaseException):
    """Spark is needed where nothing may wait for its start. Not an Exception: no row and no statement is the cause."""


def use_own_local_files(session: SparkSession) -> None:
    """Make this JVM write local files with our class; if that is not possible, files are written as before, but
    slower."""
    jvm: Any = session._jvm
    usual = session.sparkContext._jsc.hadoopConfiguration()
    file_systems, root = jvm.org.apache.hadoop.fs.FileSystem, jvm.java.net.URI(ROOT)
    try:
        kept = file_systems.get(root, usual)
        if kept.getClass().getName() == NAME:
            return
        ours = _configured(jvm, usual)
        # Hadoop caches one file system per scheme: it forgets a closed one, and caches the next one that is requested.
        kept.close()
        file_systems.get(root, ours)
    except Py4JError:
        return


def _configured(jvm: Any, usual: Any) -> Any:
    """A configuration that names our class and can load it. The default configuration, which is sent to executors, is
    not changed, because they do not have the class."""
    compiler = jvm.org.codehaus.janino.SimpleCompiler()
    compiler.setParentClassLoader(jvm.java.lang.Thread.currentThread().getContextClassLoader())
    compiler.cook(files(__package__).joinpath(SOURCE).read_text())
    ours = jvm.org.apache.hadoop.conf.Configuration(usual)
    ours.setClassLoader(compiler.getClassLoader())
    ours.set("fs.file.impl", NAME)
    return ours


# Measured (docs/performance.md): the first two reduce a trigger from 150 ms to less than 40 ms on a local disk, because
# Spark's default file manager starts a process for every file operation. They are safe here: the lock on the state
# directory guarantees a single writer.
STREAMING_CONF = {
    "spark.sql.streaming.checkpointFileManagerClass": (
        "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
    ),
    "spark.hadoop.fs.file.impl": "org.apache.hadoop.fs.RawLocalFileSystem",
    "spark.sql.streaming.minBatchesToRetain": "10",
    # The log of processed feed files is rewritten as a whole at this interval, in batches.
    "spark.sql.streaming.fileSource.log.compactInterval": "200",
    # A flow removes one feed file per batch, which needs no thread of its own.
    "spark.sql.streaming.fileSource.cleaner.numThreads": "0",
    "spark.sql.streaming.stopTimeout": "60s",
    "spark.sql.streaming.noDataMicroBatches.enabled": "false",
    # Small batches: adaptive planning costs more than it saves, and everything that fits is broadcast.
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.autoBroadcastJoinThreshold": "256MB",
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    "spark.sql.execution.arrow.maxRecordsPerBatch": "65536",
}

# ANSI SQL; "x" is an identifier; temporary views are dropped by us only.
SEMANTIC_CONF = {
    "spark.sql.ansi.enabled": "true",
    "spark.sql.ansi.doubleQuotedIdentifiers": "true",
    "spark.sql.storeAssignmentPolicy": "ANSI",
    "spark.sql.crossJoin.enabled": "true",
    "spark.sql.caseSensitive": "false",
    "spark.sql.legacy.timeParserPolicy": "CORRECTED",
}

# pyspark logs every exception it raises as JSON on standard error; we report it ourselves, as an error with a code.
logging.getLogger("SQLQueryContextLogger").setLevel(logging.CRITICAL + 1)
logging.getLogger("DataFrameQueryContextLogger").setLevel(logging.CRITICAL + 1)
# The same for its bridge to Java, after Java has ended.
logging.getLogger("py4j").setLevel(logging.CRITICAL + 1)

# Spark's ports are open to all users of the machine, who must not be able to read data: in local mode Spark generates
# the secret itself. Files that Spark writes are readable by the same user only.
UMASK = "spark.hadoop.fs.permissions.umask-mode"
PRIVATE_CONF = {"spark.authenticate": "true", UMASK: f"{PRIVATE_UMASK:03o}"}

QUIET_CONF = {
    "spark.ui.showConsoleProgress": "false",
    "spark.log.level": "OFF",
    "spark.sql.streaming.metricsEnabled": "false",
}


LOOK_MS_PER_FLOW, LOOK_MS_MIN, LOOK_MS_MAX = 4, 20, 250


class _Users:
    """The users of the one session that a process can have: apps, and the code that created it before the first of
    them."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self._context: SparkContext | None = None
        self._count = 0
        self._is_own = False
        # The folder of its temporary files, and a lock that keeps them while Spark runs.
        self._files: tuple[Path, int] | None = None

    def add(self, session: SparkSession, *, existed: bool) -> None:
        """Add a user; a session that existed and was not created by us has a user already."""
        if session.sparkContext is not self._context:
            self._context, self._count, self._is_own = session.sparkContext, int(existed), not existed
        self._count += 1

    def made(self, session: SparkSession) -> bool:
        """Whether Spark was started here; a session of the user is not stopped."""
        return self._is_own and session.sparkContext is self._context

    def keep(self, files: Path | None) -> None:
        """Keep these files until `release`: the app in whose folder they are may stop before others."""
        if files is not None:
            lock = os.open(make_folder(files) / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            fcntl.flock(lock, fcntl.LOCK_EX)
            self._files = files, lock

    def release(self) -> None:
        """Called when Spark has ended: remove its files, and a state directory that contains nothing else."""
        if self._files is not None:
            files, lock = self._files
            self._files = None
            os.close(lock)
            shutil.rmtree(files, ignore_errors=True)
            with suppress(OSError):
                files.parent.rmdir()

    def remove(self, session: SparkSession) -> bool:
        """Remove a user; returns whether it was the last."""
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
) -> SparkSession:
    """A session for Millpond. The output of the JVM goes to `log_file` (discarded without one), never to the terminal,
    and its temporary files to the folder `files`."""
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
    umask = PRIVATE_UMASK
    if not is_local(master):
        for name in ("spark.driver.bindAddress", "spark.driver.host", "spark.authenticate"):
            conf.pop(name, None)
        # Executors may run as other users: the files of both have the permissions that the user's umask allows.
        umask = _own_umask()
        conf |= {UMASK: f"{umask:03o}"} | {name: value for name, value in (extra or {}).items() if name == UMASK}
    # Not part of the options of Java, which may outlive this session and these folders.
    for name, value in (conf | (_temporary_conf(files) if files is not None else {})).items():
        builder = builder.config(name, value)
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    with _interrupts_kept(), _USERS.lock:
        try:
            launch_java(conf, log_file, umask)
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
    return session


def _own_umask() -> int:
    # The system returns it only when it is set.
    umask = os.umask(PRIVATE_UMASK)
    os.umask(umask)
    return umask


def _temporary_conf(files: Path) -> dict[str, str]:
    return {"spark.local.dir": str(files / "local"), "spark.sql.warehouse.dir": f"file://{files}/warehouse"}


def _set_temporary(files: Path | None) -> None:
    """Set the folder of Spark's temporary files; None is the folder of the system, for a Java process that outlives a
    session and its folder."""
    jvm: Any = SparkContext._jvm
    folder = tempfile.gettempdir() if files is None else str(make_folder(files / "tmp"))
    jvm.java.lang.System.setProperty("java.io.tmpdir", folder)


def end_session(session: SparkSession) -> None:
    """Stop Spark, unless another app of this process uses it; a Spark that was killed is not an error."""
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


def prepare_streams(session: SparkSession, flows: int) -> None:
    """Called before a streaming query starts, which writes many files. Sets the polling interval of all queries: each
    poll costs some milliseconds of a core, so the more flows there are, the less often they poll."""
    if _USERS.made(session):
        use_own_local_files(session)
    delay_ms = min(max(LOOK_MS_PER_FLOW * flows, LOOK_MS_MIN), LOOK_MS_MAX)
    session.conf.set("spark.sql.streaming.pollingDelay", f"{delay_ms}ms")


def own_session(session: SparkSession) -> SparkSession:
    """A session with the same settings and temporary views of its own."""
    return SparkSession(session.sparkContext, session._jsparkSession.cloneSession())


def require_classic(session: object) -> None:
    """MP901 for a session of Spark Connect, which has no access to the Java process of the driver."""
    if not isinstance(session, SparkSession):
        kind = f"{type(session).__module__}.{type(session).__qualname__}"
        hint = (
            "Pass a SparkSession with a master. Spark Connect cannot call the driver back with each batch of a stream."
        )
        raise SetupError("MP901", f"An app cannot run in a session of the type {kind}.", hint=hint)


def adopt_session(session: SparkSession, storage: str | None) -> SparkSession:
    """Prepare a session of the user: settings that determine the meaning of SQL are set, the others are not changed.
    MP905 for a session on a cluster without storage."""
    require_classic(session)
    master = session.sparkContext.master
    if storage is None and not is_local(master):
        message = (
            f"The session is on the cluster {master}: its executors need a folder that they share with the driver."
        )
        raise SetupError("MP905", message, hint='Name it: mp.App(..., settings={"storage": "/shared/folder"}).')
    for name, value in SEMANTIC_CONF.items():
        session.conf.set(name, value)
    return session


def require_java() -> None:
    """MP902 if there is no Java of a sufficient version: Spark itself would only show a stack trace."""
    java = find_java()
    hint = "Install a JDK of at least 17, e.g. apt-get install openjdk-17-jre-headless, and run: millpond doctor"
    if java is None:
        raise SetupError("MP902", "Spark requires Java, which was not found.", hint=hint)
    version = java_version(java)
    if version is not None and version < JAVA_MIN:
        raise SetupError("MP902", f"Spark requires Java {JAVA_MIN}, but this is {version}.", hint=hint)


def _first_line(error: BaseException) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0]


@contextmanager
def _interrupts_kept() -> Iterator[None]:
    """Restore the handler of Ctrl-C, which Spark's context replaces to cancel its jobs: ours lets batches finish."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    kept = signal.getsignal(signal.SIGINT)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, kept)
