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
