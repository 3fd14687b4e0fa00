"""LIKE and the functions of regular expressions, by Arrow if its engine agrees with Java's, else by Python."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import lru_cache

import pyarrow as pa
import pyarrow.compute as pc

from millpond.expressions.coercion import BOOLEAN, INT, STRING
from millpond.expressions.failures import NotCompilable, RowError
from millpond.expressions.frames import Datum
from millpond.expressions.patterns import java_regex, like, replacement, rlike
from millpond.expressions.signatures import Functions, Kernel, Run, Site, elementwise, takes

PATTERNS_MAX = 256

_like = lru_cache(PATTERNS_MAX)(like)
_rlike = lru_cache(PATTERNS_MAX)(rlike)
_regex = lru_cache(PATTERNS_MAX)(java_regex)
_replacement = lru_cache(PATTERNS_MAX)(replacement)


def _matching(translate: Callable[..., str], otherwise: Callable[[str, str], bool] | None = None) -> Kernel:
    """A match against a pattern; a constant pattern is translated once for all rows."""

    def match(text: Datum, pattern: Datum, escape: pa.Scalar | None) -> Datum:
        nothing = text.null_count == len(text) if isinstance(text, pa.Array) else not text.is_valid
        if nothing or not pattern.is_valid:
            return pa.nulls(len(text), BOOLEAN) if isinstance(text, pa.Array) else pa.scalar(None, BOOLEAN)
        mark = () if escape is None else (escape.as_py(),)
        try:
            return pc.match_substring_regex(text, translate(pattern.as_py(), *mark))
        except pa.ArrowInvalid as error:
            raise NotCompilable("a regular expression that Arrow does not support") from error
        except NotCompilable:
            if otherwise is None:
                raise
            return elementwise(otherwise, BOOLEAN)(text, pattern)

    def run(text: Datum, pattern: Datum, escape: pa.Scalar | None = None) -> Datum:
        if isinstance(pattern, pa.Scalar):
            return match(text, pattern, escape)
        texts = text if isinstance(text, pa.Array) else pa.repeat(text, len(pattern))
        pairs = zip(texts, pattern, strict=True)
        return pa.array([match(one, wanted, escape).as_py() for one, wanted in pairs], BOOLEAN)

    return Kernel(lambda site: _constant_escape(site, run), fallible=True)


def _constant_escape(site: Site, run: Run) -> Run:
    if len(site.takes) == 3:
        site.constant(2)
    return run


def _compiled(pattern: str, text: str) -> re.Pattern[str]:
    found = _regex(pattern)
    if not text.isascii() and max(text) > found.highest:
        raise NotCompilable("a regular expression that means something else among these characters")
    return found.compiled


def _place(text: str, pattern: str, _: int = 0) -> int:
    """Where the first match begins, from 1; 0 without one. Java counts characters beyond 65,535 twice."""
    found = _compiled(pattern, text).search(text)
    if found is None:
        return 0
    if not text.isascii() and max(text[: found.start()], default="") > "\uffff":
        raise NotCompilable("the place of a match behind characters that Java counts twice")
    return found.start() + 1


def _found(text: str, pattern: str) -> bool:
    return _compiled(pattern, text).search(text) is not None


def _group(match: re.Match[str], group: int) -> str:
    if not 0 <= group <= match.re.groups:
        raise RowError(f"the regular expression has no group {group}")
    return match[group] or ""


def _extract(text: str, pattern: str, group: int = 1) -> str:
    compiled = _compiled(pattern, text)
    found = compiled.search(text)
    if found is None:
        # Whether Spark checks the group number for a text without a match depends on its version.
        if not 0 <= group <= compiled.groups:
            raise NotCompilable("a group that the regular expression does not have")
        return ""
    return _group(found, group)


def _extract_all(text: str, pattern: str, group: int = 1) -> list[str]:
    compiled = _compiled(pattern, text)
    if not 0 <= group <= compiled.groups:
        raise NotCompilable("a group that the regular expression does not have")
    return [_group(found, group) for found in compiled.finditer(text)]


def _substring(text: str, pattern: str) -> str | None:
    return _extract(text, pattern, 0) or None


def _count(text: str, pattern: str) -> int:
    return len(_extract_all(text, pattern, 0))


def _replace(text: str, pattern: str, written: str) -> str:
    compiled = _compiled(pattern, text)
    return compiled.sub(_replacement(written, compiled.groups), text)


def _split(text: str, pattern: str, limit: int = -1) -> list[str]:
    """SPLIT; Java returns no empty first part for an empty match at the start."""
    if text and not pattern:
        count = len(text) if limit <= 0 or limit > len(text) else limit
        return [*text[: count - 1], text[count - 1 :]]
    parts: list[str] = []
    start = 0
    for found in _compiled(pattern, text).finditer(text):
        if limit > 0 and len(parts) == limit - 1:
            break
        if found.end() > 0:
            parts.append(text[start : found.start()])
            start = found.end()
    return [*parts, text[start:]]


_STRINGS = pa.list_(STRING)
_TWO = (STRING, STRING)

FUNCTIONS: Functions = {
    "like": takes(BOOLEAN, *_TWO, STRING, optional=1).by(
        _matching(_like), "whether a text matches a pattern of % and _"
    ),
    "rlike": takes(BOOLEAN, *_TWO).by(
        _matching(_rlike, _found), "whether a regular expression matches a part of a text"
    ),
    "regexp_replace": takes(STRING, *_TWO, STRING).by_rows(
        _replace, "every match of a regular expression replaced", fallible=True
    ),
    "regexp_extract": takes(STRING, *_TWO, INT, optional=1).by_rows(
        _extract, "a group of the first match, or an empty text", fallible=True
    ),
    "regexp_extract_all": takes(_STRINGS, *_TWO, INT, optional=1).by_rows(
        _extract_all, "a group of every match", fallible=True
    ),
    "regexp_substr": takes(STRING, *_TWO).by_rows(_substring, "the first match, or NULL"),
    "regexp_instr": takes(INT, *_TWO, INT, optional=1).by_rows(_place, "the index of the first match, from 1; else 0"),
    "regexp_count": takes(INT, *_TWO).by_rows(_count, "the number of matches"),
    "split": takes(_STRINGS, *_TWO, INT, optional=1).by_rows(
        _split, "the parts of a text between matches of a regular expression"
    ),
}
