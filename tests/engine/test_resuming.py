"""Where a flow resumes: what is damaged in the checkpoint of a join of two streams is named."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

import millpond as mp
from millpond.cli.doctor import _examined
from millpond.cli.health import DAMAGED, OK
from millpond.engine.ledger import FlowEntry
from millpond.engine.spark_checkpoint import damage_of, rebuild, require_sound, settle_batch
from millpond.errors import MillpondError, StateError

OFFSETS = 'v1\n{"batchWatermarkMs":0}\n{"orders":{"0":5}}'
JOIN = """
CREATE STREAM sells (id INT, ts TIMESTAMP, WATERMARK FOR ts AS ts - INTERVAL 5 SECONDS)
  FROM 'file://FOLDER/sells.jsonl';
CREATE STREAM quotes (id INT, bid INT, ts TIMESTAMP, WATERMARK FOR ts AS ts - INTERVAL 5 SECONDS)
  FROM 'file://FOLDER/quotes.jsonl';
CREATE TABLE joined (id INT, bid INT);
INSERT INTO joined SELECT s.id, q.bid FROM sells s JOIN quotes q
  ON s.id = q.id AND q.ts BETWEEN s.ts - INTERVAL 5 SECONDS AND s.ts;
"""


def test_a_checkpoint_is_written_from_the_ledger_with_what_had_begun(tmp_path: Path) -> None:
    checkpoint = tmp_path / "checkpoint"
    entry = FlowEntry(4, offsets=OFFSETS)
    rebuild(checkpoint, entry, 4)
    assert settle_batch(checkpoint, 4) == OFFSETS
    assert list(damage_of(checkpoint, entry, 4)) == []
    begun = OFFSETS.replace("5", "9")
    (checkpoint / "offsets" / "5").write_text(begun)
    (checkpoint / "offsets" / "4").write_text("rubbish")
    (checkpoint / "metadata").write_text("")
    rebuild(checkpoint, entry, 4)
    assert settle_batch(checkpoint, 5) == begun
    assert list(damage_of(checkpoint, entry, 4)) == []
    (checkpoint / "offsets" / "5").write_text("v1\n{")
    with pytest.raises(StateError, match=r"MP804 .*offsets/5 is damaged"):
        rebuild(checkpoint, entry, 4)


def test_a_crash_while_a_checkpoint_is_replaced_loses_nothing_of_it(tmp_path: Path) -> None:
    checkpoint, entry = tmp_path / "checkpoint", FlowEntry(4, offsets=OFFSETS)
    rebuild(checkpoint, entry, 4)
    (checkpoint / "offsets" / "5").write_text(OFFSETS.replace("5", "9"))
    checkpoint.rename(tmp_path / "checkpoint.replaced")
    rebuild(checkpoint, entry, 4)
    assert (checkpoint / "offsets" / "5").exists()
    assert [file.name for file in tmp_path.iterdir()] == ["checkpoint"]


def test_files_that_are_missing_or_do_not_agree_with_the_ledger_are_named(tmp_path: Path) -> None:
    checkpoint, entry = tmp_path / "checkpoint", FlowEntry(4, offsets=OFFSETS)
    rebuild(checkpoint, entry, 4)
    (checkpoint / "offsets" / "4").write_text(OFFSETS.replace("5", "4"))
    with pytest.raises(StateError, match=r"MP804 .*offsets/4 is damaged: the ledger has other offsets"):
        require_sound(checkpoint, entry, 4)
    for name in ("offsets/4", "metadata"):
        (checkpoint / name).unlink()
    assert [Path(line.split(" ")[0]).name for line in damage_of(checkpoint, entry, 4)] == ["metadata", "4"]


def give(file: Path, **fields: object) -> None:
    with file.open("a") as lines:
        lines.write(json.dumps(fields) + "\n")


def joined(folder: Path, spark: Any) -> list[int]:
    app = mp.App(folder / "app.sql", spark=spark)
    try:
        app.run_once()
        return sorted(app.table("joined").values("id"))
    finally:
        app.stop()


@pytest.mark.spark
def test_what_spark_keeps_of_a_join_is_checked_before_it_starts(tmp_path: Path, spark: Any) -> None:
    made = tmp_path / "made"
    made.mkdir()
    (made / "app.sql").write_text(JOIN.replace("FOLDER", str(tmp_path)))
    for id_ in (1, 2):
        give(tmp_path / "sells.jsonl", id=id_, ts="2026-01-01T00:00:01Z")
    give(tmp_path / "quotes.jsonl", id=1, bid=10, ts="2026-01-01T00:00:01Z")
    assert joined(made, spark) == [1]
    give(tmp_path / "quotes.jsonl", id=2, bid=20, ts="2026-01-01T00:00:01Z")
    assert joined(made, spark) == [1, 2]
    assert [finding.state for finding in _examined(made / ".millpond" / "app")] == [OK]
    for pattern in ("state/0/0/left-keyWithIndexToValue/1.delta", "state/0/_metadata/metadata", "sources/1/0"):
        for damage in (Path.unlink, lambda file: file.write_bytes(b""), change_a_byte):
            folder = tmp_path / "damaged"
            shutil.rmtree(folder, ignore_errors=True)
            shutil.copytree(made, folder)
            (file,) = folder.glob(f".millpond/app/flows/*__*/checkpoint/{pattern}")
            damage(file)
            if pattern.endswith("_metadata/metadata") and not file.exists():
                continue
            reported = [finding for finding in _examined(folder / ".millpond" / "app") if finding.state == DAMAGED]
            assert reported, pattern
            assert all(file.name in finding.detail for finding in reported)
            with pytest.raises(MillpondError, match=f"MP804.*{file.name} is (damaged|missing)"):
                joined(folder, spark)


def change_a_byte(file: Path) -> None:
    whole = bytearray(file.read_bytes())
    whole[len(whole) // 2] ^= 1
    file.write_bytes(whole)
