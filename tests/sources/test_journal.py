"""A journal: every entry that was written comes back, and nothing else does."""

from __future__ import annotations

from pathlib import Path

import pytest

from millpond.engine.feeds import journal
from millpond.engine.feeds.journal import Entry, Journal
from millpond.errors import StateError


def opened(path: Path) -> Journal:
    return Journal(path, lambda: {"summary": True})


def written(path: Path, entries: list[Entry]) -> bytes:
    made = opened(path)
    for entry in entries:
        made.append(entry)
    return path.read_bytes()


ENTRIES: list[Entry] = [{"at": 10}, {"at": 20, "name": "é"}, {"at": 30}]


def test_entries_come_back_in_order_also_after_more_were_added(tmp_path: Path) -> None:
    written(tmp_path / "j", ENTRIES)
    again = opened(tmp_path / "j")
    assert again.entries() == ENTRIES
    again.append({"at": 40})
    assert opened(tmp_path / "j").entries() == [*ENTRIES, {"at": 40}]
    assert (tmp_path / "j").stat().st_mode & 0o777 == 0o600


def test_a_changed_byte_is_noticed_wherever_it_is(tmp_path: Path) -> None:
    whole = written(tmp_path / "j", ENTRIES)
    for at in range(len(whole)):
        (tmp_path / "j").write_bytes(whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :])
        with pytest.raises(StateError, match=r"MP804 .*j is damaged in line"):
            opened(tmp_path / "j").entries()


def test_a_line_that_was_removed_doubled_or_moved_is_noticed(tmp_path: Path) -> None:
    first, second, third = written(tmp_path / "j", ENTRIES).splitlines(keepends=True)
    for lines in ([first, third], [second, third], [first, first, second], [second, first, third]):
        (tmp_path / "j").write_bytes(b"".join(lines))
        with pytest.raises(StateError, match="MP804"):
            opened(tmp_path / "j").entries()


def test_a_torn_last_line_is_left_out_and_a_whole_one_without_its_end_is_kept(tmp_path: Path) -> None:
    whole = written(tmp_path / "j", ENTRIES)
    lengths = [len(line) for line in whole.splitlines(keepends=True)]
    for end in range(sum(lengths[:2]) + 1, len(whole) - 1):
        (tmp_path / "j").write_bytes(whole[:end])
        assert opened(tmp_path / "j").entries() == ENTRIES[:2]
    (tmp_path / "j").write_bytes(whole[:-1])
    again = opened(tmp_path / "j")
    assert again.entries() == ENTRIES
    again.append({"at": 40})
    assert opened(tmp_path / "j").entries() == [*ENTRIES, {"at": 40}]


def test_a_long_journal_is_summed_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(journal, "ENTRIES_MAX", 3)
    written(tmp_path / "j", [{"at": n} for n in range(4)])
    assert opened(tmp_path / "j").entries() == [{"summary": True}, {"at": 3}]
