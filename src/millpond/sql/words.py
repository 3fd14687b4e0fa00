"""The keywords of the language: which are reserved, which begin a clause, which are types."""

from __future__ import annotations

# Of sqlglot's keywords only these are kept; all others are ordinary names, as `text` and `uuid` are in Spark.
_SINGLE_WORDS = """
    ALL AND ANTI ANY ASC AS BETWEEN CASE COLLATE CREATE CROSS CUBE CURRENT_DATE CURRENT_TIMESTAMP CURRENT_USER
    CURRENT_CATALOG CURRENT_SCHEMA DEFAULT DELETE DESC DISTINCT DIV DROP ELSE END ESCAPE EXCEPT EXISTS FALSE FILTER
    FOR FROM FULL HAVING ILIKE IN INNER INSERT INTERVAL INTERSECT INTO IS JOIN LATERAL LEFT LIKE LIMIT LOCALTIMESTAMP
    MINUS NATURAL NOT NULL OFFSET ON OR ORDINALITY OUTER OVER PARTITION PIVOT RANGE RECURSIVE REGEXP REPLACE
    RIGHT RLIKE ROLLUP ROW ROWS SELECT SEMI SESSION_USER SET SOME TABLE TABLESAMPLE THEN TRUE UNION UNPIVOT UPDATE
    USING VALUES VIEW WHEN WHERE WINDOW WITH FIRST PERCENT
"""

_TYPES = """
    ARRAY BOOLEAN BYTE TINYINT SHORT SMALLINT INTEGER INT LONG BIGINT DEC DECIMAL NUMERIC MAP REAL FLOAT DOUBLE CHAR
    CHARACTER VARCHAR STRING BINARY TIMESTAMP TIMESTAMP_LTZ TIMESTAMP_NTZ DATE STRUCT VARIANT
"""

# Operators of two characters and more; sqlglot has others, which belong to other databases.
OPERATORS = frozenset({"==", "::", "||", ">=", "<=", "<>", "!=", "<=>", "->", "=>"})

TYPES = frozenset(_TYPES.split())

KEYWORDS = (
    frozenset(_SINGLE_WORDS.split())
    | TYPES
    | {
        "CLUSTER BY",
        "DISTRIBUTE BY",
        "GROUP BY",
        "GROUPING SETS",
        "ORDER BY",
        "PARTITION BY",
        "PRIMARY KEY",
        "SORT BY",
    }
)

# Reserved words: never the name of a table, a column or an alias without quotes.
_RESERVED = """
    SELECT FROM WHERE HAVING UNION EXCEPT INTERSECT JOIN ON USING WITH AND OR NOT NULL CASE WHEN THEN ELSE INTO
    VALUES AS DISTINCT
"""

RESERVED = frozenset(_RESERVED.split())

# Candidates for "Did you mean" at an unexpected word.
CLAUSES = (
    "FROM",
    "WHERE",
    "GROUP BY",
    "HAVING",
    "ORDER BY",
    "LIMIT",
    "JOIN",
    "LEFT JOIN",
    "ON",
    "UNION ALL",
    "WITH",
    "WINDOW",
    "VALUES",
    "SET",
    "USING",
    "PRIMARY KEY",
    "NOT NULL",
    "DEFAULT",
    "WATERMARK FOR",
)
