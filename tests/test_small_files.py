"""Small files that are replaced whole."""

from pathlib import Path

import pytest

from millpond.small_files import write_safely


def test_a_write_that_fails_half_way_leaves_the_old_file(tmp_path: Path) -> None:
    file = tmp_path / "made" / "topics.json"
    write_safely(file, "old")
    with pytest.raises(UnicodeEncodeError):
        write_safely(file, "new" * 100_000 + "\ud800")
    assert file.read_text("utf-8") == "old"
    write_safely(file, "new")
    assert file.read_text("utf-8") == "new"
