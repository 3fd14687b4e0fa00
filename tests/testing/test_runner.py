"""`millpond test`: which tests it finds, what it prints of differences, and what it writes."""

import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest

from millpond.cli.main import main

APP = """
# Orders

Words before the first test are no test.

## Amounts are added up

```json title=in/a.jsonl
{"k": "a", "n": 1}
{"k": "b", "n": 2}
```

```sql
CREATE STREAM events (k STRING, n INT) FROM 'file://./in/*.jsonl';
CREATE TABLE sums AS SELECT k, SUM(n) AS n FROM events GROUP BY k;
INSERT INTO 'file://./out.csv' SELECT k FROM events;
```

```json title=in/b.jsonl
{"k": "b", "n": 40}
```

```run
```

```csv query="SELECT k, n FROM sums"
k,n
b,42
a,1
```
"""
SINK = """
```csv sink=out.csv
k
a
b
b
```
"""
CLOCK = """
## The time is set

```json title=clicks/a.jsonl
{"k": "a"}
```

```sql now=2026-03-01T10:00:00Z
CREATE STREAM clicks (k STRING) FROM 'file://./clicks/*.jsonl';
CREATE TABLE seen AS SELECT k, COUNT(*) AS n, MAX(current_timestamp()) AS at FROM clicks GROUP BY k
  WITH ('state.ttl' = '1h');
```

```csv query="SELECT * FROM seen"
k,n,at
a,1,2026-03-01T10:00:00Z
```

```json title=clicks/b.jsonl
{"k": "b"}
```

```run now=2026-03-01T12:00:00Z
```

```csv query="SELECT * FROM seen"
k,n,at
b,1,2026-03-01T12:00:00Z
```
"""
WRONG = """
## A wrong app is an error

```sql exit=2
SELECT * FROM nowhere;
```

```says
MP201
```
"""


def run_tests(tmp_path: Path, text: str, *words: str) -> int:
    file = tmp_path / "tests.md"
    file.write_text(text, "utf-8")
    return main(["test", str(file), "--engine", "arrow", *words])


def test_tables_sinks_time_and_errors_are_as_expected(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_tests(tmp_path, APP + SINK + CLOCK + WRONG) == 0, capsys.readouterr().out
    out = capsys.readouterr().out
    assert out.count("ok  ") == 3
    assert "3 tests passed, 0 failed" in out


def test_differences_are_printed_row_by_row_and_written_as_xml(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    report = tmp_path / "report.xml"
    assert run_tests(tmp_path, APP.replace("b,42", "b,41\nc,9") + WRONG, "--junit", str(report)) == 1
    lines = [line.strip() for line in capsys.readouterr().out.splitlines()]
    assert [line for line in lines if line[:2] in ("- ", "+ ")] == ["- b,41", "- c,9", "+ b,42"]
    line = APP.splitlines().index('```csv query="SELECT k, n FROM sums"') + 1
    assert f"{tmp_path / 'tests.md'}:{line}: other rows than expected: query SELECT k, n FROM sums" in lines
    suite = ElementTree.fromstring(report.read_text("utf-8"))[0]
    assert (suite.get("tests"), suite.get("failures"), suite.get("errors")) == ("2", "1", "0")
    assert "+ b,42" in (suite.findtext("testcase/failure") or "")


def test_update_writes_the_rows_and_keeps_the_others_in_place(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_tests(tmp_path, APP.replace("b,42", "x,0") + CLOCK, "--update") == 0
    assert "+ b,42" in capsys.readouterr().out
    assert (tmp_path / "tests.md").read_text("utf-8") == APP.replace("b,42\na,1", "a,1\nb,42") + CLOCK
    assert main(["test", str(tmp_path), "--engine", "arrow"]) == 0


def test_what_cannot_be_run_is_a_failure_with_its_reason(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_tests(tmp_path, APP.replace("SUM(n)", "SUN(n)") + WRONG) == 1
    out = capsys.readouterr().out
    assert "exit code 2 instead of 0" in out
    assert "1 test passed, 1 failed" in out
    assert run_tests(tmp_path, APP.replace("```sql", "```sql now=yesterday")) == 1
    assert "yesterday" in capsys.readouterr().out
    # XPATH_INT is evaluated by Spark only.
    assert (
        run_tests(tmp_path, APP.replace("SELECT k FROM events", "SELECT XPATH_INT('<a>1</a>', 'a') AS x FROM events"))
        == 1
    )
    assert "--engine arrow excludes" in capsys.readouterr().out


@pytest.mark.parametrize("content", [None, "# Only words\n", "## Open\n\n```sql\nSELECT 1\n"])
def test_a_path_without_tests_is_wrong_input(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], content: str | None
) -> None:
    if content is not None:
        (tmp_path / "tests.md").write_text(content, "utf-8")
    assert main(["test", str(tmp_path / "tests.md")]) == 2
    assert "MP310" in capsys.readouterr().err


def test_a_misspelt_attribute_is_wrong_input_and_no_test_is_left_out(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    misspelt = APP.replace("csv query=", "csv qurey=", 1).replace("## ", "## Another: ", 1)
    line = misspelt.splitlines().index('```csv qurey="SELECT k, n FROM sums"') + 1
    assert run_tests(tmp_path, misspelt + APP) == 2
    reported = capsys.readouterr().err
    assert f"tests.md:{line}: a block of csv has no attribute 'qurey'." in reported
    assert "Did you mean 'query'?" in reported
    assert run_tests(tmp_path, APP.replace("```sql", "```sql nwo=2026-01-01T00:00:00Z")) == 2
    assert "Did you mean 'now'?" in capsys.readouterr().err


def test_only_runs_the_tests_of_which_the_heading_has_the_text(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_tests(tmp_path, APP + WRONG, "--only", "wrong APP") == 0
    assert "1 test passed" in capsys.readouterr().out
    assert run_tests(tmp_path, APP, "--only", "nothing") == 2


PYTEST = '''
def test_rows_are_stored(millpond_app):
    app = millpond_app(sql="""
        CREATE STREAM orders (id INT, amount INT) FROM memory://orders;
        CREATE TABLE stored (id INT PRIMARY KEY, amount INT);
        UPSERT INTO stored SELECT id, amount FROM orders;
    """)
    app.feed("memory://orders").send([{"id": 1, "amount": 5}])
    app.drain()
    assert app.table("stored").get(1)["amount"] == 5

def test_each_test_has_its_own_state(millpond_app):
    app = millpond_app(sql="CREATE TABLE stored (id INT PRIMARY KEY);", once=True)
    assert len(app.table("stored")) == 0
'''


@pytest.mark.process
def test_the_plug_in_of_pytest_starts_apps_that_end_with_the_test(tmp_path: Path) -> None:
    (tmp_path / "test_orders.py").write_text(PYTEST, "utf-8")
    words = ["-q", "-p", "no:cacheprovider", "--rootdir", str(tmp_path)]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *words, str(tmp_path)],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert "2 passed" in done.stdout, done.stdout + done.stderr
