"""The example of docs/databases.md and that of examples/cdc, run with a real server."""

import re
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.databases.servers import Database

import millpond as mp
from millpond.cli.main import main
from millpond.testing.documents import read_sections

PAGE = Path(__file__).parents[2] / "docs" / "databases.md"


def test_the_example_of_the_page_runs(postgresql: Database, run: Callable[..., mp.App], tmp_path: Path) -> None:
    blocks = [block for section in read_sections(PAGE) for block in section.blocks]
    prepared = next(block.body for block in blocks if block.language == "postgresql")
    app_text = next(block.body for block in blocks if block.title == "shop.sql")
    postgresql.execute(*prepared.split(";\n"))
    (tmp_path / "orders.jsonl").write_text('{"order_id": 7, "user_id": 2}\n')
    app = run(re.sub(r"postgresql://app:\S+?@db:5432/shop", postgresql.uri, app_text), once=True)
    assert app.query("SELECT * FROM named").rows() == [{"order_id": 7, "name": "Bo"}]
    assert postgresql.rows("SELECT * FROM enriched") == [(7, "Bo")]
    assert app.query("SELECT * FROM active").rows() == [{"id": 1, "name": "Ann"}]


EXAMPLE = Path(__file__).parents[2] / "examples" / "cdc"


def test_the_tests_of_the_example_of_change_capture_pass(
    postgresql: Database, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DATABASE", postgresql.uri)
    assert main(["test", str(EXAMPLE), "--engine", "arrow"]) == 0, capsys.readouterr().out


def test_a_server_that_rejects_a_statement_fails_the_test(
    postgresql: Database, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    (tmp_path / "t.md").write_text(
        f"""## A\n```database url="{postgresql.uri}"\nSELECT nothing;\n```\n```database url="${{NONE}}"\nSELECT 1\n```
```sql\nCREATE TABLE t (a INT PRIMARY KEY);\n```\n```csv query="SELECT * FROM t"\na\n```\n"""
    )
    assert main(["test", str(tmp_path), "--engine", "arrow"]) == 1
    printed = capsys.readouterr().out
    assert 'column "nothing" does not exist' in printed
    assert 'url="${NONE}" is not an address' in printed
