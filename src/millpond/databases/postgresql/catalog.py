"""What PostgreSQL's catalog says of a table: its columns and its unique keys."""

from __future__ import annotations

COLUMNS_QUERY = """
SELECT a.attname, a.atttypid::bigint, a.atttypmod, t.typelem::bigint, t.typcategory, t.typname,
       a.attnotnull AND NOT a.atthasdef AND a.attidentity = '' AND a.attgenerated = ''
FROM pg_attribute a JOIN pg_type t ON t.oid = a.atttypid
WHERE a.attrelid = to_regclass(%s) AND a.attnum > 0 AND NOT a.attisdropped ORDER BY a.attnum
"""
KEYS_QUERY = """
SELECT i.indisprimary, array_agg(a.attname::text ORDER BY array_position(i.indkey::int2[], a.attnum))
FROM pg_index i JOIN pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = ANY (i.indkey)
WHERE i.indrelid = to_regclass(%s) AND i.indisunique AND i.indpred IS NULL AND i.indexprs IS NULL
GROUP BY i.indexrelid, i.indisprimary
"""


def quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'
