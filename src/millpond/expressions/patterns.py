"""Translation of LIKE patterns and Java's regular expressions for Arrow's or Python's engine, where they agree."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field

from millpond.expressions.failures import NotCompilable, RowError

START, END = r"\A", r"\z"
_WILD = {"%": "(?s:.*)", "_": "(?s:.)"}


def like(pattern: str, escape: str = "\\") -> str:
    """The regular expression of a LIKE pattern, which matches the whole text."""
    if len(escape) != 1 or escape in "%_":
        raise NotCompilable("an escape that is not one ordinary character")
    parts: list[str] = []
    characters = iter(pattern)
    for character in characters:
        if character == escape:
            parts.append(re.escape(_escaped(next(characters, ""), escape)))
        else:
            parts.append(_WILD.get(character) or re.escape(character))
    # No anchor is needed next to a wildcard at an end, and the engine is much faster without.
    opened = parts[:1] == [_WILD["%"]]
    closed = len(parts) > 1 and parts[-1] == _WILD["%"]
    body = "".join(parts[opened : len(parts) - closed])
    return f"{'' if opened else START}{body}{'' if closed else END}"


def _escaped(character: str, escape: str) -> str:
    if character not in ("%", "_", escape) or not character:
        raise RowError("the LIKE pattern has an escape before an ordinary character or at its end")
    return character


# Parts with the same meaning in Java and RE2, some after a rewrite.
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
    """The regular expression of an RLIKE pattern, which may match anywhere in the text."""
    parts: list[str] = []
    place = 0
    while place < len(pattern):
        found = _PIECE.match(pattern, place)
        if found is None or (found.lastgroup == "start" and place):
            raise NotCompilable("a regular expression that only Java supports")
        parts.append(_REWRITTEN.get(str(found.lastgroup), found[0]))
        place = found.end()
    return "".join(parts)


# Parts with the same meaning in Java and in Python with re.ASCII, some after a rewrite.
_JAVA_PIECE = re.compile(
    r"""
    (?P<set>\[\^?(?:[A-Za-z0-9\ _.,:;=@\#%'"<>/!~`$*+?(){}|]|\\[dDwWsStnrf.\\+*?()\[\]{}|^$\-/]|[a-z]-[a-z]
        |[A-Z]-[A-Z]|[0-9]-[0-9]|-(?=\])|[^\x00-\x7f])+\])
  | (?P<any>\.)
  | (?P<escaped>\\[.\\+*?()\[\]{}|^$\-/,:;"'@%&<>=!~ _])
  | (?P<class_word>\\[dDwWsStnrf])
  | (?P<bound>\\[bB])
  | (?P<start>\^)
  | (?P<end>\$)
  | (?P<look>\(\?[=!])
  | (?P<open>\(\?:|\((?!\?))
  | (?P<close>\))
  | (?P<or>\|)
  | (?P<repeat>(?:[*+?]|\{\d{1,3}(?:,\d{0,3})?\})\??(?![*+?{]))
  | (?P<plain>[A-Za-z0-9 \-_,:;=@\#%&'"<>/!~`\t\n]|[^\x00-\x7f])
    """,
    re.VERBOSE,
)
_TERMINATORS = "\\n\\r\\x85\\u2028\\u2029"
_FOR_PYTHON = {
    "any": f"[^{_TERMINATORS}]",
    # The end, or before a line terminator that ends the text; never between the two of \r\n.
    "end": r"(?:(?=\r\n\Z)|(?=[\r\x85\u2028\u2029]\Z)|(?<!\r)(?=\n\Z)|\Z)",
}


@dataclass(frozen=True)
class Regex:
    """A regular expression for Python, and the characters for which it has the same meaning as in Java.

    Java's word boundaries include letters beyond ASCII, and it finds empty matches inside of a surrogate pair.
    """

    compiled: re.Pattern[str]
    highest: str


@dataclass
class _Group:
    """An open group during parsing: whether its alternatives can match the empty text."""

    start: int
    nothing: bool = True
    any_nothing: bool = False
    plain: bool = True


@dataclass
class _Reader:
    """The parts of a pattern, and whether the part before a quantifier may be repeated."""

    parts: list[str] = field(default_factory=list)
    groups: list[_Group] = field(default_factory=lambda: [_Group(0)])
    # Whether the last atom can match the empty text; None if there is no atom to repeat.
    last: bool | None = None
    ascii_only: bool = False

    def highest(self) -> str:
        """The last character up to which the engines agree."""
        self._settle()
        whole = self.groups[0]
        beyond = "\uffff" if whole.nothing or whole.any_nothing else "\U0010ffff"
        return "\x7f" if self.ascii_only else beyond

    def piece(self, kind: str, text: str) -> None:
        self.parts.append(_FOR_PYTHON.get(kind, text))
        step: Callable[[str], None] | None = getattr(self, f"_{kind}", None)
        if step is not None:
            step(text)
        else:
            self._atom()

    def _atom(self) -> None:
        self._settle()
        self.last = False

    def _settle(self) -> None:
        """Finish the last atom, which has no quantifier."""
        if self.last is False:
            self.groups[-1].nothing = False
        self.last = None

    def _start(self, _: str) -> None:
        self._settle()

    def _end(self, _: str) -> None:
        self._settle()

    def _bound(self, _: str) -> None:
        self.ascii_only = True
        self._settle()

    def _open(self, _: str) -> None:
        self._settle()
        self.groups.append(_Group(len(self.parts)))

    def _look(self, text: str) -> None:
        self._open(text)
        self.groups[-1].plain = False

    def _or(self, _: str) -> None:
        self._settle()
        self.groups[-1].any_nothing |= self.groups[-1].nothing
        self.groups[-1].nothing = True

    def _close(self, _: str) -> None:
        self._settle()
        group = self.groups.pop()
        if not self.groups:
            raise NotCompilable("a regular expression with an unbalanced bracket")
        nothing = group.any_nothing or group.nothing
        self.last = nothing if group.plain else None

    def _repeat(self, text: str) -> None:
        # Engines differ in repeating an atom that matches the empty text, and in quantifiers without an atom.
        if self.last is None or self.last:
            raise NotCompilable("a regular expression that repeats an empty match")
        optional = text[0] in "*?" or text.startswith(("{0,", "{0}"))
        if not optional:
            self.groups[-1].nothing = False
        self.last = None


def java_regex(pattern: str) -> Regex:
    """A regular expression of Java for Python's engine; NotCompilable if their meaning differs."""
    flags = re.ASCII
    place = 0
    if pattern.startswith("(?i)"):
        flags, place = flags | re.IGNORECASE, 4
    reader = _Reader()
    while place < len(pattern):
        found = _JAVA_PIECE.match(pattern, place)
        if found is None or found.lastgroup is None:
            raise NotCompilable("a regular expression that only Java supports")
        reader.piece(found.lastgroup, found[0])
        place = found.end()
    if len(reader.groups) != 1:
        raise NotCompilable("a regular expression with an open bracket")
    try:
        return Regex(re.compile("".join(reader.parts), flags), reader.highest())
    except re.error as error:
        raise NotCompilable("a regular expression that Python does not support") from error


def replacement(written: str, groups: int) -> Callable[[re.Match[str]], str]:
    """The function that replaces a match: `$1` is a group, and a backslash escapes the next character."""
    parts: list[str | int] = []
    place = 0
    while place < len(written):
        character = written[place]
        if character == "\\":
            if place + 1 == len(written):
                raise NotCompilable("a replacement that ends in a backslash")
            parts.append(written[place + 1])
            place += 2
        elif character == "$":
            number, place = _group_number(written, place + 1, groups)
            parts.append(number)
        else:
            parts.append(character)
            place += 1
    return lambda match: "".join(part if isinstance(part, str) else match[part] or "" for part in parts)


def _group_number(written: str, place: int, groups: int) -> tuple[int, int]:
    """The group number of a replacement: as many digits as form the number of an existing group."""
    if not written[place : place + 1].isdigit() or not written[place].isascii():
        raise NotCompilable("a replacement with a $ without a group")
    number, place = int(written[place]), place + 1
    while place < len(written) and written[place] in "0123456789" and number * 10 + int(written[place]) <= groups:
        number, place = number * 10 + int(written[place]), place + 1
    if number > groups:
        raise NotCompilable("a replacement with a group that does not exist")
    return number, place
