"""Statements in the binary log: which empty a table, and which change rows in a way that the log does not have."""

from __future__ import annotations

import re
from collections.abc import Collection
from enum import Enum

# A table: its database and its name.
Name = tuple[str, str]
_WORD = r"(?:`(?:[^`]|``)+`|[\w$]+)"
_NAME = rf"({_WORD})(?:\s*\.\s*({_WORD}))?"
_COMMENT = re.compile(r"/\*(?!!).*?\*/|--\s[^\n]*|#[^\n]*", re.DOTALL)
_NAMES = re.compile(_NAME)
_TRUNCATE = re.compile(rf"TRUNCATE\s+(?:TABLE\s+)?{_NAME}", re.IGNORECASE)
_DROP = re.compile(
    r"DROP\s+TABLES?\s+(?:IF\s+EXISTS\s+)?(.*?)(?:\s+(?:RESTRICT|CASCADE))?\s*$", re.IGNORECASE | re.DOTALL
)
_DROP_DATABASE = re.compile(rf"DROP\s+(?:DATABASE|SCHEMA)\s+(?:IF\s+EXISTS\s+)?({_WORD})", re.IGNORECASE)
_REPLACE = re.compile(rf"CREATE\s+OR\s+REPLACE\s+TABLE\s+{_NAME}", re.IGNORECASE)
_ALTER = re.compile(
    rf"ALTER\s+(?:ONLINE\s+|IGNORE\s+)*TABLE\s+(?:IF\s+EXISTS\s+)?{_NAME}(.*)", re.IGNORECASE | re.DOTALL
)
# Parts of ALTER TABLE that move rows between tables, or remove them.
_MOVES = re.compile(r"\bPARTITION\b|\bTABLESPACE\b|\bRENAME\s+(?!COLUMN\b|INDEX\b|KEY\b)", re.IGNORECASE)
_RENAME = re.compile(r"RENAME\s+TABLES?\s+(.*)", re.IGNORECASE | re.DOTALL)
_CHANGE = re.compile(r"(INSERT|UPDATE|DELETE|REPLACE|LOAD|WITH|CALL)\b", re.IGNORECASE)


class Kind(Enum):
    """The role of a statement in its transaction."""

    BEGIN = "begin"
    COMMIT = "commit"
    # Of the whole transaction, or of a part of it: what was logged before it did not happen.
    ROLLBACK = "rollback"
    # The second half of a distributed transaction.
    XA_COMMIT = "xa commit"
    # Beside others in a transaction.
    INNER = "inner"
    # A transaction by itself.
    ALONE = "alone"


def kind_of(text: str) -> Kind:
    words = text.upper().split(None, 2)
    if words[:1] == ["BEGIN"]:
        return Kind.BEGIN
    if words[:1] == ["COMMIT"]:
        return Kind.COMMIT
    if words[:1] == ["ROLLBACK"]:
        return Kind.ROLLBACK
    if words[:2] == ["XA", "COMMIT"]:
        return Kind.XA_COMMIT
    if words[:1] in (["SAVEPOINT"], ["RELEASE"]) or words[:2] in (["XA", "START"], ["XA", "END"]):
        return Kind.INNER
    return Kind.ALONE


def emptied(text: str, database: str, tables: Collection[Name]) -> list[Name]:
    """The tables that a statement leaves without rows."""
    plain = _COMMENT.sub(" ", text).strip().rstrip(";")
    if found := _TRUNCATE.match(plain) or _REPLACE.match(plain):
        names = [_named(found, database)]
    elif found := _DROP.match(plain):
        names = [_named(part, database) for part in _NAMES.finditer(found[1])]
    elif found := _DROP_DATABASE.match(plain):
        gone = _unquoted(found[1])
        names = [name for name in tables if name[0] == gone]
    else:
        names = []
    return [name for name in tables if name in names]


def unknown_effect(text: str, database: str, tables: Collection[Name]) -> Name | None:
    """A table whose rows a statement may change without rows in the log."""
    plain = _COMMENT.sub(" ", text).strip()
    names: list[Name] = []
    if found := _ALTER.match(plain):
        names = [_named(found, database)] if _MOVES.search(found[3]) else []
    elif found := _RENAME.match(plain):
        names = [_named(part, database) for part in _NAMES.finditer(found[1])]
    elif _CHANGE.match(plain):
        words = set(re.findall(r"[\w$]+", plain)) | {_unquoted(word) for word in re.findall(r"`(?:[^`]|``)+`", plain)}
        names = [name for name in tables if name[1] in words]
    return next((name for name in tables if name in names), None)


def _named(found: re.Match[str], database: str) -> Name:
    """The table that a match of _NAME is."""
    first, second = found[1], found[2]
    return (database, _unquoted(first)) if second is None else (_unquoted(first), _unquoted(second))


def _unquoted(word: str) -> str:
    return word[1:-1].replace("``", "`") if word.startswith("`") else word
