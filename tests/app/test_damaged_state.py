"""Any file of a state directory that is removed, emptied, cut or changed: the right rows, or an error that names it."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import millpond as mp
from millpond.cli.doctor import _examined
from millpond.cli.health import DAMAGED, OK
from millpond.cli.main import main
from millpond.errors import StateError

APP = """
CREATE STREAM ticks (id INT) FROM 'memory://ticks';
CREATE STREAM found FROM 'file://FOLDER/found.csv' WITH ('max.rows.per.batch' = '1');
CREATE TABLE seen (id INT PRIMARY KEY, n INT);
INSERT INTO seen SELECT id, 1 FROM ticks;
CREATE TABLE total AS SELECT COUNT(*) AS n, SUM(b) AS s FROM found;
"""
pytestmark = pytest.mark.spark

# Files whose content is of no use to a later start.
PASSING = ("lock", "spark.log")


def give(folder: Path, spark: Any, *ids: int) -> None:
    """Records that are safe in the feed and not yet in the tables."""
    app = mp.App(folder / "app.sql", spark=spark)
    for id_ in ids:
        app.feed("memory://ticks").send([{"id": id_}])
    app.stop()


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory, spark: Any) -> Path:
    """An app after a few batches, with two feed files that wait."""
    folder = tmp_path_factory.mktemp("made") / "app"
    folder.mkdir()
    # Outside of what is copied: a copy of a file would be read as another one.
    (folder / "app.sql").write_text(APP.replace("FOLDER", str(folder.parent)))
    (folder.parent / "found.csv").write_text("a,b\n1,10\n2,20\n3,30\n")
    give(folder, spark, 1, 2)
    app = mp.App(folder / "app.sql", spark=spark)
    app.run_once()
    app.stop()
    give(folder, spark, 3, 4)
    return folder


def remove(file: Path) -> None:
    file.unlink()


def empty(file: Path) -> None:
    file.write_bytes(b"")


def halve(file: Path) -> None:
    whole = file.read_bytes()
    file.write_bytes(whole[: len(whole) // 2])


def flip(file: Path) -> None:
    """Change a digit if there is one, so that what was text or JSON stays so."""
    whole = bytearray(file.read_bytes())
    digits = [at for at, byte in enumerate(whole) if chr(byte).isdigit()] or [len(whole) // 2]
    whole[digits[len(digits) // 2]] ^= 1
    file.write_bytes(whole)


DAMAGES: tuple[Callable[[Path], None], ...] = (remove, empty, halve, flip)


def files_of(state: Path) -> Iterator[Path]:
    for file in sorted(state.rglob("*")):
        if file.is_file() and file.name not in PASSING:
            yield file.relative_to(state)


def damaged(made: Path, folder: Path, file: Path, damage: Callable[[Path], None]) -> Path:
    """A copy of the app with one file of its state damaged."""
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(made, folder)
    damage(folder / ".millpond" / "app" / file)
    return folder


def waiting(folder: Path, spark: Any) -> list[list[int]]:
    """What each flow would read next, with the ledger's batches done: what a start does before it runs a batch."""
    app = mp.App(folder / "app.sql", spark=spark)
    try:
        found = []
        for flow in app._open().flows:
            flow.open()
            assert flow.reader is not None
            feed: Any = flow.reader.given
            assert feed is not None
            numbers = [n for n in sorted(feed._numbers().values()) if n > flow.commits.entry.batch + 1]
            for number in numbers:
                feed.verify(number - 1)
            found.append(numbers)
        return found
    finally:
        app.stop()


def after(damaged: Path, spark: Any) -> list[list[int]] | StateError:
    try:
        return waiting(damaged, spark)
    except StateError as error:
        return error


def test_every_damage_is_harmless_or_reported_and_the_doctor_finds_it(made: Path, tmp_path: Path, spark: Any) -> None:
    expected = waiting(damaged(made, tmp_path / "app", Path("lock"), lambda file: None), spark)
    assert expected == [[3, 4], []]
    assert [finding.state for finding in _examined(made / ".millpond" / "app")] == [OK]
    for file in files_of(made / ".millpond" / "app"):
        for damage in DAMAGES:
            folder = damaged(made, tmp_path / "app", file, damage)
            what = f"{damage.__name__} {file}"
            reported = [f"{finding.state} {finding.detail}" for finding in _examined(folder / ".millpond" / "app")]
            found = after(folder, spark)
            if isinstance(found, StateError):
                assert found.code == "MP809" or (found.code == "MP804" and file.name in str(found)), f"{what}: {found}"
                assert any(line.startswith(DAMAGED) for line in reported), f"{what}: {reported}"
            else:
                assert found == expected, what


@pytest.mark.parametrize(
    ("pattern", "wrong"),
    [
        ("flows/ticks*/source/journal.jsonl", "journal.jsonl is damaged in line"),
        ("flows/ticks*/source/feed/*4.parquet", "000000000004.parquet is damaged"),
        ("app.json", "app.json is damaged"),
    ],
)
def test_a_run_names_the_file(made: Path, tmp_path: Path, spark: Any, pattern: str, wrong: str) -> None:
    state = made / ".millpond" / "app"
    file = sorted(state.glob(pattern))[-1].relative_to(state)
    folder = damaged(made, tmp_path / "app", file, flip)
    with pytest.raises(StateError, match=f"MP804.*{wrong}"):
        mp.App(folder / "app.sql", spark=spark).run_once()


def test_a_run_goes_on_with_what_waits_in_the_feed(made: Path, tmp_path: Path, spark: Any) -> None:
    folder = damaged(made, tmp_path / "app", Path("lock"), lambda file: None)
    app = mp.App(folder / "app.sql", spark=spark)
    app.run_once()
    assert sorted(app.table("seen").values("id")) == [1, 2, 3, 4]
    assert app.table("total").to_arrow().to_pylist() == [{"n": 3, "s": 60}]
    app.stop()


def test_repair_makes_the_identity_again_from_the_ledger(
    made: Path, tmp_path: Path, spark: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = damaged(made, tmp_path / "app", Path("app.json"), remove)
    state = folder / ".millpond" / "app"
    assert main(["doctor", "--state", str(state)]) == 1
    assert "app.json is missing" in capsys.readouterr().out
    assert main(["doctor", "--repair", "--state", str(state)]) == 0
    assert "app.json was rebuilt from the ledger" in capsys.readouterr().out
    assert main(["doctor", "--state", str(state)]) == 0
    assert (state / "app.json").read_bytes() == (made / ".millpond" / "app" / "app.json").read_bytes()
    assert waiting(folder, spark) == [[3, 4], []]


def test_what_cannot_be_repaired_is_reported(made: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    journal = next(file for file in files_of(made / ".millpond" / "app") if file.name == "journal.jsonl")
    folder = damaged(made, tmp_path / "app", journal, flip)
    assert main(["doctor", "--repair", "--state", str(folder / ".millpond" / "app")]) == 1
    reported = capsys.readouterr().out
    assert f"{journal} is damaged in line" in reported
    assert "Restore the state directory from a copy" in reported
    assert "Not damaged" not in reported
