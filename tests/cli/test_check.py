"""`millpond check` and `millpond explain` on real files."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from millpond.cli.main import main

Capture = pytest.CaptureFixture[str]

FINE = """
CREATE STREAM trades (trade_id STRING, user_id STRING, quantity INT) FROM 'file://./trades.jsonl';
CREATE TABLE users (user_id STRING PRIMARY KEY, tier STRING);
CREATE TABLE totals AS SELECT user_id, COUNT(*) AS n FROM trades GROUP BY user_id;
INSERT INTO users VALUES ('u1', 'GOLD');
"""


@pytest.fixture
def app(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """app.sql in the working directory, beside the file that it reads."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "trades.jsonl").write_text('{"trade_id": "t1", "user_id": "u1", "quantity": 5}\n')
    file = tmp_path / "app.sql"
    file.write_text(FINE)
    return file


def test_a_right_file_is_fine_in_one_line(app: Path, capsys: Capture) -> None:
    assert main(["check", "app.sql"]) == 0
    assert capsys.readouterr() == ("app.sql: fine; 1 stream, 2 tables, 1 flow\n", "")


def test_each_mistake_is_shown_in_order_with_its_place(app: Path, capsys: Capture) -> None:
    app.write_text(FINE + "DELETE FROM usres WHERE tier = 'x';\nINSERT INTO users SELECT user_id, teir FROM trades;\n")
    assert main(["check", "app.sql"]) == 2
    reported = capsys.readouterr()
    assert reported.out == "app.sql: 2 errors\n"
    assert reported.err.index("MP201 app.sql:6:13") < reported.err.index("MP202 app.sql:7:35")
    assert "    6 | DELETE FROM usres WHERE tier = 'x';\n      |             ^^^^^\n" in reported.err
    assert "Did you mean 'users'?" in reported.err


def test_json_is_one_object_per_problem_on_standard_output(app: Path, capsys: Capture) -> None:
    app.write_text(FINE + "DELETE FROM usres;\n")
    assert main(["check", "app.sql", "--json"]) == 2
    reported = capsys.readouterr()
    (problem,) = [json.loads(line) for line in reported.out.splitlines()]
    assert (problem["code"], problem["file"], problem["line"], problem["column"]) == ("MP201", "app.sql", 6, 13)
    assert problem["place"] == "app.sql:6:13"
    assert reported.err == ""


def test_a_file_that_is_not_there_is_wrong_input(app: Path, capsys: Capture) -> None:
    assert main(["check", "other.sql"]) == 2
    assert capsys.readouterr().err.startswith("MP110  ")


def test_a_variable_is_set_on_the_command_line(app: Path, capsys: Capture) -> None:
    app.write_text(FINE.replace("trades.jsonl", "${NAME_OF_THE_FILE}"))
    assert main(["check", "app.sql"]) == 2
    assert "MP104" in capsys.readouterr().err
    assert main(["check", "app.sql", "--set", "NAME_OF_THE_FILE=trades.jsonl"]) == 0


def test_what_could_not_be_verified_is_said_and_counted(app: Path, capsys: Capture) -> None:
    app.write_text(
        "CREATE STREAM orders FROM kafka://h:9092/orders;\nINSERT INTO 'file://./out' SELECT * FROM orders;\n"
    )
    assert main(["check", "app.sql"]) == 0
    reported = capsys.readouterr()
    assert "MP221 app.sql:" in reported.err
    assert "note" in reported.out


def test_what_cannot_run_yet_is_an_error(app: Path, capsys: Capture) -> None:
    past = "CREATE TABLE p (k INT PRIMARY KEY) WITH ('history' = '1h');\n"
    view = "CREATE TABLE v AS SELECT k FROM p VERSION AS OF 2;\n"
    app.write_text(FINE + past + view)
    for command in ("check", "explain"):
        assert main([command, "app.sql"]) == 2
        assert "MP901 app.sql:7:49  Reading table 'p' as of a time or version in a view" in capsys.readouterr().err


def test_explain_prints_the_plan(app: Path, capsys: Capture) -> None:
    assert main(["explain", "app.sql"]) == 0
    reported = capsys.readouterr().out
    assert "trades" in reported
    assert "totals" in reported


def test_explain_prints_one_json_object_for_programs(app: Path, capsys: Capture) -> None:
    assert main(["explain", "app.sql", "--json"]) == 0
    assert "flows" in json.loads(capsys.readouterr().out)


def test_explain_shows_where_statements_run_on_a_cluster(app: Path, capsys: Capture, tmp_path: Path) -> None:
    assert main(["explain", "app.sql"]) == 0
    assert "executors" not in capsys.readouterr().out
    assert main(["explain", "app.sql", "--master", "spark://h:7077", "--storage", str(tmp_path)]) == 0
    assert "runs on the driver; a batch of more than 200,000 rows on the executors" in capsys.readouterr().out


def test_a_wrong_file_is_explained_by_its_mistakes(app: Path, capsys: Capture) -> None:
    app.write_text(FINE + "DELETE FROM usres;\n")
    assert main(["explain", "app.sql"]) == 2
    reported = capsys.readouterr()
    assert reported.out == ""
    assert "MP201 app.sql:6:13" in reported.err


def test_explain_compares_with_a_state_that_must_be_there(app: Path, capsys: Capture) -> None:
    assert main(["explain", "app.sql", "--state", "state"]) == 1
    assert "MP807  There is no state in state." in capsys.readouterr().err


def test_a_parameter_in_a_file_is_wrong_input(app: Path, capsys: Capture) -> None:
    app.write_text(
        FINE + "UPDATE users SET tier = ? WHERE user_id = 'u1';\nSELECT tier FROM users WHERE user_id = ?;\n"
    )
    assert main(["check", "app.sql"]) == 2
    reported = capsys.readouterr().err
    assert "MP101 app.sql:6:1  A parameter ? is not allowed here, because it gets no value." in reported
    assert "MP101 app.sql:7:1  A parameter ? is not allowed here, because it gets no value." in reported


def test_declared_columns_are_compared_with_the_header(app: Path, capsys: Capture) -> None:
    Path("in.csv").write_text("id,name\n1,a\n")
    app.write_text("CREATE STREAM s (id INT, nam STRING) FROM 'file://./in.csv';\n")
    assert main(["check", "app.sql"]) == 2
    assert "MP503 app.sql:1:43" in capsys.readouterr().err
    assert main(["run", "app.sql", "--once"]) == 2
    assert "MP503 app.sql:1:43" in capsys.readouterr().err
