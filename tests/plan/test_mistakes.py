"""Wrong SQL: mistakes.md says text by text what is found, word for word."""

import re
from pathlib import Path

import pytest
from tests.plan.planning import HEAD, plan_of, problems_of

from millpond.errors import CODES

PAGE = (Path(__file__).parent / "mistakes.md").read_text("utf-8")
CASE = re.compile(r"^### (?P<claim>.+)\n```sql\n(?P<sql>(?:.+\n)+)```\n(?P<found>(?:- .+\n?)+)", re.MULTILINE)
CASES = [(c["claim"], c["sql"], [line[2:] for line in c["found"].strip().split("\n")]) for c in CASE.finditer(PAGE)]


@pytest.mark.parametrize(("claim", "sql", "found"), CASES, ids=[claim for claim, _, _ in CASES])
def test_a_mistake_is_reported_exactly(claim: str, sql: str, found: list[str]) -> None:
    assert (problems_of(sql) or ["nothing"]) == found


def test_every_case_of_the_page_is_read() -> None:
    assert len(CASES) == PAGE.count("\n### ")


def test_the_declarations_before_each_case_are_right() -> None:
    assert plan_of(HEAD).problems == ()


# Codes of the 2xx and 3xx that have no case here: MP305 has no option that must be given yet, MP309 and MP310 are not
# the planner's.
ELSEWHERE = {"MP305", "MP309", "MP310"}


def test_every_code_for_names_shape_and_options_has_a_case() -> None:
    wanted = {code for code in CODES if code[:3] in ("MP2", "MP3")} - ELSEWHERE
    assert wanted - set(re.findall(r"^- (MP\d+)", PAGE, re.MULTILINE)) == set()


TEN = """\
CREATE STREAM t (a INT, b STRING) FROM 'file://./t.jsonl';
CREATE TABLE k (a INT PRIMARY KEY, b STRING, a STRING);
CREATE TABLE k (x INT);
SELECT c FROM t;
SELECT a FROM nowhere_at_all;
SELEC a FROM t;
INSERT INTO k VALUES (1);
SELECT a FROM t WHERE b = DATE '2020-01-01' AND a = true;
INSERT INTO k SELECT a FROM t WITH ('on.eror' = 'stop');
SELECT a, COUNT(*) FROM k;
COMMIT;
"""


def test_ten_mistakes_of_a_file_are_reported_in_order() -> None:
    found = [(p.place.line if p.place else 0, p.code) for p in plan_of(TEN).problems]
    assert found == [
        (2, "MP205"),
        (3, "MP205"),
        (4, "MP202"),
        (5, "MP201"),
        (6, "MP109"),
        (7, "MP207"),
        (8, "MP206"),
        (9, "MP207"),
        (9, "MP301"),
        (10, "MP210"),
        (11, "MP217"),
    ]


def test_every_mistake_has_a_place_with_its_line() -> None:
    for problem in plan_of(TEN).problems:
        assert problem.place is not None
        line = TEN.splitlines()[problem.place.line - 1]
        # Nobody has declared what an unknown option holds: it is not shown.
        assert problem.place.excerpt == line.replace("'on.eror' = 'stop'", "'on.eror' = '****'")
