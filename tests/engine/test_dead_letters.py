"""Dead letters: the bytes as they came, bounded, and sent again through the statements that refused them, once."""

import io
import json
import time
from pathlib import Path
from typing import Any

import pytest

import millpond as mp
from millpond.cli.main import main
from millpond.contracts.table import TableSpec
from millpond.engine.state_directory import STORE
from millpond.errors import MillpondError
from millpond.schema import Schema
from millpond.tables.store import open_store

pytestmark = pytest.mark.spark

APP = """
CREATE STREAM events (id INT, quantity INT, per INT) FROM '{source}';
CREATE TABLE good (id INT PRIMARY KEY, quantity INT NOT NULL);
CREATE TABLE rates (id INT, rate DECIMAL(10,2));
CREATE TABLE seen AS SELECT COUNT(*) AS n FROM events;
INSERT INTO good SELECT id, quantity FROM events;
INSERT INTO rates SELECT id, quantity / per FROM events WITH ('on.error' = 'dead-letter');
INSERT INTO 'file://./out' SELECT id FROM events;
"""
RECORDS = ['{"id": 1, "quantity": 5, "per": 1}', '{"id": 2, "quantity": "many", "per": 2}']
RECORDS += ['{"id": 3,  "quantity": 7, "per": 0}', '{"id": 4, "per": 2}']
CODES = {"MP504": RECORDS[1], "MP701": RECORDS[2], "MP401": RECORDS[3]}


def letters(app: Any) -> dict[str, str]:
    return {row["code"]: row["raw"].decode() for row in app.table("dead_letters").to_arrow().to_pylist()}


def column(app: Any, table: str, name: str) -> list[Any]:
    return sorted(app.table(table).to_arrow()[name].to_pylist(), key=str)


@pytest.fixture
def make(tmp_path: Path, spark: Any) -> Any:
    """make(source): an app over the records in `in.jsonl`; closed at the end."""
    (tmp_path / "in.jsonl").write_text("\n".join(RECORDS) + "\n")
    (tmp_path / "in.csv").write_text("per,id,quantity\n1,1,5\n2,2,many\n0,3,7\n2,4,\n")
    made: list[Any] = []

    def app(source: str = "file://./in.jsonl", **settings: str) -> Any:
        (tmp_path / "app.sql").write_text(APP.format(source=source))
        made.append(mp.App(tmp_path / "app.sql", state=tmp_path / "state", spark=spark, settings=settings))
        return made[-1]

    yield app
    for each in made:
        each.stop()


def test_a_letter_holds_the_bytes_as_they_came_also_when_a_statement_refused_the_record(make: Any) -> None:
    app = make()
    app.run_once()
    assert letters(app) == CODES
    places = app.query("SELECT partition, position FROM dead_letters WHERE code = 'MP701'").rows()
    assert places == [{"partition": "0", "position": str(len(RECORDS[0]) + len(RECORDS[1]) + 2)}]


def test_repaired_letters_go_through_the_statements_that_refused_them_and_no_others(make: Any) -> None:
    app = make("file://./in.csv")
    app.run_once()
    assert letters(app) == {"MP504": "2,2,many", "MP701": "0,3,7", "MP401": "2,4,"}
    first = app.replay_dead_letters("code = 'MP504'", repair="replace(CAST(raw AS STRING), 'many', '9')")
    assert (first.sent, first.refused, first.left) == (1, 0, 0)
    app.execute("UPDATE dead_letters SET raw = CAST('2,3,7' AS BINARY) WHERE code = 'MP701'")
    second = app.replay_dead_letters()
    assert (second.sent, second.refused, second.left) == (2, 1, 0)
    assert letters(app) == {"MP401": "2,4,"}
    assert column(app, "good", "id") == [1, 2, 3]
    assert column(app, "rates", "id") == [1, 2, 3, 4]
    assert column(app, "seen", "n") == [4]


