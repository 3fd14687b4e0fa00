"""The example of docs/databases.md, run with a real server."""

import re
from collections.abc import Callable
from pathlib import Path

from tests.databases.servers import Database

import millpond as mp
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
