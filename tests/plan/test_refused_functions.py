"""Functions that reach outside of the rows are refused wherever an expression or a relation can stand."""

from __future__ import annotations

import pytest
from tests.plan.planning import problems_of

from millpond.errors import BindError
from millpond.plan.function_names import FUNCTIONS
from millpond.sql.function_calls import REFUSED
from millpond.sql.parser import parse_expression
from millpond.sql.spark import render

CALL = "reflect('java.lang.System', 'exit', 3)"
PLACES = [
    f"SELECT {CALL};",
    f"SELECT name FROM users WHERE {CALL} = 'x';",
    f"SELECT name FROM users WHERE EXISTS (SELECT {CALL} FROM symbols);",
    f"SELECT COUNT(*) FROM users GROUP BY {CALL};",
    f"SELECT name, COUNT(*) FROM users GROUP BY name HAVING {CALL} = 'x';",
    f"SELECT name FROM users ORDER BY {CALL};",
    f"SELECT name FROM users LIMIT length({CALL});",
    f"SELECT SUM(age) OVER (PARTITION BY {CALL}) FROM users;",
    f"SELECT transform(array(1), x -> {CALL});",
    f"SELECT t.price FROM trades t JOIN users u ON u.user_id = {CALL};",
    f"SELECT * FROM {CALL};",
    f"SELECT name FROM users, LATERAL {CALL};",
    f"SELECT y FROM users LATERAL VIEW explode(array({CALL})) x AS y;",
    f"SELECT * FROM VALUES ({CALL}) AS v(x);",
    f"WITH x AS (SELECT {CALL} AS c) SELECT * FROM x;",
    f"CREATE TABLE made (a STRING DEFAULT {CALL});",
    f"CREATE TABLE made AS SELECT name, {CALL} AS c FROM users;",
    f"CREATE STREAM made AS SELECT {CALL} AS c FROM trades; SELECT * FROM made;",
    f"INSERT INTO users (user_id) VALUES ({CALL});",
    f"UPSERT INTO users (user_id) VALUES ({CALL});",
    f"UPDATE users SET tier = {CALL} WHERE user_id = 'u1';",
    f"UPDATE users SET tier = {CALL} FROM trades t WHERE users.user_id = t.user_id;",
    f"DELETE FROM users WHERE tier = {CALL};",
    f"DELETE FROM users USING trades t WHERE users.user_id = t.user_id AND t.symbol = {CALL};",
]


@pytest.mark.parametrize("sql", PLACES)
def test_a_call_of_java_is_refused(sql: str) -> None:
    assert "MP219" in {found.split()[0] for found in problems_of(sql)}


@pytest.mark.parametrize("name", sorted(REFUSED))
def test_a_refused_function_is_never_rendered_for_spark(name: str) -> None:
    with pytest.raises(BindError, match=name.lower()):
        render(parse_expression(f"{name.lower()}('a', 'b') = 'c'"))


def test_refused_functions_are_functions_of_spark() -> None:
    assert {name.lower() for name in REFUSED} <= FUNCTIONS
