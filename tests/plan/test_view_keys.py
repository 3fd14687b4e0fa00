"""The key of a view follows from the keys of its tables."""

import pytest
from tests.plan.planning import plan_of

TABLES = """\
CREATE TABLE t (id INT PRIMARY KEY, uid STRING, n INT);
CREATE TABLE u (uid STRING PRIMARY KEY, name STRING, city INT);
CREATE TABLE c (city INT PRIMARY KEY, country STRING);
CREATE TABLE p (a INT, b STRING, x INT, PRIMARY KEY (a, b));
CREATE TABLE free (uid STRING, n INT);
"""


@pytest.mark.parametrize(
    ("query", "key"),
    [
        ("SELECT * FROM t", ("id",)),
        ("SELECT uid AS name, n FROM t", ()),
        ("SELECT t.id, u.name FROM t JOIN u ON t.uid = u.uid", ("id",)),
        ("SELECT t.id AS number, u.name FROM u JOIN t ON t.uid = u.uid", ("number",)),
        ("SELECT t.id, u.name, c.country FROM t JOIN u ON t.uid = u.uid JOIN c ON c.city = u.city", ("id",)),
        ("SELECT t.id, u.name FROM t, u WHERE t.uid = u.uid AND t.n > 3", ("id",)),
        ("SELECT t.id, u.name FROM t LEFT JOIN u ON t.uid = u.uid", ("id",)),
        ("SELECT u.name, t.n FROM t JOIN u ON t.uid = u.uid", ()),
        # A user may have several rows of t.
        ("SELECT u.uid, t.n FROM u JOIN t ON t.uid = u.uid", ()),
        ("SELECT u.uid, t.id FROM u LEFT JOIN t ON t.uid = u.uid", ()),
        ("SELECT t.id, u.uid, u.name FROM t JOIN u ON t.n > u.city", ("id", "uid")),
        ("SELECT t.id, p.x FROM t JOIN p ON p.a = t.n", ()),
        ("SELECT t.id, p.x FROM t JOIN p ON p.a = t.n AND p.b = t.uid", ("id",)),
        ("SELECT u.uid, v.name FROM u JOIN u AS v ON u.uid = v.uid", ("uid",)),
        ("SELECT v.uid, u.name FROM u JOIN u AS v ON u.uid = v.uid", ("uid",)),
        ("SELECT t.id, f.n FROM t JOIN free f ON f.uid = t.uid", ()),
        ("SELECT t.id FROM t LEFT SEMI JOIN u ON u.uid = t.uid", ("id",)),
        ("SELECT t.id, u.name FROM t RIGHT JOIN u ON t.uid = u.uid", ()),
        ("SELECT t.id, u.name FROM t FULL JOIN u ON t.uid = u.uid", ()),
        ("SELECT DISTINCT t.id, u.name FROM t JOIN u ON t.uid = u.uid", ()),
        ("SELECT t.id, x FROM t LATERAL VIEW explode(array(1, 2)) e AS x", ()),
        ("SELECT id, n FROM t QUALIFY ROW_NUMBER() OVER (PARTITION BY uid ORDER BY n) = 1", ("id",)),
        ("SELECT id, x FROM t LATERAL VIEW explode(array(1, 2)) e AS x QUALIFY COUNT(*) OVER () > 1", ()),
        ("SELECT t.id, u.uid FROM t LEFT JOIN u ON t.n > u.city QUALIFY COUNT(*) OVER () > 1", ()),
        ("SELECT uid, SUM(n) AS s FROM t GROUP BY uid QUALIFY RANK() OVER (ORDER BY SUM(n)) = 1", ("uid",)),
        # Compared as numbers, '1' and '01' are equal.
        ("SELECT t.id, u.name FROM t JOIN u ON t.n = u.uid", ()),
    ],
)
def test_a_view_is_keyed_by_what_its_tables_are_keyed_by(query: str, key: tuple[str, ...]) -> None:
    plan = plan_of(f"{TABLES}CREATE TABLE v AS {query};")
    assert not plan.errors
    view = plan.table("v")
    assert view is not None
    assert view.spec.schema.key == key
