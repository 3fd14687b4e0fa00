"""The plug-in for pytest, as pytest loads it for these tests."""

from __future__ import annotations

from importlib.util import find_spec


def test_modules_of_the_package_are_imported_without_being_parsed_by_pytest() -> None:
    """Two threads of an app may import modules at once, which Python 3.11 cannot parse at once."""
    assert type(find_spec("millpond.engine.flow").loader).__name__ == "SourceFileLoader"  # type: ignore[union-attr]
    assert "Rewriting" in type(find_spec(__name__.rpartition(".")[0] + ".test_documents").loader).__name__  # type: ignore[union-attr]
