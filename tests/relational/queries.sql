-- One query a line: Arrow must answer each exactly as Spark does.
SELECT e.id, t.name FROM e JOIN t ON t.k = e.k
SELECT e.id, t.name, m.v FROM e LEFT JOIN t ON t.k = e.k AND t.score > 3 LEFT JOIN m ON m.g = e.g AND m.v > e.n
SELECT e.id FROM e LEFT SEMI JOIN m ON m.g = e.g AND m.v < e.n
SELECT e.id FROM e LEFT ANTI JOIN m ON m.g = e.g
SELECT a.id, b.id AS other FROM e a, e b WHERE a.k = b.k AND a.id < b.id AND a.g = b.g
SELECT e.id, m.v FROM m, t, e WHERE t.k = e.k AND m.g = e.g AND t.score + m.v > e.n
SELECT e.id, x.v FROM e CROSS JOIN (SELECT v FROM m WHERE v IS NULL OR v > 6) x WHERE e.id < 5
SELECT id, (SELECT MAX(v) FROM m WHERE m.g = e.g) AS top FROM e
SELECT id, (SELECT COUNT(*) FROM m WHERE m.g = e.g AND m.v > e.n) AS c FROM e
SELECT id, (SELECT SUM(m.v) + COUNT(m.w) FROM m WHERE m.g = e.g) AS c FROM e WHERE e.n > 2
SELECT id, (SELECT name FROM t WHERE t.k = e.k) AS name FROM e
SELECT id, (SELECT AVG(price) FROM t) AS mean, (SELECT MIN(v) FROM nothing) AS none FROM e
SELECT id FROM e WHERE EXISTS (SELECT 1 FROM m WHERE m.g = e.g AND m.v > e.n)
SELECT id FROM e WHERE NOT EXISTS (SELECT * FROM m, t WHERE m.g = e.g AND t.k = e.k AND t.score >= m.v)
SELECT id FROM e WHERE k IN (SELECT k FROM t WHERE score > 2) OR n IN (SELECT v FROM m)
SELECT id FROM e WHERE n NOT IN (SELECT v FROM m WHERE v IS NOT NULL)
SELECT id FROM e WHERE n NOT IN (SELECT v FROM m)
SELECT id FROM e WHERE n NOT IN (SELECT v FROM nothing)
SELECT id, n IN (SELECT v FROM m WHERE m.g = e.g) AS inside, n > ANY (SELECT v FROM m WHERE m.g = e.g) AS a FROM e
SELECT id, n > ALL (SELECT v FROM m) AS x, n <= SOME (SELECT v FROM m) AS y, n = ALL (SELECT v FROM nothing) AS z FROM e
SELECT id FROM e WHERE n >= ALL (SELECT v FROM m WHERE m.g = e.g AND v IS NOT NULL)
SELECT id FROM e WHERE EXISTS (SELECT 1 FROM t WHERE t.k = e.k AND t.score > (SELECT AVG(v) FROM m WHERE m.g = t.name))
SELECT id, CASE WHEN n > 4 THEN (SELECT MAX(v) FROM m) ELSE 0 END AS c FROM e
SELECT g, COUNT(*) AS c, COUNT(n) AS cn, SUM(n) AS s, AVG(n) AS a, MIN(p) AS lo, MAX(d) AS hi FROM e GROUP BY g
SELECT g, SUM(p) AS s, AVG(p) AS a, COUNT(DISTINCT k) AS kinds, MAX(g) AS mg FROM e GROUP BY g HAVING COUNT(*) > 1
SELECT k % 3 AS b, g, SUM(n) FILTER (WHERE n > 3) AS s, COUNT(*) FILTER (WHERE p > 1) AS c FROM e GROUP BY k % 3, g
SELECT COUNT(*) AS c, SUM(v) AS s, MAX(v) AS m FROM nothing
SELECT g, COUNT(*) AS c FROM nothing GROUP BY g
SELECT t.name, SUM(e.p * 2) + 1 AS s FROM e JOIN t ON t.k = e.k GROUP BY t.name ORDER BY s DESC NULLS LAST, t.name
SELECT DISTINCT g, k FROM e
SELECT id, n FROM e ORDER BY n DESC, id LIMIT 7 OFFSET 2
SELECT id FROM e WHERE n > 5 UNION ALL SELECT k FROM t WHERE score < 2
WITH big AS (SELECT * FROM e WHERE n > 3) SELECT b.id, m.v FROM big b LEFT JOIN m ON m.g = b.g
SELECT x.g, x.s, m.w FROM (SELECT g, SUM(n) AS s FROM e GROUP BY g) x LEFT JOIN m ON m.g = x.g
SELECT e.id, e.p / 3 AS third, upper(e.g) || '!' AS loud, e.d + 1 AS next FROM e WHERE e.g LIKE 'a%' OR e.d IS NULL
SELECT e.id FROM e JOIN t ON t.k = e.k AND e.p < t.price
SELECT e.id FROM e LEFT JOIN t ON t.k = e.k WHERE t.k IS NULL
SELECT t.k FROM t WHERE t.k > ALL (SELECT e.k FROM e WHERE e.g = t.name)
SELECT e.id, t.k FROM e FULL JOIN t ON t.k = e.k AND t.score > 1
SELECT e.id, t.k, t.name FROM e RIGHT JOIN t ON t.k = e.k
SELECT e.id, t.k, m.v FROM e LEFT JOIN t ON t.k = e.k FULL OUTER JOIN m ON m.g = e.g AND m.w = 1 WHERE e.id IS NULL OR e.id < 9
SELECT e.id, m.v, t.k FROM m RIGHT JOIN e ON m.g = e.g RIGHT JOIN t ON t.k = e.k
SELECT k, id, name FROM e JOIN t USING (k)
SELECT k, id, name FROM e FULL JOIN t USING (k)
SELECT id, score FROM e NATURAL JOIN t
SELECT e.id, x.w FROM e JOIN (SELECT v, w, g FROM m) AS x(a, w, b) ON x.b = e.g AND x.a = e.n
SELECT v.x, v.y, e.id FROM e JOIN VALUES (1, 'a'), (2, NULL), (3, 'b') AS v(x, y) ON v.x = e.k
SELECT e.id, t.k, m.v FROM e JOIN (t LEFT JOIN m ON m.g = t.name) ON t.k = e.k
SELECT 1 AS one, 'a' AS b, CAST(NULL AS INT) AS c
SELECT id, (SELECT 2) AS two FROM e WHERE EXISTS (SELECT 1)
SELECT id FROM e UNION SELECT k FROM t
SELECT id, g FROM e UNION SELECT k, name FROM t ORDER BY id DESC NULLS LAST, g LIMIT 5
SELECT g FROM e INTERSECT SELECT name FROM t
SELECT g FROM e INTERSECT ALL SELECT g FROM m
SELECT g, k FROM e EXCEPT SELECT name, k FROM t
SELECT g FROM e EXCEPT ALL SELECT g FROM m WHERE w = 1
SELECT id AS x FROM e UNION ALL SELECT v FROM m UNION ALL SELECT price FROM t
SELECT p FROM e UNION SELECT n FROM e
SELECT f FROM e UNION SELECT k FROM t
SELECT st, a FROM e UNION SELECT st, a FROM e WHERE id > 3
(SELECT id FROM e ORDER BY id LIMIT 2) UNION ALL (SELECT k FROM t ORDER BY k DESC LIMIT 2)
SELECT x.id FROM ((SELECT id FROM e ORDER BY id LIMIT 5) ORDER BY id DESC LIMIT 2) x
SELECT id, tag FROM e LATERAL VIEW explode(a) v AS tag
SELECT id, tag FROM e LATERAL VIEW OUTER explode(a) v AS tag WHERE tag IS NULL OR tag > 1
SELECT id, key, value FROM e LATERAL VIEW explode(mp) v
SELECT id, pos, x, y FROM e LATERAL VIEW posexplode(a) v AS pos, x LATERAL VIEW explode(array(x, pos)) w AS y WHERE x > pos
SELECT id, posexplode_outer(a) FROM e
SELECT id, explode(array(id, k, NULL)) AS z FROM e WHERE n > 2
SELECT id, explode_outer(mp) FROM e
SELECT e.id, inline(array(st, named_struct('x', 7, 'y', 'z'))) FROM e
SELECT id, c0, c1 FROM e LATERAL VIEW stack(2, id, g, k, 'x') s AS c0, c1
SELECT x, COUNT(*) AS c FROM e LATERAL VIEW explode(a) v AS x GROUP BY x
SELECT e.id, t.name, z FROM e LEFT JOIN t ON t.k = e.k LATERAL VIEW explode(e.a) v AS z WHERE z < e.k AND e.g = t.name
SELECT e.id, x.v FROM e, LATERAL (SELECT v FROM m WHERE m.g = e.g AND m.v > e.n) x
SELECT e.id, x.w FROM e LEFT JOIN LATERAL (SELECT v + 1 AS w FROM m WHERE m.g = e.g) x ON x.w > 3
SELECT DISTINCT g, k FROM e ORDER BY k DESC, g LIMIT 4
SELECT DISTINCT f, st FROM e
SELECT DISTINCT upper(g) AS u FROM e ORDER BY u NULLS LAST
SELECT id, f FROM e ORDER BY f DESC, id
SELECT id, st, a FROM e ORDER BY st, a DESC NULLS LAST, 1
SELECT id, n FROM e ORDER BY 2 DESC, 1 LIMIT 3
SELECT f, COUNT(*) AS c, MAX(id) AS i FROM e GROUP BY f
SELECT st, a, COUNT(*) AS c FROM e GROUP BY st, a
SELECT e.id, b.id AS other FROM e JOIN e b ON e.f = b.f AND e.id < b.id
SELECT e.id, b.id AS other FROM e JOIN e b ON e.st = b.st
SELECT e.id, m.v FROM e JOIN m ON m.v = e.id
SELECT e.id, t.k FROM e JOIN t ON t.price = e.n
SELECT e.id, t.k FROM e JOIN t ON t.k = e.n AND t.score = e.f
SELECT g, k, COUNT(*) AS c, SUM(n) AS s FROM e GROUP BY ROLLUP (g, k)
SELECT g, k, COUNT(*) AS c, grouping(g) AS gg, grouping_id() AS i, grouping_id(g, k) AS j FROM e GROUP BY CUBE (g, k)
SELECT g, k, SUM(n) AS s FROM e GROUP BY GROUPING SETS ((g, k), (g), (g), ())
SELECT g, k % 2 AS b, COUNT(*) AS c FROM e GROUP BY g, k % 2 WITH ROLLUP HAVING COUNT(*) > 1 ORDER BY c DESC, g, b
SELECT n, g, k % 2 AS b, COUNT(*) AS c, MAX(g) AS m FROM e GROUP BY n, ROLLUP (g), CUBE ((g, k % 2))
SELECT g, COUNT(*) AS c FROM nothing GROUP BY ROLLUP (g)
SELECT g, COUNT(*) AS c, (SELECT MAX(v) FROM m WHERE m.g = e.g) AS top, (SELECT COUNT(*) FROM t) AS all FROM e GROUP BY g
SELECT g, SUM(n) AS s FROM e GROUP BY g HAVING SUM(n) > (SELECT AVG(v) FROM m)
SELECT g, max_by(id, n + id) AS x, min_by(g, id) AS y, collect_list(DISTINCT k % 2) IS NULL AS z FROM e GROUP BY g
SELECT g, count_if(n > 3) AS a, bool_or(k > 3) AS b, bit_xor(k) AS c, median(k) AS d, percentile(n, 0.25) AS q FROM e GROUP BY g
SELECT g, COUNT(DISTINCT k, n) AS c, SUM(DISTINCT k) AS s, AVG(DISTINCT n) AS a, MAX(f) AS f, MIN(st) AS st FROM e GROUP BY g
SELECT g, listagg(CAST(id AS STRING), '-') WITHIN GROUP (ORDER BY id DESC) AS l, sort_array(collect_set(k)) AS ks FROM e GROUP BY g
SELECT g, array_sort(collect_list(named_struct('a', k, 'b', id))) AS l FROM e GROUP BY g
SELECT id FROM e WHERE n IN (SELECT v FROM m WHERE w = 1 UNION SELECT score FROM t) OR id = (SELECT k FROM t WHERE k = 2 UNION SELECT 2)
SELECT g, percentile_cont(0.3) WITHIN GROUP (ORDER BY n) AS c, sum(n) FILTER (WHERE k > 2) AS s FROM e GROUP BY g
SELECT SUM(n) + MAX(k) AS x FROM e ORDER BY COUNT(*)
SELECT id, ROW_NUMBER() OVER (ORDER BY id) AS r, RANK() OVER (PARTITION BY g ORDER BY n) AS k FROM e
SELECT id, DENSE_RANK() OVER (ORDER BY n DESC) AS d, PERCENT_RANK() OVER (PARTITION BY g ORDER BY n) AS p, CUME_DIST() OVER (ORDER BY f) AS c FROM e
SELECT id, NTILE(4) OVER (PARTITION BY g ORDER BY id) AS n, NTILE(50) OVER (ORDER BY id) AS m FROM e
SELECT id, LAG(n) OVER (ORDER BY id) AS a, LEAD(n, 2, 0L) OVER (PARTITION BY g ORDER BY id) AS b, LAG(n, -1) OVER (ORDER BY id) AS c FROM e
SELECT id, LAG(n) IGNORE NULLS OVER (ORDER BY id) AS a, LEAD(k, 2) IGNORE NULLS OVER (PARTITION BY g ORDER BY id) AS b FROM e
SELECT id, FIRST_VALUE(n) OVER (PARTITION BY g ORDER BY id) AS a, LAST_VALUE(n) OVER (PARTITION BY g ORDER BY id) AS b, NTH_VALUE(n, 2) OVER (ORDER BY id) AS c FROM e
SELECT id, FIRST_VALUE(n) IGNORE NULLS OVER (ORDER BY id) AS a, LAST_VALUE(n) IGNORE NULLS OVER (PARTITION BY g ORDER BY id ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS b FROM e
SELECT id, SUM(n) OVER (PARTITION BY g) AS a, SUM(n) OVER (PARTITION BY g ORDER BY k) AS b, COUNT(*) OVER () AS c, AVG(p) OVER (PARTITION BY g ORDER BY id) AS d FROM e
SELECT id, SUM(n) OVER (ORDER BY id ROWS BETWEEN 2 PRECEDING AND CURRENT ROW) AS a, AVG(n) OVER (ORDER BY id ROWS 3 PRECEDING) AS b, MAX(n) OVER (ORDER BY id ROWS BETWEEN 1 FOLLOWING AND 3 FOLLOWING) AS c FROM e
SELECT id, SUM(f) OVER (PARTITION BY g ORDER BY id) AS a, AVG(f) OVER (ORDER BY id ROWS BETWEEN 1 PRECEDING AND 1 FOLLOWING) AS b, MIN(f) OVER (PARTITION BY k) AS c FROM e
SELECT id, COUNT(*) OVER (ORDER BY ts RANGE BETWEEN INTERVAL 10 SECONDS PRECEDING AND CURRENT ROW) AS a, SUM(n) OVER (PARTITION BY g ORDER BY ts DESC RANGE BETWEEN INTERVAL 30 SECONDS PRECEDING AND INTERVAL 5 SECONDS FOLLOWING) AS b FROM e
SELECT id, COUNT(n) OVER (ORDER BY n RANGE BETWEEN 1 PRECEDING AND 2 FOLLOWING) AS a, MAX(id) OVER (ORDER BY d RANGE BETWEEN 1 PRECEDING AND UNBOUNDED FOLLOWING) AS b FROM e
SELECT id, MIN(p) OVER (ORDER BY id ROWS BETWEEN UNBOUNDED PRECEDING AND 5 PRECEDING) AS a, MAX(g) OVER (PARTITION BY k ORDER BY id) AS b, COUNT(p) FILTER (WHERE n > 3) OVER (PARTITION BY g ORDER BY id) AS c FROM e
SELECT id, SUM(n) OVER w AS a, ROW_NUMBER() OVER v AS b FROM e WINDOW w AS (PARTITION BY g), v AS (PARTITION BY k ORDER BY id)
SELECT g, SUM(n) AS s, RANK() OVER (ORDER BY SUM(n) DESC) AS r, SUM(COUNT(*)) OVER () AS c FROM e GROUP BY g
SELECT x.id FROM (SELECT id, g, ROW_NUMBER() OVER (PARTITION BY g ORDER BY id DESC) AS r FROM e) x WHERE x.r = 1
SELECT id, 1 + SUM(n) OVER (PARTITION BY g ORDER BY id) * 2 AS a FROM e ORDER BY a, id
SELECT id, SUM(p) OVER (PARTITION BY f ORDER BY st, id) AS a, stddev_pop(n) OVER (PARTITION BY g) IS NULL AS b, collect_list(id) OVER (PARTITION BY g) IS NULL AS c FROM e
SELECT id, e.st.x AS x, a[0] AS y, mp['a'] AS z FROM e WHERE size(a) > 0
SELECT id FROM e WHERE (k, g) IN (SELECT w, g FROM m)
SELECT id FROM e WHERE (k, g) NOT IN (SELECT w, g FROM m WHERE g IS NOT NULL)
SELECT id FROM e WHERE n IN (SELECT score FROM t) AND k IN (SELECT v FROM m) AND f NOT IN (SELECT score FROM t WHERE score IS NOT NULL)
SELECT id FROM e WHERE EXISTS (SELECT 1 FROM m WHERE m.g = e.g ORDER BY v LIMIT 1)
SELECT id, (SELECT v FROM m WHERE m.g = e.g AND v IS NOT NULL ORDER BY v DESC LIMIT 1) AS top FROM e
SELECT id FROM e WHERE EXISTS (SELECT 1 FROM m LEFT JOIN t ON t.name = m.g WHERE m.g = e.g AND t.k IS NULL)
WITH a(x, y) AS (SELECT g, n FROM e), b AS (SELECT x, MAX(y) AS z FROM a GROUP BY x) SELECT a.x, b.z FROM a JOIN b ON b.x = a.x
WITH a AS (SELECT k FROM t) SELECT id FROM e WHERE k IN (SELECT k FROM a) UNION SELECT k FROM a
