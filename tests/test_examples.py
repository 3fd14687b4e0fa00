"""The apps of examples/: their tests pass, and every one of them has some."""

from pathlib import Path

import pytest

from millpond.cli.main import main

EXAMPLES = sorted(path for path in (Path(__file__).parents[1] / "examples").iterdir() if path.is_dir())
# Its test is in tests/databases/test_documented.py, where there is a server.
WITH_A_SERVER = ("cdc",)


@pytest.mark.parametrize("example", [e for e in EXAMPLES if e.name not in WITH_A_SERVER], ids=lambda path: path.name)
def test_the_tests_of_an_example_pass(example: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["test", str(example), "--engine", "arrow"]) == 0, capsys.readouterr().out


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.name)
def test_an_example_is_listed(example: Path) -> None:
    assert f"| [{example.name}]({example.name}/" in (example.parent / "README.md").read_text("utf-8")
