"""Rendering: what is written for Spark means what was read."""

from typing import Any

import pytest

from millpond.sql.parser import parse_script
from millpond.sql.spark import render
from millpond.sql.statements import Select

# Read and written back word for word, but for the case of function names and optional words.
SAME = r"""
SELECT listagg(a) FROM t
SELECT listagg(DISTINCT a, ',') WITHIN GROUP (ORDER BY a DESC) FROM t
SELECT string_agg(a, '-') FROM t
SELECT percentile_cont(0.5) WITHIN GROUP (ORDER BY a) FROM t
SELECT percentile(a, 0.5, 2), percentile_approx(a, 0.5, 100), approx_percentile(a, ARRAY(0.1, 0.9)) FROM t
SELECT max_by(a, b), max_by(a, b, 2), min_by(a, b) FROM t
SELECT first(a), first(a, TRUE), last_value(a, FALSE), any_value(a, TRUE) FROM t
SELECT count(*), count(DISTINCT a, b), count_if(a > 1), sum(DISTINCT a) FROM t
SELECT stddev(a), stddev_samp(a), stddev_pop(a), variance(a) FROM t
SELECT var_samp(a), var_pop(a), corr(a, b), regr_slope(a, b) FROM t
SELECT array_agg(a), collect_list(a), collect_set(a), median(a), mode(a), approx_count_distinct(a, 0.01) FROM t
SELECT date_format(a, 'y'), date_format(a, 'yyyy-MM-dd\'T\'HH:mm:ss.SSS') FROM t
SELECT to_date(a), to_date(a, 'dd/MM/yyyy'), to_timestamp(a), to_timestamp(a, 'yyyy') FROM t
SELECT from_unixtime(a, 'yyyy-MM-dd HH:mm:ss'), unix_timestamp(), unix_timestamp(a, 'y') FROM t
SELECT date_add(a, 1), date_sub(a, 1), dateadd(a, 1), datediff(a, b), date_diff(a, b), date_trunc('hour', a) FROM t
SELECT datediff(DAY, a, b), timestampadd(HOUR, 1, a), timestampdiff(MINUTE, a, b) FROM t
SELECT trunc(a, 'MM'), last_day(a), next_day(a, 'Mon'), months_between(a, b), add_months(a, 1) FROM t
SELECT year(a), quarter(a), month(a), day(a), dayofweek(a) FROM t
SELECT dayofyear(a), weekofyear(a), hour(a), minute(a), second(a) FROM t
SELECT from_utc_timestamp(a, 'UTC'), to_utc_timestamp(a, 'UTC'), make_date(1, 2, 3), unix_date(a) FROM t
SELECT nvl(a, b), ifnull(a, b), nvl2(a, b, c), coalesce(a, b), nullif(a, b), if(a, 1, 2) FROM t
SELECT ceil(a), ceiling(a), floor(a), round(a, 2), bround(a, 2) FROM t
SELECT mod(a, 2), pmod(a, 2), div(a, 2), pow(a, 2), power(a, 2) FROM t
SELECT log(a), log(2, a), log10(a), log2(a), ln(a), exp(a) FROM t
SELECT sqrt(a), signum(a), sign(a), greatest(a, b), least(a, b) FROM t
SELECT len(a), length(a), char_length(a), lcase(a), ucase(a), lower(a), upper(a), initcap(a), space(3), char(65) FROM t
SELECT ltrim(a), rtrim(a), ltrim('x', a), lpad(a, 3), rpad(a, 3, '-') FROM t
SELECT substring(a, 1, 2), substring_index(a, '.', 2) FROM t
SELECT instr(a, 'b'), locate('b', a), locate('b', a, 2), left(a, 1) FROM t
SELECT right(a, 1), replace(a, 'x', 'y'), translate(a, 'x', 'y') FROM t
SELECT split(a, ','), split_part(a, ',', 1), concat(a, b) FROM t
SELECT concat_ws('-', a, b), repeat(a, 2), reverse(a), contains(a, b) FROM t
SELECT regexp_extract(a, '(\\d+)', 1), regexp_extract(a, 'x'), regexp_replace(a, 'x', 'y'), regexp_like(a, 'x') FROM t
SELECT like(a, 'x'), a LIKE 'x', a LIKE 'x!%' ESCAPE '!', a ILIKE 'x', a RLIKE 'x' FROM t
SELECT get_json_object(a, '$.b'), from_json(a, 'x INT'), to_json(a), json_tuple(a, 'b'), schema_of_json('{}') FROM t
SELECT array(1, 2), map('a', 1), struct(a, b AS c), named_struct('a', 1, 'b', 2), array_size(a), size(a) FROM t
SELECT element_at(a, 1), try_element_at(a, 1), a[0], m['x'] FROM t
SELECT slice(a, 1, 2), sort_array(a), array_sort(a), sequence(1, 5, 2) FROM t
SELECT array_contains(a, 1), array_append(a, 1), array_remove(a, 1) FROM t
SELECT array_insert(a, 1, 2), flatten(a), shuffle(a) FROM t
SELECT transform(a, x -> x + 1), filter(a, x -> x > 1) FROM t
SELECT aggregate(a, 0, (s, x) -> s + x), reduce(a, 0, (s, x) -> s + x) FROM t
SELECT exists(a, x -> x > 1), forall(a, x -> x > 1) FROM t
SELECT zip_with(a, b, (x, y) -> x + y), map_filter(a, (k, v) -> v > 1) FROM t
SELECT md5(a), sha1(a), sha2(a, 256), crc32(a), hex(a), unhex(a), base64(a), rand(1), random(), uuid() FROM t
SELECT try_add(a, b), try_divide(a, b), try_to_number(a, '99'), to_number(a, '99'), to_char(a, '99') FROM t
SELECT row_number() OVER (PARTITION BY a ORDER BY b), lag(a, 1, 0) OVER (ORDER BY b), ntile(4) OVER (ORDER BY a) FROM t
SELECT sum(a) OVER (ORDER BY b ROWS BETWEEN 1 PRECEDING AND CURRENT ROW) FROM t
SELECT 1L, 2S, 3Y, 4.5D, 1.5F, 2.50BD, -128Y, -9223372036854775808L, 1e3, 0.5 FROM t
SELECT 'it\'s', 'a\\b', 'tab\there', 'line\nbreak' FROM t
SELECT X'1F2E' FROM t
SELECT a + b * c - (d - e) / f % g, -a, ~a, a & b | c ^ d, a || b FROM t
SELECT a = b AND c <> d OR NOT e, a <=> b, a IS NULL, a BETWEEN 1 AND 2, a IN (1, 2) FROM t
SELECT EXTRACT(YEAR FROM a), SUBSTRING(a, 1, 2), TRIM(a) FROM t
SELECT a FROM t GROUP BY ROLLUP (a, b)
SELECT a FROM t GROUP BY GROUPING SETS ((a), ())
SELECT * FROM t LATERAL VIEW EXPLODE(xs) e AS x
SELECT EXPLODE(xs) AS x, INLINE(y) FROM t
SELECT * FROM a LEFT SEMI JOIN b ON a.x = b.x FULL OUTER JOIN c USING (x)
SELECT * FROM a INNER JOIN b
SELECT /*+ BROADCAST(b) */ * FROM a CROSS JOIN b
SELECT * FROM VALUES (1, 'a'), (2, 'b') AS v(x, y)
SELECT * EXCEPT (a) FROM t
SELECT DISTINCT a FROM t ORDER BY a DESC NULLS FIRST LIMIT 10 OFFSET 5
SELECT a FROM t UNION ALL SELECT b FROM u EXCEPT SELECT c FROM v
SELECT CAST(a AS DECIMAL(12, 2)), TRY_CAST(a AS ARRAY<STRUCT<x: INT>>) FROM t
SELECT window(ts, '5 minutes') FROM t
SELECT current_user(), current_timestamp(), input_file_name(), monotonically_increasing_id() FROM t
"""

