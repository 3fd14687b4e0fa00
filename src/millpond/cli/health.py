"""The checks of `millpond doctor`: each reports what it found and the command that installs what is missing."""

from __future__ import annotations

import datetime as dt
import os
import platform
import re
import shutil
import socket
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path

from millpond.engine.spark.java import JAVA_MIN, find_java, jars_folder, java_version

# MISSING prevents Millpond from running, WARN does not; DAMAGED is for state directories.
OK, WARN, MISSING, DAMAGED = "ok", "warn", "missing", "damaged"

PYTHON_MIN = (3, 11)
MEMORY_MIN_BYTES = 2 * 1024**3
DISK_MIN_BYTES = 1024**3
# A clock before this date, when Millpond did not exist, is wrong, and so would be every timestamp in a table.
CLOCK_MIN_YEAR = 2026
SCALA = "2.13"
NEEDED = ("pyspark", "pyarrow", "numpy", "sqlglot", "rich")
JAVA_INSTALLERS = {
    "apt-get": f"apt-get install -y openjdk-{JAVA_MIN}-jre-headless",
    "dnf": f"dnf install -y java-{JAVA_MIN}-openjdk-headless",
    "apk": f"apk add openjdk{JAVA_MIN}-jre-headless",
    "brew": f"brew install openjdk@{JAVA_MIN}",
}


@dataclass(frozen=True)
class Finding:
    """One line of the report; `command` fixes the problem."""

    name: str
    state: str
    detail: str
    command: str = ""


@dataclass(frozen=True)
class Machine:
    """What is checked: the environment, and the folder of apps and their state."""

    environment: Mapping[str, str]
    folder: Path


def python(machine: Machine) -> Iterator[Finding]:
    fits = sys.version_info[:2] >= PYTHON_MIN
    wanted = ".".join(map(str, PYTHON_MIN))
    command = "" if fits else f"install Python {wanted} or newer and recreate the environment"
    yield Finding("Python", OK if fits else MISSING, f"{platform.python_version()} at {sys.executable}", command)


def java(machine: Machine) -> Iterator[Finding]:
    found = find_java(machine.environment)
    home = machine.environment.get("JAVA_HOME")
    if found is None and home:
        yield Finding("Java", MISSING, f"JAVA_HOME is {home}, which has no bin/java", "unset JAVA_HOME")
        return
    if found is None:
        yield Finding("Java", MISSING, f"not found; Spark requires {JAVA_MIN} or newer", _install_java())
        return
    version = java_version(found)
    if version is None:
        yield Finding("Java", WARN, f"{found} does not report its version; Spark requires {JAVA_MIN} or newer")
    elif version < JAVA_MIN:
        detail = f"{version} at {found}; Spark requires {JAVA_MIN} or newer"
        yield Finding("Java", MISSING, detail, f"{_install_java()}, and set JAVA_HOME to it")
    else:
        yield Finding("Java", OK, f"{version} at {found}{'' if home else ' (JAVA_HOME is not set, which is fine)'}")


def _install_java() -> str:
    commands = (command for tool, command in JAVA_INSTALLERS.items() if shutil.which(tool))
    return next(commands, f"install a JDK {JAVA_MIN} from https://adoptium.net")


def packages(machine: Machine) -> Iterator[Finding]:
    for name in NEEDED:
        try:
            yield Finding(name, OK, metadata.version(name))
        except metadata.PackageNotFoundError:
            yield Finding(name, MISSING, "not installed", f"{sys.executable} -m pip install {name}")


def cores(machine: Machine) -> Iterator[Finding]:
    count = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    detail = f"{count} for this process"
    yield Finding("cores", OK if count > 1 else WARN, detail if count > 1 else f"{detail}; two or more are recommended")


def memory(machine: Machine) -> Iterator[Finding]:
    available = _memory_bytes()
    if available is None:
        yield Finding("memory", WARN, "cannot be determined on this system")
        return
    enough = available >= MEMORY_MIN_BYTES
    detail = f"{_gigabytes(available)} available"
    yield Finding("memory", OK if enough else WARN, detail if enough else f"{detail}; Spark requires 2 GB or more")


