"""Masks secrets in text before it is shown, by position: in a URI's login or parameters, or in an option's value.

Whatever is not declared public is a secret: the login of a URI (everything up to its last @), each parameter of a URI
and the value of each option whose name no plug-in declares as public. In addition, the value of every name that
contains a word such as password or token is masked in any text.
"""

from __future__ import annotations

import itertools
import re
import threading
from collections.abc import Callable, Iterable, Iterator

MASK = "***"

# A name is secret when one of these is a part of it, as in `ssl.keystore.password` or `AWS_SECRET_ACCESS_KEY`.
_WORDS = r"password|passwd|pwd|passphrase|token|secret|credential|api[._-]?key|access[._-]?key|private[._-]?key"
_WORDS += r"|sasl[._]jaas[._]config|authorization|auth[._-]header|basic[._]auth[._]user[._]info|assertion|signature"
_NAME = rf"[\w.\-]*(?:{_WORDS})[\w.\-]*"

_NAMED: tuple[re.Pattern[str], ...] = (
    # The login of a URI: the password ends at the last @ before the host, so one with an @ in it is masked whole.
    re.compile(r"[A-Za-z][A-Za-z0-9+.\-]*://[^\s/?#:@'\"]*:(?P<secret>[^\s/?#'\"]*)(?=@)"),
    # `'kafka.sasl.password' = 'x'`, `"token" = "x"`, `secret => 'x'`, and the JSON spelling with a colon.
    re.compile(rf"['\"]?{_NAME}['\"]?\s*(?:=>?|:)\s*'(?P<secret>(?:[^'\\]|\\.|'')*)", re.IGNORECASE),
    re.compile(rf"['\"]?{_NAME}['\"]?\s*(?:=>?|:)\s*\"(?P<secret>(?:[^\"\\]|\\.)*)", re.IGNORECASE),
    # `?password=x&...`, `token=x`: up to what ends a parameter.
    re.compile(rf"\b{_NAME}\s*=\s*(?P<secret>[^\s&;,'\")]+)", re.IGNORECASE),
    re.compile(r"\b(?:Bearer|Basic)\s+(?P<secret>[A-Za-z0-9+/=_.\-]{8,})"),
)

_URI = re.compile(r"(?P<scheme>[A-Za-z][A-Za-z0-9+.\-]*)://")
# Schemes whose URIs have no login: everything after the scheme is a path or a name.
_NO_LOGIN = ("file", "memory", "generate")
_BARE_END = " \t\r\n,;)]}'\""
_QUOTED = r"'(?:[^'\\]|\\.|'')*(?:'|\Z)|\"(?:[^\"\\]|\\.)*(?:\"|\Z)"
_STRING = re.compile(_QUOTED)
_WITH = re.compile(r"\bWITH\s*\(", re.IGNORECASE)
# What a WITH (...) consists of: quoted texts, words, and single characters.
_PART = re.compile(rf"{_QUOTED}|[\w.\-*]+|\S")
_SET = re.compile(rf"(?:\A|;)\s*SET\s+(?P<name>[\w.]+)\s*=\s*(?P<value>{_QUOTED}|[^\s;]+)", re.IGNORECASE)
_OPTION = re.compile(rf"'(?P<name>[\w.\-]+)'\s*=\s*(?P<value>{_QUOTED})")

_public_names: set[str] = set()
_public_parameters: set[str] = set()
_declarations: list[Callable[[], None]] = []
_declaring = threading.Lock()

Span = tuple[int, int]


def declare_public(name: str) -> None:
    """The value of an option of this name may be shown; a name that ends in `.*` is a pattern."""
    _public_names.add(name.lower())


def declare_public_parameter(name: str) -> None:
    """The value of a URI's parameter of this name may be shown."""
    _public_parameters.add(name.lower())


def redact(text: str) -> str:
    """The text with every secret replaced by `***`. In a text that begins with a URI, the URI extends to the end of
    the line, because a password may contain any character."""
    first = _URI.match(text)
    whole = _in_uri(text, first, len(text.partition("\n")[0])) if first is not None else iter(())
    for start, end in reversed(_merged(itertools.chain(whole, _secrets(text)))):
        text = text[:start] + MASK + text[end:]
    return text


def mask(text: str) -> str:
    """The text with secrets masked character by character, so that line and column numbers stay correct."""
    for start, end in _merged(_secrets(text)):
        text = text[:start] + re.sub(r"[^\n]", "*", text[start:end]) + text[end:]
    return text