def test_letters_are_selected_before_they_are_repaired(make: Any) -> None:
    app = make("file://./in.csv")
    app.run_once()
    many = "CAST(raw AS STRING) LIKE '%many%'"
    found = app.replay_dead_letters(many, repair="replace(CAST(raw AS STRING), 'many', '9')")
    assert (found.sent, found.refused, found.left) == (1, 0, 0)
    assert letters(app) == {"MP701": "0,3,7", "MP401": "2,4,"}
    assert 2 in column(app, "good", "id")


def test_a_replay_is_done_once_and_survives_a_restart(make: Any, tmp_path: Path) -> None:
    app = make()
    app.run_once()
    app.execute("DELETE FROM dead_letters WHERE code <> 'MP504'")
    app.replay_dead_letters(repair="""'{"id": 2, "quantity": 8, "per": 2}'""")
    assert app.replay_dead_letters().sent == 0
    app.stop()
    again = make()
    again.run_once()
    assert column(again, "rates", "id") == [1, 2, 4]
    assert again.table("good").get(2) == {"id": 2, "quantity": 8}
    lines = [line for file in (tmp_path / "out").glob("*.jsonl") for line in file.read_text().splitlines()]
    assert sorted(json.loads(line)["id"] for line in lines) == [1, 2, 3, 4]


def test_a_letter_that_still_does_not_fit_stays_with_its_bytes(make: Any) -> None:
    app = make()
    app.run_once()
    found = app.replay_dead_letters()
    assert (found.sent, found.refused, found.left) == (3, 3, 0)
    assert letters(app) == CODES
    assert column(app, "seen", "n") == [3]


def test_records_from_python_are_kept_and_sent_again_while_the_app_runs(make: Any) -> None:
    with make("memory://events") as app:
        app.feed("memory://events").send([{"id": 3, "quantity": 7, "per": 0}])
        wait_for(lambda: letters(app))
        assert letters(app) == {"MP701": '{"id": 3, "quantity": 7, "per": 0}'}
        app.replay_dead_letters(repair="replace(CAST(raw AS STRING), ': 0', ': 2')")
        assert app.table("rates").to_arrow().to_pylist() == [{"id": 3, "rate": pytest.approx(3.5)}]
        assert column(app, "seen", "n") == [1]


def test_the_command_sends_chosen_letters_of_a_running_app_again(make: Any, tmp_path: Path, capsys: Any) -> None:
    with make("memory://events") as app:
        app.feed("memory://events").send([{"id": n, "quantity": 9, "per": 0} for n in (5, 6)])
        wait_for(lambda: len(app.table("dead_letters")) == 2)
        chosen = ["--where", """CAST(raw AS STRING) LIKE '%"id": 5%'""", "--state", str(tmp_path / "state")]
        repaired = ["--repair", "replace(CAST(raw AS STRING), ': 0', ': 3')"]
        assert main(["dead-letters", "replay", *chosen, *repaired]) == 0
        assert capsys.readouterr().out == "1 record replayed, 0 rejected again.\n"
        assert column(app, "rates", "id") == [5]
        assert letters(app) == {"MP701": '{"id": 6, "quantity": 9, "per": 0}'}


def test_the_oldest_letters_go_when_there_are_too_many(make: Any) -> None:
    app = make(**{"dead.letters.max": "2"})
    app.run_once()
    assert sorted(letters(app)) == ["MP401", "MP701"]


def test_rows_of_a_loaded_table_are_repaired_in_their_file(tmp_path: Path, spark: Any) -> None:
    (tmp_path / "t.csv").write_text("a,b\n1,2\n1\n")
    (tmp_path / "app.sql").write_text("CREATE TABLE t AS SELECT * FROM 'file://./t.csv';")
    app = mp.App(tmp_path / "app.sql", state=tmp_path / "state", spark=spark)
    app.run_once()
    found = app.replay_dead_letters()
    assert (found.sent, found.left) == (0, 1)
    app.stop()
    with (tmp_path / "t.csv").open("a") as file:
        file.write("3,4\n")
    app.run_once()
    assert len(letters(app)) == 1, "a load replaces the dead letters of the load before"
    app.stop()


