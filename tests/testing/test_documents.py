"""Reading Markdown documents as tests."""

from pathlib import Path

import pytest

from millpond.testing.documents import read_sections

PAGE = """# Title

```csv title=users.csv
a,b
```

## First claim

````sql exit=2
SELECT '```';
````

```csv query="SELECT a, b FROM t" flag
a
```

## Nothing here

text

## Second claim
```says
```
"""


@pytest.fixture
def page(tmp_path: Path) -> Path:
    file = tmp_path / "page.md"
    file.write_text(PAGE, "utf-8")
    return file


def test_blocks_belong_to_the_heading_above_them(page: Path) -> None:
    found = {section.heading: [b.language for b in section.blocks] for section in read_sections(page)}
    assert found == {"": ["csv"], "First claim": ["sql", "csv"], "Second claim": ["says"]}


def test_a_block_knows_its_attributes_body_and_line(page: Path) -> None:
    titled, sql, query = (b for section in read_sections(page)[:2] for b in section.blocks)
    assert (titled.title, titled.body, titled.line) == ("users.csv", "a,b\n", 3)
    assert (sql.attributes, sql.body) == ({"exit": "2"}, "SELECT '```';\n")
    assert query.attributes == {"query": "SELECT a, b FROM t", "flag": ""}
    assert query.has("flag")
    assert not query.has("title")


def test_a_block_that_is_never_closed_is_an_error_with_its_line(tmp_path: Path) -> None:
    file = tmp_path / "open.md"
    file.write_text("text\n```sql\nSELECT 1\n", "utf-8")
    with pytest.raises(ValueError, match=r"open\.md:2: a fenced block is never closed"):
        read_sections(file)
