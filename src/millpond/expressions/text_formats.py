"""Texts in forms of their own: formatted numbers, parts of URLs, masked and checked texts."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from decimal import ROUND_HALF_EVEN, ROUND_HALF_UP, Decimal
from functools import lru_cache
from typing import Any

import pyarrow as pa

from millpond.expressions.coercion import BOOLEAN, DOUBLE, INT, INTEGERS, STRING, is_number
from millpond.expressions.decimals import EXACT, spelled
from millpond.expressions.failures import NotCompilable, RowError
from millpond.expressions.rules import Operands, Signature, fits, types_of
from millpond.expressions.signatures import Function, Functions, Kernel, Run, Site, elementwise, takes

FORMATS_MAX = 256
PLACES_MAX = 100


def format_number_rule(operands: Operands) -> Signature | None:
    number, places = types_of(operands)
    return Signature((number, INT), STRING) if is_number(number) and places in INTEGERS[:3] else None


def _format_number(site: Site) -> Run:
    if site.takes[0] == pa.float32():
        raise NotCompilable("a FLOAT written by a format")
    return elementwise(_grouped, STRING)


def _grouped(number: Any, places: int) -> str | None:
    """With commas between thousands, rounded half to even."""
    if places < 0:
        return None
    if places > PLACES_MAX or number in (float("inf"), float("-inf")) or number != number:
        raise NotCompilable("a number that is not written with digits")
    exact = Decimal(number)
    rounded = exact.quantize(Decimal(1).scaleb(-places), rounding=ROUND_HALF_EVEN, context=EXACT)
    return f"{rounded:,f}"


_DIRECTIVE = re.compile(r"%([-0,]*)(\d{1,4})?(?:\.(\d{1,3}))?([a-zA-Z%])")


@lru_cache(FORMATS_MAX)
def _format(text: str) -> tuple[list[str], list[tuple[str, int, int | None, str]]]:
    """The plain texts around the directives of a format, and the directives."""
    plain: list[str] = []
    directives = []
    place = start = 0
    buffer = ""
    while (place := text.find("%", start)) >= 0:
        found = _DIRECTIVE.match(text, place)
        if found is None:
            raise NotCompilable("a format with directives that Arrow does not support")
        buffer += text[start:place]
        if found[0] == "%%":
            buffer += "%"
        else:
            plain.append(buffer)
            buffer = ""
            places = None if found[3] is None else int(found[3])
            directives.append((found[1], int(found[2] or 0), places, found[4]))
        start = found.end()
    plain.append(buffer + text[start:])
    return plain, directives


def format_string_rule(operands: Operands) -> Signature | None:
    types = types_of(operands)
    written = all(t in (STRING, BOOLEAN, DOUBLE, *INTEGERS) for t in types[1:])
    return Signature(tuple(types), STRING) if types and types[0] == STRING and written else None


def _format_string(site: Site) -> Run:
    found = site.constant(0)
    if found is None:
        raise NotCompilable("a format that is NULL")
    plain, directives = _format(found)
    if len(directives) > len(site.takes) - 1:
        raise NotCompilable("a format with more directives than values")
    writers = [_directive(d, type_) for d, type_ in zip(directives, site.takes[1:], strict=False)]

    def one(_: str, *values: Any) -> str:
        parts = [write(value) for write, value in zip(writers, values, strict=False)]
        return "".join(text for pair in zip(plain, [*parts, ""], strict=True) for text in pair)

    return elementwise(one, STRING, nullable=range(len(site.takes)))


Write = Callable[[Any], str]


def _directive(directive: tuple[str, int, int | None, str], type_: pa.DataType) -> Write:
    flags, width, places, letter = directive
    if len(set(flags)) < len(flags) or {"-", "0"} <= set(flags) or (("-" in flags or "0" in flags) and not width):
        raise NotCompilable("a directive with these flags")
    if letter == "s" and places is None and not set(flags) - {"-"} and type_ in (STRING, BOOLEAN, *INTEGERS):
        write: Write = _plain
    elif letter == "d" and places is None and type_ in INTEGERS:
        write = (lambda value: f"{value:,d}") if "," in flags else str
    elif letter == "f" and type_ == DOUBLE:
        write = _fixed(6 if places is None else places, grouped="," in flags)
    else:
        raise NotCompilable(f"%{letter} of a value of this type")
    # NULL is written as a word, and truncated to the precision like one.
    null = "null"[:places]
    return lambda value: (
        _padded(write(value), flags, width) if value is not None else _padded(null, flags.replace("0", ""), width)
    )


def _plain(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _fixed(places: int, *, grouped: bool) -> Write:
    """A number with fixed places, rounded half up by the digits of its shortest spelling."""

    def write(value: float) -> str:
        if value != value or value in (float("inf"), float("-inf")) or (value == 0 and str(value).startswith("-")):
            raise NotCompilable("a number that is not written with digits")
        rounded = spelled(value).quantize(Decimal(1).scaleb(-places), rounding=ROUND_HALF_UP, context=EXACT)
        return f"{rounded:,f}" if grouped else f"{rounded:f}"

    return write


def _padded(text: str, flags: str, width: int) -> str:
    if not text.isascii() and width:
        raise NotCompilable("a text beyond ASCII filled to a width")
    if "-" in flags:
        return text.ljust(width)
    if "0" in flags:
        return text.zfill(width)
    return text.rjust(width)


# A URL of ordinary characters; Java may reject others.
_URL = re.compile(
    r"(?P<PROTOCOL>[A-Za-z][A-Za-z0-9+.\-]*)://"
    r"(?P<AUTHORITY>(?:(?P<USERINFO>[\w.~\-]+(?::[\w.~\-]*)?)@)?"
    r"(?P<HOST>[A-Za-z0-9](?:[A-Za-z0-9\-]*[A-Za-z0-9])?(?:\.[A-Za-z](?:[A-Za-z0-9\-]*[A-Za-z0-9])?)*)(?::\d{1,5})?)"
    r"(?P<FILE>(?P<PATH>(?:/[\w.~\-%+=,;:@!$&'()*]*)*)(?:\?(?P<QUERY>[\w.~\-%+=,;:@!$&'()*/?]*))?)"
    r"(?:#(?P<REF>[\w.~\-%+=,;:@!$&'()*/?]*))?",
    re.ASCII,
)


def _parse_url(url: str, part: str, key: str | None = None) -> str | None:
    found = _URL.fullmatch(url)
    if found is None or re.search(r"%(?![0-9A-Fa-f]{2})", url) or part not in found.groupdict():
        raise NotCompilable("a URL or a part of it that Arrow does not support")
    value = found[part]
    if key is None or value is None:
        return value if key is None else None
    if part != "QUERY" or not re.fullmatch(r"\w+", key, re.ASCII):
        raise NotCompilable("a key of a URL that Arrow does not support")
    match = re.search(rf"(?:&|^){key}=([^&]*)", value)
    return match[1] if match else None


def _elt(place: int, *texts: str | None) -> str | None:
    if not 1 <= place <= len(texts):
        raise RowError(f"there is no argument {place}")
    return texts[place - 1]


def elt_rule(operands: Operands) -> Signature | None:
    place, *texts = operands
    fit = bool(texts) and fits(place, INT) and all(fits(o, STRING) for o in texts)
    return Signature((INT, *(STRING,) * len(texts)), STRING) if fit else None


def _luhn_check(text: str) -> bool:
    if not text or not re.fullmatch(r"[0-9]+", text):
        return False
    doubled = [int(d) * (1 + place % 2) for place, d in enumerate(reversed(text))]
    return sum(d - 9 if d > 9 else d for d in doubled) % 10 == 0


def _mask(site: Site) -> Run:
    """Letters and digits replaced by the given characters; NULL leaves those as they are."""
    given = [site.constants[place] for place in range(1, len(site.takes))]
    if any(constant is None for constant in given):
        raise NotCompilable("MASK with characters that are not literals")
    marks = [constant.as_py() for constant in given] + ["X", "x", "n", None][len(given) :]
    if any(mark is not None and len(mark) != 1 for mark in marks):
        raise NotCompilable("MASK with more than one character")
    upper, lower, digit, other = marks

    def one(text: str) -> str:
        if not text.isascii():
            raise NotCompilable("MASK of letters beyond ASCII")
        kinds = ((c, upper if c.isupper() else lower if c.islower() else digit if c.isdigit() else other) for c in text)
        return "".join(c if mark is None else mark for c, mark in kinds)

    return elementwise(lambda text, *_: one(text), STRING, tuple(range(1, len(site.takes))))


_TEXTS: Sequence[pa.DataType] = (STRING, STRING, STRING)

FUNCTIONS: Functions = {
    "format_number": Function(format_number_rule, STRING).by(
        Kernel(_format_number), "a number with commas between thousands and fixed places"
    ),
    "format_string": Function(format_string_rule, STRING).by(
        Kernel(_format_string, lazy=False), "values written into a text by a format such as '%s: %05d'"
    ),
    "elt": Function(elt_rule, STRING).by(
        Kernel(lambda site: elementwise(_elt, STRING, tuple(range(1, len(site.takes)))), fallible=True, lazy=False),
        "the n-th of the texts that follow",
    ),
    "luhn_check": takes(BOOLEAN, STRING).by_rows(_luhn_check, "whether digits pass the Luhn check, as card numbers do"),
    "mask": takes(STRING, STRING, STRING, STRING, STRING, STRING, optional=4).by(
        Kernel(_mask, lazy=False), "the text with its letters and digits replaced"
    ),
    "parse_url": takes(STRING, *_TEXTS, optional=1).by_rows(
        _parse_url, "a part of a URL, such as HOST or a QUERY's key"
    ),
}