def _memory_bytes() -> int | None:
    """The available memory according to the kernel, or the container's limit if that is less."""
    try:
        found = re.search(r"^MemAvailable:\s+(\d+) kB", Path("/proc/meminfo").read_text("ascii"), re.MULTILINE)
    except OSError:
        found = None
    kernel = int(found[1]) * 1024 if found else _pages_bytes()
    try:
        limit = Path("/sys/fs/cgroup/memory.max").read_text("ascii").strip()
    except OSError:
        limit = "max"
    if kernel is None or not limit.isdigit():
        return kernel
    return min(kernel, int(limit))


def _pages_bytes() -> int | None:
    try:
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (ValueError, OSError):
        return None


def disk(machine: Machine) -> Iterator[Finding]:
    free = shutil.disk_usage(machine.folder).free
    enough = free >= DISK_MIN_BYTES
    detail = f"{_gigabytes(free)} free for state in {machine.folder}"
    command = "" if enough else "free some space, or use another folder with --state DIR"
    yield Finding("disk", OK if enough else WARN, detail, command)


def folders(machine: Machine) -> Iterator[Finding]:
    """The temporary folder, which Spark requires, and the current folder, where state is stored by default."""
    yield _writable("temporary folder", Path(tempfile.gettempdir()), MISSING, "export TMPDIR=DIR with a folder you own")
    yield _writable("this folder", machine.folder, WARN, "use another folder with --state DIR")


def _writable(name: str, folder: Path, otherwise: str, command: str) -> Finding:
    try:
        with tempfile.TemporaryFile(dir=folder):
            return Finding(name, OK, f"{folder} is writable")
    except OSError as error:
        return Finding(name, otherwise, f"{folder} is not writable: {error.strerror}", command)


def host_name(machine: Machine) -> Iterator[Finding]:
    """Spark resolves the machine's own name when it starts, and fails if that is not possible."""
    name = socket.gethostname()
    if address := machine.environment.get("SPARK_LOCAL_IP"):
        yield Finding("host name", OK, f"SPARK_LOCAL_IP is {address}")
        return
    try:
        yield Finding("host name", OK, f"{name} is {socket.gethostbyname(name)}")
    except OSError:
        yield Finding("host name", WARN, f"{name} has no address", "export SPARK_LOCAL_IP=127.0.0.1")


def clock(machine: Machine) -> Iterator[Finding]:
    now = dt.datetime.now().astimezone()
    right = now.year >= CLOCK_MIN_YEAR
    detail = f"{now.isoformat(timespec='seconds')} ({now.tzname()}); sessions run in UTC unless time.zone is set"
    yield Finding("clock", OK if right else WARN, detail, "" if right else "set the clock of this machine")


def kafka(machine: Machine) -> Iterator[Finding]:
    jar = _kafka_jar(machine.environment)
    if jar is not None:
        yield Finding("kafka jars", OK, str(jar))
        return
    yield Finding("kafka jars", WARN, "not installed; only kafka:// requires them", "millpond doctor --install kafka")


def _kafka_jar(environment: Mapping[str, str]) -> Path | None:
    """The connector in Millpond's cache, or in Spark's own jars."""
    spec = find_spec("pyspark")
    spark = [Path(spec.origin).parent / "jars"] if spec and spec.origin else []
    for folder in (jars_folder(environment), *spark):
        if found := sorted(folder.glob(f"*spark-sql-kafka-0-10_{SCALA}-*.jar")):
            return found[-1]
    return None


def _gigabytes(count: int) -> str:
    return f"{count / 1024**3:.1f} GB"


Check = Callable[[Machine], Iterator[Finding]]

# In the order in which they are printed: what everything depends on comes first.
CHECKS: tuple[Check, ...] = (python, java, packages, cores, memory, disk, folders, host_name, clock, kafka)
