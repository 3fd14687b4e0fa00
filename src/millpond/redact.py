"""Secrets out of texts that people will see: passwords, tokens, credentials inside URIs."""

from __future__ import annotations

import re

MASK = "***"

# A name is secret when one of these is a part of it, as in `ssl.keystore.password` or `AWS_SECRET_ACCESS_KEY`.
_WORDS = r"password|passwd|pwd|passphrase|token|secret|credential|api[._-]?key|access[._-]?key|private[._-]?key"
_WORDS += r"|sasl[._]jaas[._]config|authorization|basic[._]auth[._]user[._]info"
_NAME = rf"[\w.\-]*(?:{_WORDS})[\w.\-]*"

_PATTERNS: tuple[re.Pattern[str], ...] = (
    # The login of a URI: the password ends at the last @ before the host, so one with an @ in it is masked whole.
    re.compile(r"[A-Za-z][A-Za-z0-9+.\-]*://[^\s/?#:@'\"]*:(?P<secret>[^\s/?#'\"]*)(?=@)"),
    # `'kafka.sasl.password' = 'x'`, `"token" = "x"`, `secret => 'x'`, and the JSON spelling with a colon.
    re.compile(rf"['\"]?{_NAME}['\"]?\s*(?:=>?|:)\s*'(?P<secret>(?:[^'\\]|\\.|'')*)", re.IGNORECASE),
    re.compile(rf"['\"]?{_NAME}['\"]?\s*(?:=>?|:)\s*\"(?P<secret>(?:[^\"\\]|\\.)*)", re.IGNORECASE),
    # `?password=x&...`, `token=x`: up to what ends a parameter.
    re.compile(rf"\b{_NAME}\s*=\s*(?P<secret>[^\s&;,'\")]+)", re.IGNORECASE),
    re.compile(r"\b(?:Bearer|Basic)\s+(?P<secret>[A-Za-z0-9+/=_.\-]{8,})"),
)


def redact(text: str) -> str:
    """The text with every secret in it replaced by `***`."""
    for pattern in _PATTERNS:
        text = pattern.sub(lambda found: _replaced(found, MASK), text)
    return text


def mask_line(line: str) -> str:
    """The line with secrets starred out character by character, so that a caret below it still points right."""
    for pattern in _PATTERNS:
        line = pattern.sub(lambda found: _replaced(found, "*" * len(found["secret"])), line)
    return line


def _replaced(found: re.Match[str], mask: str) -> str:
    if not found["secret"]:
        return found[0]
    start, end = (offset - found.start() for offset in found.span("secret"))
    return found[0][:start] + mask + found[0][end:]
