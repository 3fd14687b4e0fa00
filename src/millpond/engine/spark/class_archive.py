"""A class-data archive of Java: Spark's classes as Java had loaded them, mapped into memory at the next start.

Java writes it to the cache folder when it ends, if there is none. Its name contains the versions of Java and of Spark's
jars; archives of other versions are removed. No start depends on it: a damaged archive is removed, and without one Java
starts more slowly."""

from __future__ import annotations

import fcntl
import hashlib
import os
import subprocess
import sys
import zlib
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from millpond.disk import make_folder
from millpond.errors import SetupError

FOLDER_VARIABLE, OFF = "MILLPOND_CLASS_ARCHIVE", "off"
# Other places from which Java takes options; if one of them names an archive, that one is used.
OPTION_VARIABLES = ("JAVA_TOOL_OPTIONS", "JDK_JAVA_OPTIONS", "_JAVA_OPTIONS", "SPARK_SUBMIT_OPTS")
# Java logs every class that it cannot archive.
QUIET = "-Xlog:cds=off -Xlog:cds+dynamic=off"
# The number of archives, of several installations; each has 150 MB.
KEPT = 3
TRY_S = 60.0
CHUNK = 1 << 20


@dataclass(frozen=True)
class ArchiveUse:
    """Options for Java, and a lock that it must inherit while it may write an archive."""

    options: str = ""
    lock: int | None = None


NONE = ArchiveUse()