def test_a_bad_record_of_a_file_is_a_letter_of_each_table_that_loads_it(tmp_path: Path) -> None:
    (tmp_path / "t.jsonl").write_text('{"a": 1}\nrubbish\n')
    source = "AS SELECT * FROM 'file://./t.jsonl'"
    (tmp_path / "app.sql").write_text(f"CREATE TABLE t {source};\n\nCREATE TABLE u PRIMARY KEY (a) {source};\n")
    with mp.App(tmp_path / "app.sql", state=tmp_path / "state") as app:
        app.run_once()
        found = app.query(
            "SELECT flow, line, position, CAST(raw AS STRING) AS raw FROM dead_letters ORDER BY flow"
        ).rows()
    rubbish = {"position": "9", "raw": "rubbish"}
    assert found == [{"flow": "t", "line": 1, **rubbish}, {"flow": "u", "line": 3, **rubbish}]


def test_a_condition_that_is_wrong_is_reported(make: Any) -> None:
    app = make()
    app.run_once()
    with pytest.raises(MillpondError, match="MP202"):
        app.replay_dead_letters("nothing = 1")


LATE = """
CREATE STREAM events (id INT, ts TIMESTAMP, WATERMARK FOR ts AS ts) FROM 'memory://events';
CREATE TABLE minutes AS SELECT window_start, COUNT(*) AS n FROM events GROUP BY TUMBLING(ts, INTERVAL 1 MINUTE)
  WITH ('late.rows' = 'dead-letter');
CREATE TABLE ids (id INT NOT NULL);
CREATE TABLE hours AS SELECT window_start, COUNT(*) AS n FROM events GROUP BY TUMBLING(ts, INTERVAL 1 HOUR);
INSERT INTO ids SELECT CAST(nullif(id, 1) AS INT) FROM events;
"""


def test_a_letter_names_the_statement_that_refused_it_and_is_sent_through_that_one_only(
    tmp_path: Path, spark: Any
) -> None:
    (tmp_path / "app.sql").write_text(LATE)
    with mp.App(tmp_path / "app.sql", state=tmp_path / "state", spark=spark) as app:
        feed = app.feed("memory://events")
        feed.send([{"id": 9, "ts": "2026-01-01T12:00:00Z"}])
        wait_for(lambda: len(app.table("ids")) == 1)
        feed.send([{"id": 1, "ts": "2026-01-01T10:00:00Z"}])
        wait_for(lambda: len(app.table("dead_letters")) == 3)
        asked = "SELECT flow, statement, line, code, CAST(raw AS STRING) AS raw FROM dead_letters ORDER BY statement"
        found = [tuple(row.values())[:4] for row in app.query(asked).rows()]
        assert found == [("events", 1, 3, "MP706"), ("events", 2, 6, "MP706"), ("events", 3, 7, "MP401")]
        app.execute("UPDATE dead_letters SET raw = CAST(replace(CAST(raw AS STRING), 'T10', 'T12') AS BINARY)")
        assert app.replay_dead_letters("statement = 2").sent == 1
        assert column(app, "hours", "n") == [2]
        assert column(app, "minutes", "n") == [1]
        assert column(app, "dead_letters", "statement") == [1, 3]


def test_a_state_whose_letters_name_no_statement_keeps_them(make: Any, tmp_path: Path) -> None:
    first = make()
    first.run_once()
    first.stop()
    store = open_store(tmp_path / "state" / STORE)
    old = Schema(tuple(c for c in store.table("dead_letters").schema if c.name not in ("statement", "line")))
    store.reshape([(TableSpec("dead_letters", old), store.table("dead_letters").to_arrow().select(old.names))], {})
    store.close()
    again = make()
    assert letters(again) == CODES
    assert column(again, "dead_letters", "statement") == [None] * 3


