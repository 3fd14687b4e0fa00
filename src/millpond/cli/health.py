"""What Millpond needs of a machine, one check per thing; each tells what it found and the command that brings it."""

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

from millpond.runtime.spark.jars import jars_folder
from millpond.runtime.spark.java import JAVA_MIN, find_java, java_version

# A missing thing stops Millpond, a warning does not; a state can be damaged.
OK, WARN, MISSING, DAMAGED = "ok", "warn", "missing", "damaged"

PYTHON_MIN = (3, 11)
MEMORY_MIN_BYTES = 2 * 1024**3
DISK_MIN_BYTES = 1024**3
# Before this Millpond did not exist: a clock that says so is wrong, and so would be every time in a table.
CLOCK_MIN_YEAR = 2026
SCALA = "2.13"
NEEDED = ("pyspark", "pyarrow", "numpy", "polars", "sqlglot", "rich")
JAVA_INSTALLERS = {
    "apt-get": f"apt-get install -y openjdk-{JAVA_MIN}-jre-headless",
    "dnf": f"dnf install -y java-{JAVA_MIN}-openjdk-headless",
    "apk": f"apk add openjdk{JAVA_MIN}-jre-headless",
    "brew": f"brew install openjdk@{JAVA_MIN}",
}


@dataclass(frozen=True)
class Finding:
    """One line of the report; `command` brings what is missing."""

    name: str
    state: str
    detail: str
    command: str = ""


@dataclass(frozen=True)
class Machine:
    """What is looked at: the environment, and the folder in which apps and their state would lie."""

    environment: Mapping[str, str]
    folder: Path


def python(machine: Machine) -> Iterator[Finding]:
    fits = sys.version_info[:2] >= PYTHON_MIN
    wanted = ".".join(map(str, PYTHON_MIN))
    command = "" if fits else f"install Python {wanted} or newer and make the environment again"
    yield Finding("Python", OK if fits else MISSING, f"{platform.python_version()} at {sys.executable}", command)


def java(machine: Machine) -> Iterator[Finding]:
    found = find_java(machine.environment)
    home = machine.environment.get("JAVA_HOME")
    if found is None and home:
        yield Finding("Java", MISSING, f"JAVA_HOME is {home}, and there is no bin/java in it", "unset JAVA_HOME")
        return
    if found is None:
        yield Finding("Java", MISSING, f"not found; Spark needs {JAVA_MIN} or newer", _install_java())
        return
    version = java_version(found)
    if version is None:
        yield Finding("Java", WARN, f"{found} does not tell its version; Spark needs {JAVA_MIN} or newer")
    elif version < JAVA_MIN:
        detail = f"{version} at {found}; Spark needs {JAVA_MIN} or newer"
        yield Finding("Java", MISSING, detail, f"{_install_java()}, and point JAVA_HOME to it")
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
    yield Finding("cores", OK if count > 1 else WARN, detail if count > 1 else f"{detail}; two or more are better")


def memory(machine: Machine) -> Iterator[Finding]:
    available = _memory_bytes()
    if available is None:
        yield Finding("memory", WARN, "cannot be told on this system")
        return
    enough = available >= MEMORY_MIN_BYTES
    detail = f"{_gigabytes(available)} available"
    yield Finding("memory", OK if enough else WARN, detail if enough else f"{detail}; Spark wants 2 GB or more")


def _memory_bytes() -> int | None:
    """What the kernel says is available, or the container's limit when that is less."""
    try:
        told = re.search(r"^MemAvailable:\s+(\d+) kB", Path("/proc/meminfo").read_text("ascii"), re.MULTILINE)
    except OSError:
        told = None
    kernel = int(told[1]) * 1024 if told else _pages_bytes()
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
    command = "" if enough else "make room, or keep state elsewhere with --state DIR"
    yield Finding("disk", OK if enough else WARN, detail, command)


def folders(machine: Machine) -> Iterator[Finding]:
    """The temporary folder, which Spark needs, and this one, where state would lie."""
    yield _writable("temporary folder", Path(tempfile.gettempdir()), MISSING, "export TMPDIR=DIR with a folder you own")
    yield _writable("this folder", machine.folder, WARN, "keep state elsewhere with --state DIR")


def _writable(name: str, folder: Path, otherwise: str, command: str) -> Finding:
    try:
        with tempfile.TemporaryFile(dir=folder):
            return Finding(name, OK, f"{folder} can be written")
    except OSError as error:
        return Finding(name, otherwise, f"{folder} cannot be written: {error.strerror}", command)


def host_name(machine: Machine) -> Iterator[Finding]:
    """Spark looks up the machine's own name when it starts, and fails if nobody knows it."""
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
    yield Finding("kafka jars", WARN, "not here; only kafka:// needs them", "millpond doctor --install kafka")


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

# In the order in which they are printed: what everything needs comes first.
CHECKS: tuple[Check, ...] = (python, java, packages, cores, memory, disk, folders, host_name, clock, kafka)
