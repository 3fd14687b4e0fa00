"""Syntax, types, functions and options of other systems, each with the hint that names Millpond's equivalent."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from sqlglot.tokenizer_core import Token, TokenType

WINDOWS = "GROUP BY key, TUMBLING(ts, INTERVAL 1 MINUTE); also SLIDING(ts, size, slide) and SESSION(ts, gap)"


_INTERVAL = "Write INTERVAL 5 MINUTES, or INTERVAL '5' MINUTE."


@dataclass(frozen=True)
class Phrase:
    """Words that no statement of Millpond has: `pattern` matches the tokens separated by one space, strings as '' and
    quoted names as ``. `always`: an error even where the words could be parsed as something else."""

    pattern: str
    name: str
    hint: str
    always: bool = False


PHRASES = (
    # ksqlDB
    Phrase(r"EMIT CHANGES", "EMIT CHANGES", "Leave it out: a query over a stream emits rows as they arrive."),
    Phrase(r"EMIT FINAL", "EMIT FINAL", "Leave it out: a sink receives each window once, when it is closed."),
    Phrase(
        r"WINDOW (TUMBLING|HOPPING) \( SIZE.*",
        "WINDOW ... (SIZE ...)",
        "Write it after GROUP BY: GROUP BY key WINDOW TUMBLING(1 minute), or WINDOW SLIDING(5 minutes, 1 minute).",
    ),
    Phrase(
        r"WITH \( '?(KAFKA_TOPIC|VALUE_FORMAT|KEY_FORMAT|PARTITIONS) =.*",
        "WITH (KAFKA_TOPIC = ...)",
        "Name the topic as the source: CREATE STREAM name (...) FROM kafka://host:9092/topic WITH ('format' = 'json').",
    ),
    Phrase(
        r"FROM \S+.* PARTITION BY \S+$",
        "PARTITION BY after FROM",
        "The key is set where messages are written: INSERT INTO kafka://topic WITH ('key' = 'column') SELECT ...",
    ),
    Phrase(
        r"WITHIN (\( )?\d+",
        "WITHIN",
        "Bound the join in ON: ... AND q.ts BETWEEN s.ts - INTERVAL 5 SECONDS AND s.ts.",
    ),
    Phrase(r"^PRINT\b", "PRINT", "Write SELECT * FROM kafka://localhost:9092/topic LIMIT 10;"),
    Phrase(r"^LIST (STREAMS|TABLES|TOPICS|QUERIES)", "LIST", "Write SHOW TABLES, SHOW STREAMS or SHOW FLOWS."),
    Phrase(r"^SHOW (QUERIES|TOPICS|JOBS)", "this SHOW", "Write SHOW FLOWS, SHOW SOURCES or SHOW STREAMS."),
    Phrase(r"^TERMINATE\b", "TERMINATE", "Remove the statement from the app's file, and apply the file."),
    Phrase(
        r"^CREATE (OR REPLACE )?(SOURCE |SINK )?CONNECTOR",
        "CREATE CONNECTOR",
        "Use a URI instead: CREATE STREAM s FROM kafka://...; CREATE TABLE t AS SELECT * FROM postgresql://...;",
    ),
    # Snowflake, Databricks
    # Flink
    Phrase(
        r"(TUMBLE|HOP|CUMULATE|SESSION) \( (TABLE|DATA) .*",
        "a window function in FROM",
        f"Write FROM stream {WINDOWS}.",
        always=True,
    ),
    Phrase(r"FROM (TUMBLE|HOP) \( \S+ , .*", "a window function in FROM", f"Write FROM stream {WINDOWS}.", always=True),
    Phrase(
        r"FOR SYSTEM_TIME AS OF (\S+ \. )?PROCTIME.*",
        "a join as of PROCTIME()",
        "Join the table itself: an event sees it as it is when its batch runs.",
        always=True,
    ),
    Phrase(
        r"METADATA (FROM|VIRTUAL|,|\)).*",
        "a METADATA column",
        "Read hidden columns by name: _timestamp, _partition, _offset, _key, _headers.",
    ),
    Phrase(r"MATCH_RECOGNIZE", "MATCH_RECOGNIZE", "Keep the last state of each key in a table and join with it."),
    # RisingWave, Materialize
    Phrase(
        r"^CREATE (OR REPLACE )?MATERIALIZED VIEW",
        "CREATE MATERIALIZED VIEW",
        "Write CREATE TABLE name AS SELECT ...: it is stored and kept up to date. CREATE VIEW only names a query.",
    ),
    Phrase(r"^REFRESH\b", "REFRESH", "Leave it out: views are updated in the same commit as their tables."),
    Phrase(
        r"^CREATE (OR REPLACE )?SOURCE\b",
        "CREATE SOURCE",
        "Write CREATE STREAM name (...) FROM kafka://host:9092/topic;",
    ),
    Phrase(r"^CREATE (OR REPLACE )?SINK\b", "CREATE SINK", "Write INSERT INTO kafka://host:9092/topic SELECT ...;"),
    # PostgreSQL, MySQL, SQLite, SQL Server, Oracle
    Phrase(r"RETURNING", "RETURNING", "Read the rows afterwards with SELECT; app.execute returns their number."),
    Phrase(r"^REPLACE INTO", "REPLACE INTO", "Write UPSERT INTO table ...: it replaces the row of the same key."),
    Phrase(r"^INSERT OR REPLACE", "INSERT OR REPLACE", "Write UPSERT INTO table ...: it replaces the row of the key."),
    Phrase(r"^INSERT (OR )?IGNORE", "INSERT IGNORE", "Write INSERT INTO table ... ON CONFLICT DO NOTHING."),
    Phrase(
        r"ON DUPLICATE KEY UPDATE.*",
        "ON DUPLICATE KEY UPDATE",
        "Write ON CONFLICT (key) DO UPDATE SET n = t.n + excluded.n.",
    ),
    Phrase(
        r"(?<=\( )LIKE \S+ (INCLUDING .*)?(?=\))",
        "CREATE TABLE (LIKE ...)",
        "List the columns; DESCRIBE table shows them.",
    ),
    Phrase(
        r"AUTO_INCREMENT|AUTOINCREMENT|IDENTITY( \( .*)?|GENERATED (ALWAYS|BY DEFAULT) AS.*",
        "a generated column",
        "Insert the value with the row: uuid() is unique, and _partition and _offset identify the event of a row.",
    ),
    Phrase(
        r"REFERENCES \S+.*|FOREIGN KEY.*",
        "FOREIGN KEY",
        "Leave it out; in a join, 'on.missing' = 'fail' or 'wait' decides about events without a matching row.",
    ),
    Phrase(
        r"^CREATE UNIQUE INDEX", "CREATE UNIQUE INDEX", "Only the PRIMARY KEY is unique: CREATE INDEX ON t (column);"
    ),
    Phrase(r"UNIQUE( KEY)?( \(.*)?", "UNIQUE", "Only the PRIMARY KEY is unique; INDEX (column) makes lookups fast."),
    Phrase(
        r"^CREATE (OR REPLACE )?((GLOBAL |LOCAL )?TEMP(ORARY)?|UNLOGGED|EXTERNAL) (TABLE|VIEW|STREAM)",
        "a table of this kind",
        "Write CREATE TABLE; WITH ('durable' = 'false') keeps its rows in memory only.",
    ),
    Phrase(
        r"^ALTER (TABLE|STREAM|VIEW)\b",
        "ALTER",
        "Change the CREATE statement in the file; the next start reports what happens to the rows.",
    ),
    Phrase(r"^TRUNCATE\b", "TRUNCATE", "Write DELETE FROM table;"),
    Phrase(
        r"^(USE|CREATE DATABASE|CREATE SCHEMA)\b", "a database", "An app is one SQL file, and its names have no schema."
    ),
    Phrase(
        r"^COPY\b",
        "COPY",
        "Write CREATE TABLE t AS SELECT * FROM 'file://./in.csv'; or INSERT INTO 'file://./out' ...;",
    ),
    Phrase(r"^LOAD DATA\b", "LOAD DATA", "Write CREATE TABLE t AS SELECT * FROM 'file://./in.csv';"),
    Phrase(
        r"^(SAVEPOINT|RELEASE)\b",
        "SAVEPOINT",
        "Not needed: in Python, a statement that fails in a transaction is undone alone.",
    ),
    Phrase(r"^(GRANT|REVOKE)\b", "GRANT", "Access is controlled by the file permissions of the state directory."),
    Phrase(r"^CALL\b", "CALL", "Write the statements themselves; Python's app.execute runs them."),
    Phrase(r"SELECT TOP \d+", "TOP", "Write LIMIT 5 at the end.", always=True),
    Phrase(r"FETCH (FIRST|NEXT) .*", "FETCH FIRST", "Write LIMIT 5."),
    Phrase(r"LIMIT \d+ , \d+", "LIMIT offset, count", "Write LIMIT 10 OFFSET 5."),
    Phrase(
        r"-> >.*|-> ''", "the operator -> or ->>", "Write get_json_object(text, '$.name'), or column.field of a STRUCT."
    ),
    Phrase(r"!? ?~ \*? ?''", "the operator ~", "Write text RLIKE 'pattern'."),
    Phrase(
        r"TIMESTAMP WITH(OUT)? (LOCAL )?TIME ZONE", "TIMESTAMP WITH TIME ZONE", "Write TIMESTAMP, or TIMESTAMP_NTZ."
    ),
    Phrase(r"DOUBLE PRECISION", "DOUBLE PRECISION", "Write DOUBLE."),
    Phrase(r"CHARACTER VARYING.*", "CHARACTER VARYING", "Write STRING."),
    Phrase(r"INTERVAL \d+ ?(MS|[SMHD])(?!\w)", "INTERVAL 5m", _INTERVAL),
    Phrase(
        r"[-+] \d+ (MILLISECOND|SECOND|MINUTE|HOUR|DAY|WEEK|MONTH|YEAR)S?",
        "a number with a unit",
        "Write INTERVAL before it: - INTERVAL 5 MINUTES.",
    ),
)

TYPES = {
    "TEXT": "STRING",
    "TINYTEXT": "STRING",
    "MEDIUMTEXT": "STRING",
    "LONGTEXT": "STRING",
    "NVARCHAR": "STRING",
    "VARCHAR2": "STRING",
    "CLOB": "STRING",
    "BOOL": "BOOLEAN",
    "BIT": "BOOLEAN",
    "INT8": "BIGINT",
    "INT4": "INT",
    "INT2": "SMALLINT",
    "MEDIUMINT": "INT",
    "DATETIME": "TIMESTAMP",
    "TIMESTAMPTZ": "TIMESTAMP",
    "FLOAT8": "DOUBLE",
    "FLOAT4": "FLOAT",
    "NUMBER": "DECIMAL",
    "MONEY": "DECIMAL(19,4)",
    "BYTEA": "BINARY",
    "BYTES": "BINARY",
    "VARBINARY": "BINARY",
    "BLOB": "BINARY",
    "JSON": "STRING",
    "JSONB": "STRING",
    "UUID": "STRING",
    "SERIAL": "BIGINT",
    "BIGSERIAL": "BIGINT",
    "ROW": "STRUCT<name: TYPE, ...>",
    "MULTISET": "ARRAY<TYPE>",
}

FUNCTIONS = {
    "tumble": f"Write {WINDOWS}.",
    "hop": f"Write {WINDOWS}.",
    "tumble_start": "Write window_start.",
    "tumble_end": "Write window_end.",
    "hop_start": "Write window_start.",
    "hop_end": "Write window_end.",
    "session_start": "Write window_start.",
    "session_end": "Write window_end.",
    "tumble_rowtime": "Write window_end.",
    "proctime": "Write current_timestamp().",
    "getdate": "Write current_timestamp().",
    "sysdate": "Write current_timestamp().",
    "latest_by_offset": "Write last(column), or max_by(column, ts).",
    "earliest_by_offset": "Write first(column), or min_by(column, ts).",
    "extractjsonfield": "Write get_json_object(text, '$.name').",
    "json_extract": "Write get_json_object(text, '$.name').",
    "json_value": "Write get_json_object(text, '$.name').",
    "strftime": "Write date_format(ts, 'yyyy-MM-dd').",
    "formattimestamp": "Write date_format(ts, 'yyyy-MM-dd').",
    "parsetimestamp": "Write to_timestamp(text, 'yyyy-MM-dd').",
    "date_bin": "Write date_trunc('MINUTE', ts), or a window in GROUP BY.",
    "group_concat": "Write array_join(collect_list(x), ',').",
    "gen_random_uuid": "Write uuid().",
    "newid": "Write uuid().",
    "strpos": "Write instr(text, part).",
    "array_length": "Write size(array).",
    "generate_series": "Write explode(sequence(1, 10)).",
    "to_tsvector": "Write LIKE or RLIKE.",
}

COLUMNS = {
    "interval": _INTERVAL,
    "rowtime": "Write _timestamp, the time of a message, or a column of the event.",
    "_rowtime": "Write _timestamp, the time of a message, or a column of the event.",
    "rowkey": "Write _key.",
    "rowpartition": "Write _partition.",
    "rowoffset": "Write _offset.",
    "windowstart": "Write window_start.",
    "windowend": "Write window_end.",
    "proctime": "Write current_timestamp().",
    "sysdate": "Write current_timestamp().",
}

_IN_URI = "Name it in the URI: FROM kafka://localhost:9092/topic."

OPTIONS = {
    "kafka_topic": _IN_URI,
    "topic": _IN_URI,
    "connector": "Name the source by its URI: kafka://, file://, postgresql:// and others.",
    "bootstrap.servers": _IN_URI,
    "properties.bootstrap.servers": _IN_URI,
    "properties.group.id": "Positions are kept in the state directory; 'group.id.prefix' names the consumer group.",
    "value_format": "Write 'format' = 'json' after the URI.",
    "value.format": "Write 'format' = 'json' after the URI.",
    "key_format": "Write 'key.format' = 'json' after the URI.",
    "scan.startup.mode": "Write 'auto.offset.reset' = 'earliest' or 'latest' after the URI.",
    "partitions": "The number of partitions of a created topic is set by 'topic.partitions' or by the broker.",
}


def type_hint(word: str) -> str:
    """The hint for a type name of another system; "" for any other word."""
    found = TYPES.get(word.upper())
    return f"Use {found}." if found else ""


def refused_phrase(tokens: Sequence[Token], at: Token | None) -> tuple[Token, str, str] | None:
    """The first words of another system at the token where parsing failed, or anywhere if `at` is None: their first
    token, their name and the hint."""
    text, starts = _joined(tokens)
    for phrase in PHRASES:
        if at is None and not phrase.always:
            continue
        for found in re.finditer(_whole(phrase.pattern), text, re.IGNORECASE):
            inside = [n for n, start in enumerate(starts) if found.start() <= start < found.end()]
            # The parser may have consumed one more word before it failed.
            near = inside and (at is None or inside[0] <= _number(tokens, at) <= inside[-1] + 1)
            if near:
                return tokens[inside[0]], phrase.name, phrase.hint
    return None


def _whole(pattern: str) -> str:
    """A pattern that begins with a word must match the whole word."""
    return rf"(?<!\w)(?:{pattern})"


def _number(tokens: Sequence[Token], at: Token) -> int:
    return next((n for n, token in enumerate(tokens) if token.start >= at.start), len(tokens))


def _joined(tokens: Sequence[Token]) -> tuple[str, list[int]]:
    """The tokens separated by spaces, and the offset of each."""
    texts = {TokenType.STRING: "''", TokenType.IDENTIFIER: "``"}
    starts, parts, length = [], [], 0
    for token in tokens:
        text = texts.get(token.token_type, token.text)
        starts.append(length)
        parts.append(text)
        length += len(text) + 1
    return " ".join(parts), starts
