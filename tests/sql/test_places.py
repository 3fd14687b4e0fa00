"""Places: every node of a query points at its own words."""

from collections.abc import Callable

import pytest
from sqlglot import exp

from millpond.sql import nodes
from millpond.sql.parser import parse_script, place_of
from millpond.sql.statements import Select
from millpond.sql.text import SourceText

TEXT = """SELECT t.a, /* one */ upper(t.b) AS c, 5 AS n, 'text' AS s, count(*),
       CASE WHEN t.a > 10 THEN 1 END, x IN (SELECT y FROM u)
FROM kafka://orders t
JOIN users u ON t.id = u.id
GROUP BY t.a, TUMBLING(t.ts, 1m)
ORDER BY t.zz"""


def marked(tree: exp.Expr, source: SourceText, find: Callable[[exp.Expr], bool]) -> str:
    node = next(n for n in tree.walk(bfs=False) if find(n))
    place = place_of(node, source)
    line = source.text.split("\n")[place.line - 1]
    return line[place.column - 1 : place.column - 1 + place.length]


@pytest.mark.parametrize(
    ("find", "words"),
    [
        (lambda n: isinstance(n, exp.Column) and n.name == "a", "t.a"),
        (lambda n: isinstance(n, exp.Upper), "upper(t.b"),
        (lambda n: isinstance(n, exp.Literal) and n.name == "5", "5"),
        (lambda n: isinstance(n, exp.Literal) and n.is_string, "'text'"),
        (lambda n: isinstance(n, exp.Count), "count(*"),
        (lambda n: isinstance(n, exp.GT), "t.a > 10"),
        (lambda n: isinstance(n, nodes.Uri), "kafka://orders"),
        (lambda n: isinstance(n, exp.Table) and n.name == "users", "users u"),
        (lambda n: isinstance(n, exp.Join), "users u ON t.id = u.id"),
        (lambda n: isinstance(n, exp.EQ), "t.id = u.id"),
        (lambda n: isinstance(n, nodes.Window), "TUMBLING(t.ts"),
        (lambda n: isinstance(n, exp.Column) and n.name == "zz", "t.zz"),
    ],
)
def test_a_node_is_where_its_words_are(find: Callable[[exp.Expr], bool], words: str) -> None:
    script = parse_script(TEXT, file="p.sql")
    assert script.problems == ()
    statement = script.statements[0]
    assert isinstance(statement, Select)
    assert marked(statement.query, script.source, find) == words
    assert marked(statement.query.copy(), script.source, find) == words


def test_a_node_without_words_is_where_its_parent_is() -> None:
    script = parse_script("SELECT\n  upper(a) FROM t")
    statement = script.statements[0]
    assert isinstance(statement, Select)
    call = statement.query.find(exp.Upper)
    assert call is not None
    made = exp.true()
    call.set("expression", made)
    place = place_of(made, script.source)
    assert (place.line, place.column) == (2, 3)


def test_a_place_never_reaches_past_its_line() -> None:
    script = parse_script("SELECT a +\n  b AS c FROM t")
    statement = script.statements[0]
    assert isinstance(statement, Select)
    addition = statement.query.find(exp.Add)
    assert addition is not None
    place = place_of(addition, script.source)
    assert (place.line, place.column, place.length, place.excerpt) == (1, 8, 3, "SELECT a +")
