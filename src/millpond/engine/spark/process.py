"""The Java process of Spark: how it is started, and whether it is alive."""

from __future__ import annotations

import atexit
import fcntl
import os
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from subprocess import Popen
from typing import Any

from pyspark import SparkConf, SparkContext
from pyspark.java_gateway import launch_gateway
from pyspark.sql import SparkSession

from millpond.engine.spark.class_archive import archive_use
from millpond.engine.spark.java import find_java, spark_jars
from millpond.errors import FlowError

GONE_HINT = "Start the app again; nothing was lost. Java may have been killed, or may have run out of memory."
# The variables that determine the encoding of file names; the first that is set counts.
_LOCALE = ("LC_ALL", "LC_CTYPE", "LANG")

# Files that Java writes are readable by the same user only, unless executors of other users have to read them too.
PRIVATE_UMASK = 0o077
JAVA_OPTIONS = "spark.driver.extraJavaOptions"
# Java's temporary folder; a lock in it shows that its process is alive.
TEMPORARY, LOCK = "millpond-java-", "lock"


def launch_java(conf: Mapping[str, str], log_file: Path | None, umask: int = PRIVATE_UMASK) -> None:
    """Start Java unless it is running. Its output goes to `log_file` (discarded without one), never to the terminal.

    Java is not in our process group: a signal to the group, as sent by `timeout`, is meant for us; we finish the
    current batch and need Spark for that. Java ends when this process does."""
    if has_ended():
        _forget()
    if SparkContext._gateway is not None:
        return
    given = conf.get(JAVA_OPTIONS, "")
    use = archive_use(find_java(), spark_jars(), given, os.environ)
    options = f"{given} -Djava.io.tmpdir={_temporary_folder()} {use.options}".strip()
    settings = SparkConf().setAll([*conf.items(), (JAVA_OPTIONS, options)])
    target = os.open(log_file or os.devnull, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    locks = () if use.lock is None else (use.lock,)
    try:
        with _file_names_in_utf8():
            popen = {"start_new_session": True, "stdout": target, "stderr": target, "umask": umask}
            SparkContext._ensure_initialized(gateway=launch_gateway(settings, popen | {"pass_fds": locks}))
        _settle_temporary_folder()
    finally:
        for file in (target, *locks):
            os.close(file)


def has_ended() -> bool:
    """Whether Java was started by this process and has ended. Callable from any thread; cheap."""
    process = _process()
    return process is not None and process.poll() is not None


def java_memory() -> int | None:
    """The memory of the Java process, in bytes; None if it was not started or cannot be determined."""
    process = _process()
    return None if process is None or process.poll() is not None else resident_bytes(process.pid)


def resident_bytes(process: int) -> int | None:
    """The memory of a process, in bytes; None where the system does not report it."""
    try:
        pages = int(Path(f"/proc/{process}/statm").read_text("ascii").split()[1])
    except (OSError, ValueError, IndexError):
        return None
    return pages * os.sysconf("SC_PAGE_SIZE")


def is_ending() -> bool:
    """Whether Java has ended or is ending: other failures are then a consequence."""
    gateway: Any = SparkContext._gateway
    if gateway is None or has_ended():
        return gateway is not None
    try:
        return bool(gateway.jvm.org.apache.spark.util.ShutdownHookManager.inShutdown())
    except Exception:
        # Any call shows whether Java still responds.
        return True


def java_gone() -> FlowError:
    """MP705 for an app whose Java process has ended."""
    return FlowError("MP705", "Spark has stopped: its Java process has ended.", hint=GONE_HINT)


def _temporary_folder() -> Path:
    """A private folder for as long as this process lives: libraries that Java unpacks, such as zstd, must not be in the
    state directory of an app, which may be deleted while Java continues for another app."""
    for left in Path(tempfile.gettempdir()).glob(TEMPORARY + "*"):
        _remove_unused(left)
    folder = Path(tempfile.mkdtemp(prefix=TEMPORARY))
    # Locked before it gets its name, so that no other process takes it for an abandoned folder.
    lock = os.open(folder / "new", os.O_RDWR | os.O_CREAT, 0o600)
    fcntl.flock(lock, fcntl.LOCK_EX)
    (folder / "new").rename(folder / LOCK)
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder


def _remove_unused(folder: Path) -> None:
    """Remove the folder of a process that was killed, unless it belongs to another user or is in use."""
    try:
        lock = os.open(folder / LOCK, os.O_RDWR)
    except OSError:
        return
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        shutil.rmtree(folder, ignore_errors=True)
    except OSError:
        return
    finally:
        os.close(lock)


def _settle_temporary_folder() -> None:
    """Java fixes this folder at its first temporary file; after that the property affects only Spark's own files."""
    jvm: Any = SparkContext._jvm
    jvm.java.io.File.createTempFile("millpond", None).delete()


def _process() -> Popen[bytes] | None:
    gateway = SparkContext._gateway
    # py4j looks up a missing attribute in Java.
    process = None if gateway is None else gateway.__dict__.get("proc")
    return process if isinstance(process, Popen) else None


def _forget() -> None:
    """Let PySpark start a new Java process instead of the ended one."""
    SparkContext._gateway = SparkContext._jvm = SparkContext._active_spark_context = None
    SparkSession._instantiatedSession = None


@contextmanager
def _file_names_in_utf8() -> Iterator[None]:
    """Java takes the encoding of file names from the locale: under `LC_ALL=C` it could not open names beyond ASCII."""
    named = next((os.environ[name] for name in _LOCALE if os.environ.get(name)), "")
    if "utf" in named.lower():
        yield
        return
    before = os.environ.get("LC_ALL")
    os.environ["LC_ALL"] = "C.UTF-8"
    try:
        yield
    finally:
        del os.environ["LC_ALL"]
        if before is not None:
            os.environ["LC_ALL"] = before