# Read in one form, written in another of the same meaning.
OTHER = [
    ("SELECT NVL(`a b`, \"c d\") FROM `T 1`", "SELECT NVL(`a b`, `c d`) FROM `T 1`"),
    ("SELECT t.left, date FROM t", "SELECT t.`left`, `date` FROM t"),
    ("SELECT été FROM t", "SELECT `été` FROM t"),
    ("SELECT a == b, a != b, ! a FROM t", "SELECT a = b, a <> b, NOT a FROM t"),
    ("SELECT a IS NOT NULL, a NOT IN (1) FROM t", "SELECT NOT a IS NULL, NOT a IN (1) FROM t"),
    ("SELECT DATE '2024-01-01', TIMESTAMP '2024-01-01 00:00:00'",
     "SELECT CAST('2024-01-01' AS DATE), CAST('2024-01-01 00:00:00' AS TIMESTAMP)"),
    ("SELECT ts - INTERVAL 5 SECONDS FROM t", "SELECT ts - INTERVAL '5' SECONDS FROM t"),
    ("SELECT a::int FROM t", "SELECT CAST(a AS INT) FROM t"),
    ("SELECT a FROM t ORDER BY a DESC NULLS LAST, b NULLS FIRST", "SELECT a FROM t ORDER BY a DESC, b"),
    ("SELECT substr(a, 1, 2), position('b' IN a) FROM t", "SELECT SUBSTRING(a, 1, 2), LOCATE('b', a) FROM t"),
    ("SELECT * FROM a JOIN b", "SELECT * FROM a INNER JOIN b"),
    ("SELECT * FROM a, b", "SELECT * FROM a CROSS JOIN b"),
    ("SELECT r'\\d' FROM t", "SELECT '\\\\d' FROM t"),
    ("SELECT 'a' 'b'", "SELECT CONCAT('a', 'b')"),
    ("SELECT * FROM VALUES 1, 2 AS v(x)", "SELECT * FROM VALUES (1), (2) AS v(x)"),
    ("SELECT a -- one\n, /* two */ b FROM t", "SELECT a, b FROM t"),
    ("SELECT * FROM kafka://x k", "SELECT * FROM 'kafka://x' AS k"),
    ("SELECT * FROM CHANGES(t) c", "SELECT * FROM CHANGES(t) AS c"),
    ("SELECT a FROM t GROUP BY a WINDOW TUMBLING(1m)",
     "SELECT a FROM t GROUP BY a, TUMBLING(INTERVAL '60000000' MICROSECOND)"),
    ("SELECT orders[*].x, p.**.y FROM t", "SELECT orders[*].x, p.**.y FROM t"),
]  # fmt: skip


