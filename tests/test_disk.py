"""Small files that are replaced whole and carry a checksum."""

from pathlib import Path

import pytest

from millpond.disk import read_sealed, write_sealed
from millpond.errors import StateError


def test_a_value_comes_back_and_the_file_is_private(tmp_path: Path) -> None:
    file = tmp_path / "made" / "topics.json"
    write_sealed(file, {"orders": "é", "n": [1, None]})
    assert read_sealed(file) == {"orders": "é", "n": [1, None]}
    assert (file.stat().st_mode & 0o777, file.parent.stat().st_mode & 0o777) == (0o600, 0o700)


def test_a_write_that_fails_half_way_leaves_the_old_file(tmp_path: Path) -> None:
    file = tmp_path / "topics.json"
    write_sealed(file, "old")
    with pytest.raises(UnicodeEncodeError):
        write_sealed(file, "new" * 100_000 + "\ud800")
    assert read_sealed(file) == "old"


def test_every_changed_byte_and_every_cut_is_noticed(tmp_path: Path) -> None:
    file = tmp_path / "topics.json"
    write_sealed(file, {"orders": 12})
    whole = file.read_bytes()
    damaged = [whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :] for at in range(len(whole))]
    for content in (*damaged, *(whole[:end] for end in range(len(whole)))):
        file.write_bytes(content)
        with pytest.raises(StateError, match=r"MP804 .*topics.json is damaged"):
            read_sealed(file)
