"""The runner of SQL-file tests, on a driver that answers from a script."""

from dataclasses import dataclass, field
from pathlib import Path

import pytest

from millpond.testing.documents import Section, read_sections
from millpond.testing.sql_files import Conditions, Outcome, json_as_csv, run_section


@dataclass
class Scripted:
    """Writes fixed rows to a sink, and records the apps that it was given."""

    exit: int = 0
    error_output: str = ""
    apps: list[str] = field(default_factory=list)

    def run(self, folder: Path, conditions: Conditions) -> Outcome:
        self.apps.append((folder / "app.sql").read_text("utf-8"))
        (folder / "out").mkdir(exist_ok=True)
        (folder / "out" / "1.jsonl").write_text('{"a": 1.50, "b": null}\n{"a": 2, "b": ""}\n', "utf-8")
        return Outcome(self.exit, '{"n": "7"}\n', self.error_output)

    def query(self, folder: Path, sql: str, conditions: Conditions) -> list[str]:
        return ["a", "1", "2"]


def section(tmp_path: Path, text: str) -> Section:
    file = tmp_path / "page.md"
    file.write_text(f"## Claim\n{text}", "utf-8")
    return read_sections(file)[0]


def run(tmp_path: Path, text: str, driver: Scripted) -> None:
    run_section(section(tmp_path, text), tmp_path, driver)


def test_rows_of_queries_sinks_and_standard_output_are_compared(tmp_path: Path) -> None:
    text = """
```csv title=data/in.csv
x
```
```sql
SELECT 1
```
```csv query="SELECT a FROM t"
a
2
1
```
```csv sink=out
a,b
2,""
1.50,
```
```csv stdout
n
7
```
"""
    driver = Scripted()
    run(tmp_path, text, driver)
    assert driver.apps == ["SELECT 1\n"]
    assert (tmp_path / "data" / "in.csv").read_text("utf-8") == "x\n"


@pytest.mark.parametrize(
    "wrong",
    [
        '```csv query="SELECT a FROM t"\na\n1\n```',
        '```csv query="SELECT a FROM t ORDER BY a DESC"\na\n2\n1\n```',
        "```csv sink=out\na,b\n1.5,\n2,\n```",
        "```csv stdout\nn\n8\n```",
        "```says\nMP501\n```",
        "```run exit=1\n```",
        "```text\nnothing\n```",
    ],
)
def test_anything_else_than_expected_fails_with_its_line(tmp_path: Path, wrong: str) -> None:
    with pytest.raises(AssertionError, match=r"page\.md:5"):
        run(tmp_path, f"```sql\nSELECT 1\n```\n{wrong}\n", Scripted(error_output="MP110"))


def test_a_run_again_keeps_the_app(tmp_path: Path) -> None:
    driver = Scripted(exit=1, error_output="MP501 missing")
    run(tmp_path, "```sql exit=1\nSELECT 1\n```\n```run exit=1\n```\n```says\nMP501\n```\n", driver)
    assert driver.apps == ["SELECT 1\n", "SELECT 1\n"]


def test_an_expectation_before_any_run_is_a_mistake(tmp_path: Path) -> None:
    with pytest.raises(AssertionError, match="nothing has run yet"):
        run(tmp_path, "```csv stdout\nn\n```\n", Scripted())


def test_json_lines_keep_their_digits_as_csv() -> None:
    assert json_as_csv(['{"a": 1.500, "b": "x,y", "c": [1]}']) == ["a,b,c", '1.500,"x,y",[1]']