def rendered(text: str) -> str:
    script = parse_script(text)
    assert [str(p) for p in script.problems] == []
    statement = script.statements[0]
    assert isinstance(statement, Select)
    return render(statement.query)


def folded(text: str) -> str:
    """Without regard to the case of words outside quotes."""
    parts = text.split("'")
    return "'".join(part.upper() if index % 2 == 0 else part for index, part in enumerate(parts))


@pytest.mark.parametrize("text", SAME.strip().split("\n"))
def test_what_spark_knows_is_written_as_it_was_read(text: str) -> None:
    assert folded(rendered(text)) == folded(text)


@pytest.mark.parametrize(("text", "expected"), OTHER)
def test_other_forms_are_written_in_one(text: str, expected: str) -> None:
    assert rendered(text) == expected


@pytest.mark.parametrize("text", [*SAME.strip().split("\n"), *(text for text, _ in OTHER)])
def test_what_is_written_is_read_as_the_same(text: str) -> None:
    once = rendered(text)
    assert rendered(once) == once


def test_rendering_leaves_the_tree_alone() -> None:
    (statement,) = parse_script("SELECT CAST(a AS VARCHAR(3)), first(a, TRUE) FROM t").statements
    assert isinstance(statement, Select)
    before = repr(statement.query)
    render(statement.query)
    assert repr(statement.query) == before


