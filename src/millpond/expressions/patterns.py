"""LIKE and RLIKE patterns as regular expressions of Arrow's engine, which has Java's meaning only in part."""

from __future__ import annotations

import re

from millpond.expressions.failures import NotCompilable, RowError

START, END = r"\A", r"\z"
_WILD = {"%": "(?s:.*)", "_": "(?s:.)"}


def like(pattern: str, escape: str = "\\") -> str:
    """The regular expression of a LIKE pattern, to be matched against the whole text."""
    if len(escape) != 1 or escape in "%_":
        raise NotCompilable("an escape that is not one ordinary character")
    parts: list[str] = []
    characters = iter(pattern)
    for character in characters:
        if character == escape:
            parts.append(re.escape(_escaped(next(characters, ""), escape)))
        else:
            parts.append(_WILD.get(character) or re.escape(character))
    # A wildcard at an end is no anchor there: the engine is far quicker without it.
    opened = parts[:1] == [_WILD["%"]]
    closed = len(parts) > 1 and parts[-1] == _WILD["%"]
    body = "".join(parts[opened : len(parts) - closed])
    return f"{'' if opened else START}{body}{'' if closed else END}"


def _escaped(character: str, escape: str) -> str:
    if character not in ("%", "_", escape) or not character:
        raise RowError("the LIKE pattern has an escape before an ordinary character or at its end")
    return character


# Pieces that mean the same in Java and in RE2, or are rewritten so that they do.
_PIECE = re.compile(
    r"""
    (?P<plain>[A-Za-z0-9 _\-,:;=@#%&'"<>/!~`])
  | (?P<any>\.)
  | (?P<escaped>\\[.\\+*?()\[\]{}|^$\-])
  | (?P<class_word>\\[dDwW])
  | (?P<space>\\s)
  | (?P<set>\[\^?(?:[A-Za-z0-9 _.,:;=@\#%'"<>/!~`]|[a-z]-[a-z]|[A-Z]-[A-Z]|[0-9]-[0-9])+\])
  | (?P<group>\(\?:|\((?!\?)|\)|\|)
  | (?P<repeat>[*+?]\??(?![*+?{])|\{\d{1,2}(?:,\d{0,2})?\}(?![*+?{]))
  | (?P<start>\^)
    """,
    re.VERBOSE,
)
_REWRITTEN = {"any": "[^\\n\\r\\x{85}\\x{2028}\\x{2029}]", "space": "[ \\t\\n\\x0B\\f\\r]"}


def rlike(pattern: str) -> str:
    """The regular expression of an RLIKE pattern, to be found anywhere in the text."""
    parts: list[str] = []
    place = 0
    while place < len(pattern):
        found = _PIECE.match(pattern, place)
        if found is None or (found.lastgroup == "start" and place):
            raise NotCompilable("a regular expression that is Java's alone")
        parts.append(_REWRITTEN.get(str(found.lastgroup), found[0]))
        place = found.end()
    return "".join(parts)
