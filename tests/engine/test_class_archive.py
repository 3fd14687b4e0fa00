"""The archive of Java's classes: made, used and dropped; whatever becomes of it, Spark starts."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from millpond.engine.spark.class_archive import (
    FOLDER_VARIABLE,
    KEPT,
    NONE,
    ClassArchive,
    _checksum,
    archive_folder,
    archive_use,
    install_archive,
)
from millpond.engine.spark.java import find_java, spark_jars
from millpond.errors import SetupError

PATIENCE_S = 300.0
# Starts Spark and reports from which archive a class of Spark itself came.
SESSION = """
import sys
from pathlib import Path
from millpond.engine.spark.session import build_session

log = Path(sys.argv[1])
session = build_session(extra={"spark.driver.extraJavaOptions": f"-Xlog:class+load:file={log}"})
assert session.range(3).count() == 3
session.stop()
lines = [line for line in log.read_text().splitlines() if " org.apache.spark.SparkContext " in line]
print("shared" if "shared objects file (top)" in lines[0] else "loaded")
"""


def java() -> Path:
    found = find_java()
    assert found is not None
    return found


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "classes"


@pytest.fixture
def jars(tmp_path: Path) -> Path:
    made = tmp_path / "jars"
    made.mkdir()
    (made / "spark.jar").write_text("first")
    return made


def archive(folder: Path, jars: Path) -> ClassArchive:
    found = ClassArchive.of(java(), jars, {FOLDER_VARIABLE: str(folder)})
    assert found is not None
    return found


@pytest.fixture
def made(folder: Path, jars: Path) -> Path:
    """An archive that a Java has left, and the next start has taken over. Java ignores its content."""
    of = archive(folder, jars)
    use = of.use()
    assert use.options.endswith(f"ArchiveClassesAtExit={of._file('new')}")
    assert use.lock is not None
    of._file("new").write_bytes(b"archive" * 1000)
    os.close(use.lock)
    again = of.use()
    found = of.find()
    assert found is not None
    assert again.options.endswith(f"SharedArchiveFile={found}")
    return found


def test_it_is_used_as_long_as_the_versions_are_the_same(made: Path, folder: Path, jars: Path) -> None:
    assert archive(folder, jars).use().options.endswith(f"SharedArchiveFile={made}")
    (jars / "spark.jar").write_text("second version")
    use = archive(folder, jars).use()
    assert "ArchiveClassesAtExit" in use.options
    assert not made.exists()
    assert use.lock is not None
    os.close(use.lock)


def test_one_that_is_damaged_or_was_not_finished_is_removed(made: Path, folder: Path, jars: Path) -> None:
    whole = bytearray(made.read_bytes())
    whole[len(whole) // 2] ^= 1
    made.write_bytes(whole)
    of = archive(folder, jars)
    use = of.use()
    assert "ArchiveClassesAtExit" in use.options
    assert not made.exists()
    of._file("new").write_bytes(bytes(4096))
    assert use.lock is not None
    os.close(use.lock)
    again = of.use()
    assert "ArchiveClassesAtExit" in again.options
    assert not of._file("new").exists()
    assert again.lock is not None
    os.close(again.lock)


def test_only_one_java_at_a_time_writes_it(folder: Path, jars: Path) -> None:
    first = archive(folder, jars).use()
    assert archive(folder, jars).use() == NONE
    assert first.lock is not None
    os.close(first.lock)


def test_those_of_other_installations_are_kept_up_to_a_number(made: Path, folder: Path, jars: Path) -> None:
    for number in range(KEPT + 2):
        other = folder / f"other{number}-1-2.jsa"
        other.write_bytes(b"")
        os.utime(other, (number, number))
    archive(folder, jars).use()
    assert sorted(found.name for found in folder.glob("*.jsa")) == sorted(
        [made.name, *(f"other{KEPT + 1 - number}-1-2.jsa" for number in range(KEPT - 1))]
    )


def test_there_is_none_where_it_is_not_wanted_or_cannot_be(folder: Path, jars: Path, tmp_path: Path) -> None:
    assert archive_folder({FOLDER_VARIABLE: "off"}) is None
    assert archive_folder({"HOME": "/home/a b"}) is None
    assert archive_folder({"HOME": "/home/a", "JAVA_TOOL_OPTIONS": "-XX:SharedArchiveFile=/x.jsa"}) is None
    assert archive_folder({"HOME": "/home/a"}) == Path("/home/a/.cache/millpond/classes")
    around = {FOLDER_VARIABLE: str(folder)}
    assert archive_use(java(), jars, "-Xmx1g -Xshare:off", around) == NONE
    assert archive_use(None, jars, "", around) == NONE
    folder.write_text("no folder")
    assert archive_use(java(), jars, "", around) == NONE
    other = tmp_path / "jdk" / "bin" / "java"
    assert ClassArchive.of(other, jars, around) is None
    with pytest.raises(SetupError, match="MP904"):
        install_archive(other, jars, around)


def test_it_can_be_removed(made: Path, folder: Path, jars: Path) -> None:
    assert made.name.endswith(f"-{_checksum(made)}.jsa")
    archive(folder, jars).drop()
    assert list(folder.iterdir()) == []


def session(folder: Path, log: Path) -> str:
    words = [sys.executable, "-c", SESSION, str(log)]
    around = {**os.environ, FOLDER_VARIABLE: str(folder)}
    done = subprocess.run(words, env=around, capture_output=True, text=True, check=False, timeout=PATIENCE_S)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


@pytest.mark.process
def test_spark_leaves_an_archive_and_starts_with_it_and_without_a_damaged_one(folder: Path, tmp_path: Path) -> None:
    assert session(folder, tmp_path / "first.log") == "loaded"
    made = archive(folder, spark_jars()).wait()
    assert made is not None
    assert session(folder, tmp_path / "second.log") == "shared"
    os.chmod(made, 0o600)
    with made.open("r+b") as content:
        content.seek(made.stat().st_size // 2)
        content.write(b"damaged")
    assert session(folder, tmp_path / "third.log") == "loaded"
    assert not made.exists()