# What is written differently from what was read, and some of what other SQL tools get wrong, with its own rows.
ON_SPARK = r"""
SELECT listagg(x), listagg(x, '-') FROM VALUES ('a'), ('b') AS v(x)
SELECT percentile_cont(0.25) WITHIN GROUP (ORDER BY x) FROM VALUES (0), (10) AS v(x)
SELECT max_by(x, y, 2) FROM VALUES ('a', 1), ('b', 3), ('c', 2) AS v(x, y)
SELECT first(x, TRUE), last(x, TRUE) FROM VALUES (NULL), (5), (NULL) AS v(x)
SELECT -128Y, -9223372036854775808L, 2.50BD, 1e3, 4.5D
SELECT 'it''s', 'a\\b', '100\%', 'x\ty\n', r'\d', '\u00e9', 'q"q'
SELECT 'a%b' LIKE 'a\%b', 'a_b' LIKE 'a!_b' ESCAPE '!', 'a.b' LIKE 'a%', 'axb' RLIKE 'a.b'
SELECT x <=> NULL, x IS NOT NULL, x NOT IN (1, 2), NOT x BETWEEN 1 AND 2 FROM VALUES (1), (NULL), (3) AS v(x)
SELECT 1 - (2 - 3), 7 / 2, 7 % 4, 7 DIV 2, -(-1), 2 * (3 + 4), 1 + 2 || 'x', 5 & 3 | 8 ^ 2, ~5, 2 << 3, 16 >> 2
SELECT DATE '2024-02-29' + INTERVAL 1 YEAR, TIMESTAMP '2024-01-01 00:00:00' - INTERVAL 5 SECONDS
SELECT date_format(DATE '2024-03-05', 'y/M/d')
SELECT to_date('05.03.2024', 'dd.MM.yyyy'), date_trunc('month', DATE '2024-03-05')
SELECT extract(YEAR FROM DATE '2024-03-05'), date_sub(DATE '2024-03-05', 5)
SELECT datediff(DATE '2024-03-05', DATE '2024-03-01')
SELECT substr('abcdef', 2, 3), position('c' IN 'abc')
SELECT trim(BOTH 'x' FROM 'xax'), ltrim('x', 'xax'), overlay('abc' PLACING 'Z' FROM 2)
SELECT transform(array(1, 2), x -> x + 1), aggregate(array(1, 2), 0, (s, x) -> s + x), sequence(5, 1, -2)
SELECT named_struct('a', 1, 'b', 'x').b, map('k', 1)['k'], array(1, 2)[1], element_at(array(1, 2), -1), struct(1 AS z).z
SELECT x, sum(y) AS s FROM VALUES (1, 2), (1, 3), (2, 4) AS v(x, y) GROUP BY ROLLUP (x) ORDER BY x DESC NULLS LAST
SELECT x, row_number() OVER (ORDER BY x DESC) AS n FROM VALUES (1), (2) AS v(x) ORDER BY n
SELECT `left`, `date` FROM VALUES (1, 2) AS v(`left`, `date`)
SELECT * FROM VALUES 1, 2 AS v(x) ORDER BY x
SELECT e FROM VALUES (array(1, 2)) AS v(xs) LATERAL VIEW explode(xs) ex AS e ORDER BY e
SELECT * FROM VALUES (1, 'a'), (2, 'b') AS v(k, s) PIVOT (max(s) FOR k IN (1, 2))
WITH a AS (SELECT 1 AS x), b(y) AS (SELECT x + 1 FROM a) SELECT y FROM b UNION ALL SELECT x FROM a ORDER BY y
SELECT a.x FROM VALUES (1), (2) AS a(x), VALUES (2), (3) AS b(y) WHERE a.x = b.y
SELECT CASE x WHEN 1 THEN 'one' ELSE 'more' END, if(x > 1, 'a', 'b'), nvl(NULL, x) FROM VALUES (1), (2) AS v(x)
SELECT x = 1 AND y = 2 OR NOT x = 1 AND (y = 3 OR x = 2) FROM VALUES (1, 2), (2, 3) AS v(x, y)
SELECT CAST('1.005' AS DECIMAL(10, 2)), TRY_CAST('x' AS INT), '5'::int
SELECT CAST(named_struct('a', 1) AS STRUCT<b: BIGINT>).b
"""


@pytest.mark.spark
def test_spark_gets_the_same_rows_from_what_is_written(spark: Any) -> None:
    for text in ON_SPARK.strip().split("\n"):
        wanted = [tuple(row) for row in spark.sql(text).collect()]
        assert [tuple(row) for row in spark.sql(rendered(text)).collect()] == wanted, text
