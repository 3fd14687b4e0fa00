"""The first example of docs/kafka.md, run against a broker."""

from pathlib import Path
from typing import Any

import pytest
from tests.kafka.broker import Broker
from tests.kafka.topics import Topic

import millpond as mp
from millpond.testing.documents import read_sections

pytestmark = pytest.mark.spark
PAGE = Path(__file__).parents[2] / "docs" / "kafka.md"


def test_the_example_of_the_page_runs(broker: Broker, spark: Any, tmp_path: Path) -> None:
    (block,) = (b for section in read_sections(PAGE) for b in section.blocks if b.title == "orders.sql")
    names = {name: f"page-{name}" for name in ("orders", "users", "scores", "enriched")}
    text = block.body
    for name, own in names.items():
        text = text.replace(f"localhost:9092/{name}", f"{broker.address}/{own}")
    orders, users, scores, enriched = (Topic(broker.address, own) for own in names.values())
    for made in (orders, users, scores):
        made.create()
    users.send(("u1", {"name": "Ann"}), ("u2", {"name": "Bo"}), ("u2", None))
    scores.send(("u1", {"score": 7}))
    orders.send({"id": 1, "user_id": "u1", "price": 9.5}, {"id": 2, "user_id": "u2", "price": 1})
    app = mp.App(sql=text, state=tmp_path / "state", spark=spark)
    app.run_once()
    assert app.table("users").find().to_pylist() == [{"user_id": "u1", "name": "Ann"}]
    app.stop()
    assert enriched.values() == [{"id": 1, "price": 9.5, "name": "Ann", "score": 7}]
    assert enriched.partitions() == 6
