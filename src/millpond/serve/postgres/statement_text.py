"""The text of a statement: PostgreSQL's words, types and parameters as Millpond's SQL has them."""

from __future__ import annotations

import re
from typing import Any

from millpond.serve.postgres.sqlstate import ClientError
from millpond.serve.postgres.wire_values import literal
from millpond.sql.split import outside_strings

_SCHEMA = re.compile(r"\bpublic\s*\.\s*", re.I)
_QUOTED_SCHEMA = re.compile(r'"public"\s*\.\s*', re.I)
_PARAMETER = re.compile(r"\$(\d+)")
_STRINGS = re.compile(r"'(?:[^'\\]|\\.|'')*'|\"(?:[^\"]|\"\")*\"|`(?:[^`]|``)*`|--[^\n]*|/\*.*?\*/", re.S)
# FLOAT has 8 bytes in PostgreSQL, and NUMERIC without digits has as many as a value needs.
_WIDE = "DECIMAL(38,10)"
_TYPES = (
    ("STRING", r"text|bpchar|name|uuid|jsonb?|character\s+varying(?:\s*\(\s*\d+\s*\))?"),
    ("SMALLINT", "int2"),
    ("INT", "int4"),
    ("BIGINT", "int8"),
    ("REAL", "float4"),
    ("DOUBLE", r"float8|float|double\s+precision"),
    ("BOOLEAN", "bool"),
    ("BINARY", "bytea"),
    ("TIMESTAMP", r"timestamptz|timestamp\s+with(?:out)?\s+time\s+zone"),
    (_WIDE, r"(?:numeric|decimal)\b(?!\s*\()"),
)
_CASTS = tuple((name, re.compile(rf"::\s*(?:pg_catalog\s*\.\s*)?(?:{words})(?!\w)", re.I)) for name, words in _TYPES)
_EPOCH = re.compile(r"\bextract\s*\(\s*epoch\s+from\b", re.I)


# What PostgreSQL reads as one piece, in which nothing else begins; an open one extends to the end.
_PIECES = re.compile(
    r"""(?P<escaped>(?<![\w$"`])[eE]'(?:[^'\\]|\\.|'')*(?:'|$))
      | '(?P<plain>(?:[^']|'')*)(?P<end>'|$)(?P<bytes>\s*::\s*(?:pg_catalog\s*\.\s*)?bytea\b)?
      | (?<![\w$])\$(?P<tag>(?:[A-Za-z_]\w*)?)\$(?P<dollars>.*?)\$(?P=tag)\$
      | "(?:[^"]|"")*(?:"|$) | `(?:[^`]|``)*(?:`|$) | --[^\n]* | /\*.*?(?:\*/|$)""",
    re.S | re.X,
)
_PLAIN = re.compile(r"'(?:[^']|'')*'")
_HEX = re.compile(r"\\x((?:[0-9a-fA-F]{2})*)")


def own_strings(sql: str) -> str:
    """The statement with its strings as Millpond writes them. In PostgreSQL a backslash is a character like others
    unless the string begins with E, and drivers that write values into the text rely on it."""
    return _PIECES.sub(_own_string, sql)


def _own_string(piece: re.Match[str]) -> str:
    if piece["escaped"] is not None:
        return piece["escaped"][1:]
    if piece["dollars"] is not None:
        return _quoted(piece["dollars"].replace("'", "''"))
    if piece["plain"] is None:
        return piece[0]
    is_bytes = _HEX.fullmatch(piece["plain"]) if piece["bytes"] else None
    if is_bytes is not None:
        return f"X'{is_bytes[1]}'"
    return f"{_quoted(piece['plain'])[:-1]}{piece['end']}{piece['bytes'] or ''}"


def _quoted(content: str) -> str:
    return "'" + content.replace("\\", "\\\\") + "'"


def parameter_count(sql: str) -> int:
    """The highest number of a parameter such as $2."""
    return max((int(n) for n in _PARAMETER.findall(_blanked(sql))), default=0)


def own_words(sql: str, values: list[Any]) -> tuple[str, list[Any]]:
    """The statement with `?` for `$1`, without the schema `public`, and the values in order. Positions stay, except
    behind a type that has another name here."""
    text = _own_types(_without_schema(sql), values)
    order = [int(n) - 1 for n in _PARAMETER.findall(_blanked(text))]
    if any(n >= len(values) for n in order):
        raise ClientError("42P02", "The statement names a parameter that was not sent.")
    return outside_strings(text, _PARAMETER, "?"), [values[n] for n in order]


def with_literals(sql: str, values: list[Any], *, catalog: bool = False) -> str:
    """The statement with its parameters written out, for what takes none; one of a `catalog` keeps PostgreSQL's types
    and has its strings again."""
    text = _without_schema(sql)
    text = text if catalog else _own_types(text, values)
    blank, made, start = _blanked(text), [], 0
    for found in _PARAMETER.finditer(blank):
        number = int(found[1]) - 1
        if number >= len(values):
            raise ClientError("42P02", "The statement names a parameter that was not sent.")
        made += [text[start : found.start()], literal(values[number])]
        start = found.end()
    text = "".join([*made, text[start:]])
    return _PLAIN.sub(lambda string: string[0].replace("\\\\", "\\"), text) if catalog else text


def _without_schema(sql: str) -> str:
    return _QUOTED_SCHEMA.sub(lambda found: " " * len(found[0]), outside_strings(sql, _SCHEMA))


def _own_types(text: str, values: list[Any]) -> str:
    """The types of casts, and the seconds of a time, as Millpond calls them."""
    for n, value in enumerate(values, 1):
        if not isinstance(value, str) and value is not None:
            # A value that is a number stays what it is.
            text = outside_strings(text, re.compile(rf"(?<=\${n})\s*::\s*(?:numeric|decimal)\b(?!\s*\()", re.I))
    for name, pattern in _CASTS:
        text = outside_strings(text, pattern, f"::{name}")
    return outside_strings(text, _EPOCH, "unix_timestamp(")


def _blanked(text: str) -> str:
    return _STRINGS.sub(lambda found: " " * len(found[0]), text)