def without_logins(text: str) -> str:
    """A URI without passwords and tokens, to compare sources: a new password does not make it another source."""
    for pattern in _NAMED:
        text = pattern.sub(_starred, text)
    return text


def _starred(found: re.Match[str]) -> str:
    start, end = (offset - found.start() for offset in found.span("secret"))
    return found[0][:start] + MASK + found[0][end:] if end > start else found[0]


def _secrets(text: str) -> Iterator[Span]:
    """The positions of secrets, which may overlap."""
    for pattern in _NAMED:
        yield from (found.span("secret") for found in pattern.finditer(text))
    for found in _URI.finditer(text):
        yield from _in_uri(text, found, _uri_end(text, found.start()))
    for found in _WITH.finditer(text):
        yield from _in_options(text, found.end())
    for pattern in (_SET, _OPTION):
        for found in pattern.finditer(text):
            if not _is_public(found["name"]):
                yield _inside(text, *found.span("value"))


def _in_uri(text: str, found: re.Match[str], end: int) -> Iterator[Span]:
    start = found.end()
    _load_declared()
    at = text.rfind("@", start, end) if found["scheme"].lower() not in _NO_LOGIN else -1
    if at >= 0:
        yield start, at
    # Everything after the first question mark is treated as parameters, even if that mark seems to be part of a login.
    query = text.find("?", start, end)
    if query < 0:
        return
    place = query + 1
    secret_before = False
    for part in re.split(r"&(?=(?:[^\"]*\"[^\"]*\")*[^\"]*$)", text[place:end]):
        name, equals, _ = part.partition("=")
        secret = not equals or name.lower() not in _public_parameters
        if secret and secret_before:
            # The & may be part of the secret before it, and then the name is too.
            yield place - 1, place + len(part)
        elif secret:
            yield place + (len(name) + 1 if equals else 0), place + len(part)
        secret_before = secret
        place += len(part) + 1


def _uri_end(text: str, start: int) -> int:
    """The end of the URI that starts here: the closing quote, or else the first character that cannot be part of it."""
    if start and text[start - 1] in "'\"":
        quoted = _STRING.match(text, start - 1)
        assert quoted is not None
        return _inside(text, *quoted.span())[1]
    inside = queried = False
    for place in range(start, len(text)):
        char = text[place]
        queried = queried or char == "?"
        if char == '"' and queried:
            inside = inside == (text[place - 1] == "\\")
        elif not inside and char in _BARE_END:
            return place
    return len(text)


def _in_options(text: str, start: int) -> Iterator[Span]:
    """The values of options that are not public, and quoted texts that are neither name nor value of an option."""
    depth, name, value = 1, "", False
    for part in _PART.finditer(text, start):
        word = part[0]
        if word in "()":
            depth += 1 if word == "(" else -1
            if not depth:
                return
        elif word == "=":
            value = True
        elif word == ",":
            name, value = "", False
        elif text[part.end() :].lstrip().startswith("=") and not value:
            name = word.strip("'\"")
        elif not (value and _is_public(name)):
            yield _inside(text, *part.span())


def _inside(text: str, start: int, end: int) -> Span:
    """A value without the quotes around it."""
    quote = text[start]
    if quote not in "'\"":
        return start, end
    return start + 1, end - 1 if end - start > 1 and text[end - 1] == quote else end


def before_first_use(declare: Callable[[], None]) -> None:
    """Call a function before anything is masked: it declares the options of all plug-ins, because what is masked must
    not depend on which of them were used."""
    _declarations.append(declare)


def _load_declared() -> None:
    with _declaring:
        while _declarations:
            _declarations[0]()
            del _declarations[0]


def _is_public(name: str) -> bool:
    _load_declared()
    name = name.lower()
    return name in _public_names or any(name.startswith(known[:-1]) for known in _public_names if known.endswith("*"))


def _merged(spans: Iterable[Span]) -> list[Span]:
    """Spans in order; adjacent and overlapping ones are merged."""
    merged: list[Span] = []
    for start, end in sorted(span for span in spans if span[1] > span[0]):
        if merged and start <= merged[-1][1]:
            merged[-1] = merged[-1][0], max(end, merged[-1][1])
        else:
            merged.append((start, end))
    return merged