@dataclass(frozen=True)
class ClassArchive:
    """The archive of one installation of Java and Spark, `place`, in their current versions."""

    folder: Path
    java: Path
    place: str
    versions: str

    @classmethod
    def of(cls, java: Path, jars: Path, environment: Mapping[str, str]) -> ClassArchive | None:
        """None if the user has turned archives off, or if this Java does not support them."""
        folder = archive_folder(environment)
        home = java.resolve().parent.parent
        if folder is None or not (home / "lib" / "server" / "classes.jsa").exists():
            return None
        listed = sorted((jar.name, jar.stat().st_size, jar.stat().st_mtime_ns) for jar in jars.glob("*.jar"))
        release = home / "release"
        versions = release.read_bytes() if release.is_file() else b""
        return cls(
            folder, java, _digest(f"{home} {jars.resolve()}".encode()), _digest(versions + repr(listed).encode())
        )

    def use(self) -> ArchiveUse:
        """The options to use the archive; if there is none, to write one, unless another Java is about to."""
        make_folder(self.folder)
        self._drop_others()
        if (found := self.find()) is not None:
            os.utime(found)
            return ArchiveUse(f"{QUIET} -XX:SharedArchiveFile={found}")
        lock = os.open(self._file("lock"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(lock)
            return NONE
        if (found := self.adopt()) is not None:
            os.close(lock)
            return ArchiveUse(f"{QUIET} -XX:SharedArchiveFile={found}")
        return ArchiveUse(f"{QUIET} -XX:ArchiveClassesAtExit={self._file('new')}", lock)

    def find(self) -> Path | None:
        """The existing archive; a damaged one is removed."""
        for found in self.folder.glob(f"{self._name}-*.jsa"):
            if found.stem.rpartition("-")[2] == _checksum(found):
                return found
            found.unlink(missing_ok=True)
        return None

    def adopt(self) -> Path | None:
        """Take over the file that an ended Java has written, if another Java can start with it. Its name contains its
        checksum."""
        new = self._file("new")
        if not new.exists():
            return None
        if not self._starts_with(new):
            new.unlink()
            return None
        return new.rename(self.folder / f"{self._name}-{_checksum(new)}.jsa")

    def wait(self) -> Path | None:
        """The archive, after the Java that may be writing it has ended."""
        lock = os.open(self._file("lock"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX)
            return self.find() or self.adopt()
        finally:
            os.close(lock)

    def drop(self) -> None:
        """Remove it."""
        for found in self.folder.glob(f"{self._name}[-.]*"):
            found.unlink(missing_ok=True)

    @property
    def _name(self) -> str:
        return f"{self.place}-{self.versions}"

    def _file(self, ending: str) -> Path:
        return self.folder / f"{self._name}.{ending}"

    def _drop_others(self) -> None:
        """The archives of earlier versions, and the least recently used ones if there are many."""
        earlier = [f for f in self.folder.glob(f"{self.place}-*") if not f.name.startswith(self._name)]
        by_age = sorted(self.folder.glob("*.jsa"), key=lambda found: found.stat().st_mtime)
        for found in (*earlier, *by_age[:-KEPT]):
            found.unlink(missing_ok=True)

    def _starts_with(self, file: Path) -> bool:
        # The header is written last: it is zero in the file of a Java that was killed.
        with file.open("rb") as content:
            if not any(content.read(4)):
                return False
        words = [str(self.java), f"-XX:SharedArchiveFile={file}", "-version"]
        try:
            return subprocess.run(words, capture_output=True, check=False, timeout=TRY_S).returncode == 0
        except (OSError, subprocess.TimeoutExpired):
            return False


def archive_folder(environment: Mapping[str, str]) -> Path | None:
    """The folder of the archives; None if they are turned off."""
    named = environment.get(FOLDER_VARIABLE, "")
    given = (environment.get(name, "").lower() for name in OPTION_VARIABLES)
    if named.lower() == OFF or any(names_archive(options) for options in given):
        return None
    home = Path(environment.get("HOME", "~")).expanduser()
    folder = Path(named).expanduser() if named else home / ".cache" / "millpond" / "classes"
    # Spark splits options at blanks.
    return None if any(c.isspace() or c in "'\"\\" for c in str(folder)) else folder


def names_archive(options: str) -> bool:
    """Whether options of Java name an archive."""
    return any(word in options.lower() for word in ("sharedarchivefile", "archiveclassesatexit", "-xshare"))


def archive_use(java: Path | None, jars: Path, options: str, environment: Mapping[str, str]) -> ArchiveUse:
    """The options to start Java with, in addition to the given ones; if this fails for any reason, Java starts
    without."""
    if java is None or names_archive(options):
        return NONE
    with suppress(OSError):
        archive = ClassArchive.of(java, jars, environment)
        return NONE if archive is None else archive.use()
    return NONE


# Runs every kind of statement on Spark, so that the archive contains what apps need: batches, joins, groups, windows,
# sinks, and the streaming query of a join of two streams.
TRAINING = """
import os, sys
from pathlib import Path
import millpond as mp

folder = Path(sys.argv[1])
line = '{"k": 1, "v": "x", "x": 1.50, "ts": "2026-01-01T00:00:01Z"}\\n'
columns = "(k INT, v STRING, x DECIMAL(12,2), ts TIMESTAMP, WATERMARK FOR ts AS ts - INTERVAL 5 SECONDS)"
for name in ("a", "b"):
    (folder / f"{name}.jsonl").write_text(line)
(folder / "app.sql").write_text(f'''
CREATE STREAM a {columns} FROM 'file:a.jsonl';
CREATE STREAM b {columns} FROM 'file:b.jsonl';
CREATE TABLE names (k INT PRIMARY KEY, name STRING);
INSERT INTO names VALUES (1, 'one'), (2, 'two');
CREATE TABLE totals AS SELECT k, COUNT(*) AS n, SUM(x) AS x, AVG(x) AS mean FROM a GROUP BY k;
CREATE TABLE minutes AS SELECT window_start, COUNT(*) AS n FROM a GROUP BY TUMBLING(ts, INTERVAL 1 MINUTE);
INSERT INTO 'file:out' SELECT a.k, upper(a.v) AS v, n.name FROM a LEFT JOIN names n ON n.k = a.k;
CREATE TABLE pairs (k INT, v STRING, w STRING);
INSERT INTO pairs SELECT a.k, a.v, b.v FROM a JOIN b ON a.k = b.k AND b.ts BETWEEN a.ts - INTERVAL 5 SECONDS AND a.ts;
''')
app = mp.App(folder / "app.sql")
app.run_once()
app.stop()
"""
TRAINING_S = 900.0


def install_archive(java: Path | None, jars: Path, environment: Mapping[str, str]) -> Path:
    """Create the archive again and return it; MP904 if that is not possible."""
    archive = None if java is None else ClassArchive.of(java, jars, environment)
    if archive is None:
        hint = f"It requires a Java with an archive of its own classes, and {FOLDER_VARIABLE} must not be '{OFF}'."
        raise SetupError("MP904", "An archive of Java's classes cannot be made here.", hint=hint)
    archive.drop()
    with TemporaryDirectory(prefix="millpond-classes-") as folder:
        words, around = [sys.executable, "-c", TRAINING, folder], {**environment, "MILLPOND_ENGINE": "spark"}
        done = subprocess.run(words, env=around, capture_output=True, text=True, check=False, timeout=TRAINING_S)
    found = archive.wait() if done.returncode == 0 else None
    if found is None:
        failure = (done.stderr.strip().splitlines() or ["Java has left none"])[-1]
        raise SetupError("MP904", f"The archive of Java's classes was not made: {failure}", hint="Run: millpond doctor")
    return found


def _digest(content: bytes) -> str:
    return hashlib.blake2b(content, digest_size=6).hexdigest()


def _checksum(file: Path) -> str:
    total = 0
    for part in _parts(file):
        total = zlib.crc32(part, total)
    return f"{total:08x}"


def _parts(file: Path) -> Iterator[bytes]:
    with file.open("rb") as content:
        while part := content.read(CHUNK):
            yield part