SLIDING = """
CREATE STREAM events (id INT, ts TIMESTAMP, WATERMARK FOR ts AS ts) FROM 'memory://events';
CREATE TABLE sums AS SELECT window_start, COUNT(*) AS n FROM events
  GROUP BY SLIDING(ts, INTERVAL 2 MINUTES, INTERVAL 1 MINUTE);
"""


def test_a_row_that_is_late_for_sliding_windows_is_one_letter_with_its_own_bytes(tmp_path: Path, spark: Any) -> None:
    (tmp_path / "app.sql").write_text(SLIDING)
    with mp.App(tmp_path / "app.sql", state=tmp_path / "state", spark=spark) as app:
        feed = app.feed("memory://events")
        feed.send([{"id": 9, "ts": "2026-01-01T12:00:30Z"}])
        wait_for(lambda: len(app.table("sums")) == 2)
        # The first is late for both of its windows, the second for one of them.
        feed.send([{"id": 1, "ts": "2026-01-01T10:00:30Z"}, {"id": 2, "ts": "2026-01-01T11:59:30Z"}])
        wait_for(lambda: len(app.table("dead_letters")) == 2)
        texts = [json.loads(raw) for raw in app.table("dead_letters").to_arrow()["raw"].to_pylist()]
        assert sorted(texts, key=lambda t: t["id"]) == [
            {"id": 1, "ts": "2026-01-01T10:00:30Z"},
            {"id": 2, "ts": "2026-01-01T11:59:30Z"},
        ]
        app.execute("UPDATE dead_letters SET raw = CAST(replace(CAST(raw AS STRING), 'T10:00', 'T12:00') AS BINARY)")
        found = app.replay_dead_letters()
        assert (found.sent, found.refused, found.left) == (1, 0, 1)
        assert column(app, "sums", "n") == [2, 3]


BLAMED = """
CREATE STREAM events (id INT, quantity INT, per INT) FROM 'file://./in.jsonl';
CREATE TABLE good (id INT PRIMARY KEY, quantity INT);
CREATE TABLE many AS SELECT COUNT(*) AS n FROM good;
CREATE TABLE lists AS SELECT per / per AS one, array_agg(id) AS ids FROM events GROUP BY per / per
  WITH ('on.error' = 'dead-letter');
INSERT INTO good SELECT id, quantity FROM events;
SELECT id, quantity / per AS rate, (SELECT n FROM many) AS n FROM events WITH ('on.error' = 'dead-letter');
"""


def test_rows_beside_one_that_fails_are_printed_once_and_see_the_views_of_the_batch(tmp_path: Path, spark: Any) -> None:
    records = [{"id": n, "quantity": 1, "per": 0 if n == 3 else 1} for n in range(1, 6)]
    (tmp_path / "in.jsonl").write_text("".join(json.dumps(r) + "\n" for r in records))
    (tmp_path / "app.sql").write_text(BLAMED)
    printed = io.StringIO()
    app = mp.App(tmp_path / "app.sql", state=tmp_path / "state", spark=spark, output=printed)
    app.run_once()
    shown = [line.split() for line in printed.getvalue().splitlines()[2:]]
    assert shown == [[str(n), "1.0", "5"] for n in (1, 2, 4, 5)]
    # Replayed, the event gets a number that no other value of its aggregate has.
    app.execute("UPDATE dead_letters SET raw = CAST(replace(CAST(raw AS STRING), ': 0', ': 1') AS BINARY)")
    assert app.replay_dead_letters().sent == 2
    assert app.table("lists").to_arrow().to_pylist() == [{"one": 1.0, "ids": [1, 2, 4, 5, 3]}]
    app.stop()


def wait_for(condition: Any, seconds: float = 60.0) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "not in time"
        time.sleep(0.05)
