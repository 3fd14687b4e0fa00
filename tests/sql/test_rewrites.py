"""ANY, SOME, ALL and IN as a value: forms that Spark runs, with the NULLs of SQL, against a naive evaluator."""

import operator
from collections.abc import Callable, Iterable
from itertools import product
from typing import Any

import pytest
from sqlglot import exp

from millpond.sql.parser import parse_expression, parse_script
from millpond.sql.rewrites import rewrite_any_all
from millpond.sql.spark import render
from millpond.sql.statements import Select

Truth = bool | None
Row = tuple[int | None, int | None]

COMPARE: dict[str, Callable[[Any, Any], bool]] = {
    "=": operator.eq,
    "<>": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
QUANTIFIERS = ("ANY", "SOME", "ALL")

VALUES = (None, 1, 2, 3)
OUTER: list[Row] = list(product(VALUES, VALUES))
# Groups 1 to 3 of u: with a NULL, without, and none at all.
INNER: list[Row] = [(1, 1), (1, 3), (1, None), (2, 2), (2, 2), (None, 1)]


def rewritten(text: str) -> str:
    script = parse_script(text)
    assert [str(p) for p in script.problems] == []
    statement = script.statements[0]
    assert isinstance(statement, Select)
    before = repr(statement.query)
    found = rewrite_any_all(statement.query)
    assert repr(statement.query) == before
    assert not [n for n in found.find_all(exp.Any, exp.All) if n.find(exp.Query)]
    return render(found)


def compared(x: int | None, op: str, y: int | None) -> Truth:
    return None if x is None or y is None else COMPARE[op](x, y)


def quantified(x: int | None, op: str, quantifier: str, values: Iterable[int | None]) -> Truth:
    """One comparison at a time, as the standard says."""
    results = [compared(x, op, y) for y in values]
    decisive = quantifier != "ALL"
    if decisive in results:
        return decisive
    return None if None in results else not decisive


def of_group(k: int | None) -> list[int | None]:
    return [y for group, y in INNER if k is not None and group == k]


EVERY: list[int | None] = [y for _, y in INNER]


@pytest.fixture(scope="module")
def relations(spark: Any) -> Any:
    spark.createDataFrame(OUTER, "k INT, x INT").createOrReplaceTempView("any_t")
    spark.createDataFrame(INNER, "k INT, y INT").createOrReplaceTempView("any_u")
    yield spark
    spark.catalog.dropTempView("any_t")
    spark.catalog.dropTempView("any_u")


def rows(session: Any, text: str) -> list[tuple[Any, ...]]:
    return sorted((tuple(row) for row in session.sql(rewritten(text)).collect()), key=repr)


@pytest.mark.spark
@pytest.mark.parametrize("op", COMPARE)
def test_as_a_value_it_is_true_false_or_null(relations: Any, op: str) -> None:
    subqueries = {"SELECT y FROM any_u WHERE any_u.k = any_t.k": of_group, "SELECT y FROM any_u": lambda _: EVERY}
    columns, expected = [], []
    for (query, values), quantifier in product(subqueries.items(), ("ANY", "ALL")):
        columns.append(f"x {op} {quantifier} ({query})")
        expected.append((values, quantifier))
    found = rows(relations, f"SELECT k, x, {', '.join(columns)} FROM any_t")
    wanted = [(k, x, *(quantified(x, op, quantifier, values(k)) for values, quantifier in expected)) for k, x in OUTER]
    assert found == sorted(wanted, key=repr)


@pytest.mark.spark
@pytest.mark.parametrize(("op", "quantifier"), list(product(COMPARE, ("SOME", "ALL"))))
def test_in_a_filter_only_true_passes(relations: Any, op: str, quantifier: str) -> None:
    condition = f"x {op} {quantifier} (SELECT y FROM any_u WHERE any_u.k = any_t.k)"
    found = rows(relations, f"SELECT k, x FROM any_t WHERE {condition}")
    assert found == sorted([r for r in OUTER if quantified(r[1], op, quantifier, of_group(r[0]))], key=repr)
    negated = rows(relations, f"SELECT k, x FROM any_t WHERE NOT ({condition}) OR x = 3")
    wanted = [r for r in OUTER if quantified(r[1], op, quantifier, of_group(r[0])) is False or r[1] == 3]
    assert negated == sorted(wanted, key=repr)


@pytest.mark.spark
def test_membership_is_null_where_it_is_unknown(relations: Any) -> None:
    query = "SELECT y FROM any_u WHERE any_u.k = any_t.k"
    found = rows(
        relations,
        f"SELECT k, x, x IN ({query}), x NOT IN ({query}), CASE WHEN x IN ({query}) THEN 1 ELSE 0 END FROM any_t",
    )
    wanted = []
    for k, x in OUTER:
        inside = quantified(x, "=", "ANY", of_group(k))
        wanted.append((k, x, inside, None if inside is None else not inside, int(inside is True)))
    assert found == sorted(wanted, key=repr)


@pytest.mark.spark
def test_rows_of_two_columns_are_compared_one_by_one(relations: Any) -> None:
    found = rows(relations, "SELECT k, x, (k, x) IN (SELECT k, y FROM any_u) FROM any_t")
    wanted = []
    for k, x in OUTER:
        pairs = [(compared(k, "=", a), compared(x, "=", b)) for a, b in INNER]
        results = [False if False in pair else None if None in pair else True for pair in pairs]
        wanted.append((k, x, True if True in results else None if None in results else False))
    assert found == sorted(wanted, key=repr)


@pytest.mark.spark
@pytest.mark.parametrize("op", COMPARE)
def test_an_aggregate_may_stand_on_the_left(relations: Any, op: str) -> None:
    query = "SELECT y FROM any_u WHERE any_u.k = any_t.k"
    found = rows(relations, f"SELECT k, max(x) {op} ANY ({query}), max(x) {op} ALL ({query}) FROM any_t GROUP BY k")
    wanted = [(k, *(quantified(3, op, quantifier, of_group(k)) for quantifier in ("ANY", "ALL"))) for k in VALUES]
    assert found == sorted(wanted, key=repr)
    having = rows(relations, f"SELECT k FROM any_t GROUP BY k HAVING max(x) {op} ALL ({query})")
    assert having == sorted([(k,) for k, _, passed in wanted if passed], key=repr)


@pytest.mark.spark
def test_subqueries_nest(relations: Any) -> None:
    inner = "SELECT y FROM any_u WHERE any_u.y > ANY (SELECT x FROM any_t AS i WHERE i.k = any_u.k)"
    found = rows(relations, f"SELECT k, x FROM any_t WHERE x >= ALL ({inner})")
    above = [y for k, y in INNER if quantified(y, ">", "ANY", [x for i, x in OUTER if k is not None and i == k])]
    assert found == sorted([r for r in OUTER if quantified(r[1], ">=", "ALL", above)], key=repr)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("SELECT 1 FROM t WHERE x = ANY (SELECT y FROM u)", "SELECT 1 FROM t WHERE x IN (SELECT y FROM u)"),
        ("SELECT 1 FROM t WHERE x <> ALL (SELECT y FROM u)", "SELECT 1 FROM t WHERE NOT x IN (SELECT y FROM u)"),
        ("SELECT 1 FROM t WHERE x IN (SELECT y FROM u)", "SELECT 1 FROM t WHERE x IN (SELECT y FROM u)"),
        ("SELECT 1 FROM t WHERE x NOT IN (SELECT y FROM u)", "SELECT 1 FROM t WHERE NOT x IN (SELECT y FROM u)"),
        (
            "SELECT 1 FROM t WHERE a + 1 > ANY (SELECT y FROM u)",
            "SELECT 1 FROM t WHERE EXISTS(SELECT 1 FROM (SELECT y FROM u) AS _any_of(_any_value)"
            " WHERE (a + 1) > _any_of._any_value)",
        ),
        ("SELECT a LIKE ANY ('x', 'y') FROM t", "SELECT a LIKE ANY ('x', 'y') FROM t"),
        ("SELECT x IN (1, 2) FROM t", "SELECT x IN (1, 2) FROM t"),
    ],
)
def test_a_filter_keeps_the_forms_that_spark_plans_best(text: str, expected: str) -> None:
    assert rewritten(text) == expected


def test_a_name_of_the_left_side_is_not_taken_for_one_of_the_subquery() -> None:
    text = rewritten("SELECT 1 FROM t WHERE y > ANY (SELECT y FROM u)")
    assert text.endswith("FROM (SELECT y FROM u) AS _any_of(_any_value) WHERE y > _any_of._any_value)")


def test_a_condition_alone_is_a_value() -> None:
    assert render(rewrite_any_all(parse_expression("x > ALL (SELECT 1)"))).startswith("CASE WHEN EXISTS")
