"""`millpond init`: the app that it writes runs, and its test passes."""

from pathlib import Path

import pytest

from millpond.cli.main import main

Capture = pytest.CaptureFixture[str]


def test_the_new_app_runs_and_its_test_passes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["init", "shop"]) == 0
    assert "cd shop" in capsys.readouterr().out
    assert (tmp_path / "shop" / "app.sql").read_text("utf-8").startswith("-- shop: a Millpond app.")
    monkeypatch.chdir(tmp_path / "shop")
    assert main(["check", "app.sql"]) == 0
    assert main(["test", "tests.md", "--engine", "arrow"]) == 0, capsys.readouterr().out
    capsys.readouterr()
    assert main(["run", "app.sql", "--once", "--json"]) == 0
    assert capsys.readouterr().out == '{"country": "DE", "total": "150.00"}\n{"country": "SE", "total": "20.00"}\n'


def test_an_empty_folder_is_filled_and_anything_else_left_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "empty").mkdir()
    assert main(["init", "empty"]) == 0
    before = sorted(tmp_path.rglob("*"))
    assert main(["init", "empty"]) == 2
    assert "'empty' exists already" in capsys.readouterr().err
    assert sorted(tmp_path.rglob("*")) == before
    (tmp_path / "file").write_text("mine")
    assert main(["init", "file/below"]) in (1, 2)
    assert (tmp_path / "file").read_text() == "mine"


def test_the_next_command_can_be_pasted(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["init", str(tmp_path / "my app")]) == 0
    assert f"cd '{tmp_path / 'my app'}'" in capsys.readouterr().out
