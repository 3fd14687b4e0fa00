"""Bytes as text and back, digests, and Spark's two hash functions."""

from __future__ import annotations

import base64
import hashlib
import math
import re
import struct
import zlib
from collections.abc import Callable, Sequence
from typing import Any
from urllib.parse import quote_plus, unquote_to_bytes

import pyarrow as pa
import pyarrow.compute as pc

from millpond.expressions.coercion import BIGINT, BINARY, BOOLEAN, DATE, FLOATS, INT, INTEGERS, STRING, VOID
from millpond.expressions.failures import NotCompilable, RowError
from millpond.expressions.frames import Datum
from millpond.expressions.rules import Operands, Signature, types_of
from millpond.expressions.signatures import Function, Functions, Kernel, Run, Site, takes
from millpond.schema import TIMESTAMP, TIMESTAMP_NTZ

LINE = 76
SEED = 42
SMALL_DIGITS = 18
M32, M64 = 0xFFFFFFFF, 0xFFFFFFFFFFFFFFFF


def bytes_rule(gives: pa.DataType, *more: pa.DataType) -> Function:
    """A function of bytes, or of a text's bytes."""

    def rule(operands: Operands) -> Signature | None:
        first, *rest = types_of(operands)
        return Signature((BINARY, *more), gives) if first in (BINARY, STRING) and rest == list(more) else None

    return Function(rule, gives)


def _base64(data: bytes) -> str:
    """Base64 in lines of 76 characters, as in MIME."""
    text = base64.b64encode(data).decode("ascii")
    return "\r\n".join(text[start : start + LINE] for start in range(0, len(text), LINE))


_BASE64 = re.compile(r"(?:[A-Za-z0-9+/]{4})*(?:[A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?")


def _unbase64(text: str) -> bytes:
    joined = text.replace("\r\n", "")
    if not _BASE64.fullmatch(joined):
        raise NotCompilable("a text that is not Base64")
    return base64.b64decode(joined)


def hex_rule(operands: Operands) -> Signature | None:
    (type_,) = types_of(operands)
    if type_ in INTEGERS:
        return Signature((BIGINT,), STRING)
    return Signature((BINARY,), STRING) if type_ in (BINARY, STRING) else None


def _hex(value: int | bytes) -> str:
    return f"{value & M64:X}" if isinstance(value, int) else value.hex().upper()


def _unhex(text: str) -> bytes | None:
    padded = "0" * (len(text) % 2) + text
    return bytes.fromhex(padded) if re.fullmatch(r"[0-9A-Fa-f]*", text) else None


_SHA2: dict[int, Callable[[bytes], Any]] = {
    0: hashlib.sha256,
    224: hashlib.sha224,
    256: hashlib.sha256,
    384: hashlib.sha384,
    512: hashlib.sha512,
}


def _sha2(data: bytes, bits: int) -> str | None:
    found = _SHA2.get(bits)
    return None if found is None else str(found(data).hexdigest())


def _url_encode(text: str) -> str:
    return quote_plus(text, safe="*").replace("~", "%7E")


def _url_decode(text: str) -> str:
    if re.search(r"%(?![0-9A-Fa-f]{2})", text):
        raise RowError("a % of a URL is not followed by two hexadecimal digits")
    try:
        return unquote_to_bytes(text.replace("+", " ")).decode("utf-8")
    except UnicodeDecodeError as error:
        raise NotCompilable("a URL that is not UTF-8") from error


# --- Murmur3 and xxHash64, each continuing from the hash of the columns before


def _signed(value: int, bits: int) -> int:
    return value - (1 << bits) if value >> (bits - 1) else value


def _rotated(value: int, by: int, bits: int) -> int:
    mask = (1 << bits) - 1
    return ((value << by) | (value >> (bits - by))) & mask


def _murmur_mixed(seed: int, word: int) -> int:
    word = _rotated(word * 0xCC9E2D51 & M32, 15, 32) * 0x1B873593 & M32
    return (_rotated(seed ^ word, 13, 32) * 5 + 0xE6546B64) & M32


def _murmur_end(value: int, length: int) -> int:
    value ^= length
    value = (value ^ value >> 16) * 0x85EBCA6B & M32
    value = (value ^ value >> 13) * 0xC2B2AE35 & M32
    return value ^ value >> 16


def _murmur(seed: int, data: bytes) -> int:
    """Whole words first; Spark then hashes each remaining byte as a separate word."""
    whole = len(data) & ~3
    for (word,) in struct.iter_unpack("<I", data[:whole]):
        seed = _murmur_mixed(seed, word)
    for (byte,) in struct.iter_unpack("<b", data[whole:]):
        seed = _murmur_mixed(seed, byte & M32)
    return _murmur_end(seed, len(data))


P1, P2, P3 = 0x9E3779B185EBCA87, 0xC2B2AE3D27D4EB4F, 0x165667B19E3779F9
P4, P5 = 0x85EBCA77C2B2AE63, 0x27D4EB2F165667C5


def _xx_end(value: int) -> int:
    value = (value ^ value >> 33) * P2 & M64
    value = (value ^ value >> 29) * P3 & M64
    return value ^ value >> 32


def _xx_round(value: int, word: int) -> int:
    return _rotated((value + word * P2) & M64, 31, 64) * P1 & M64


def _xx_start(seed: int, data: bytes) -> int:
    if len(data) < 32:
        return (seed + P5) & M64
    lanes = [seed + P1 + P2, seed + P2, seed, seed - P1]
    for words in struct.iter_unpack("<4Q", data[: len(data) & ~31]):
        lanes = [_xx_round(lane & M64, word) for lane, word in zip(lanes, words, strict=True)]
    value = sum(_rotated(lane, by, 64) for lane, by in zip(lanes, (1, 7, 12, 18), strict=True)) & M64
    for lane in lanes:
        value = ((value ^ _xx_round(0, lane)) * P1 + P4) & M64
    return value


def _xx(seed: int, data: bytes) -> int:
    value = (_xx_start(seed, data) + len(data)) & M64
    rest = data[len(data) & ~31 :]
    whole = len(rest) & ~7
    for (word,) in struct.iter_unpack("<Q", rest[:whole]):
        value = (_rotated(value ^ _xx_round(0, word), 27, 64) * P1 + P4) & M64
    rest = rest[whole:]
    if len(rest) >= 4:
        value = (_rotated(value ^ int.from_bytes(rest[:4], "little") * P1 & M64, 23, 64) * P2 + P3) & M64
        rest = rest[4:]
    for byte in rest:
        value = _rotated(value ^ byte * P5 & M64, 11, 64) * P1 & M64
    return _xx_end(value)


def _hashed_bytes(type_: pa.DataType) -> Callable[[Any], bytes]:
    """The bytes that are hashed for a value of a type: 4 up to INT, 8 for longer numbers, all bytes of a text."""
    if type_ in INTEGERS[:3] or type_ == BOOLEAN:
        return lambda value: int(value).to_bytes(4, "little", signed=True)
    if type_ == BIGINT:
        return lambda value: int(value).to_bytes(8, "little", signed=True)
    if type_ == STRING:
        return lambda value: bytes(value.encode("utf-8"))
    if type_ in FLOATS:
        code, nan = ("<f", 0x7FC00000) if type_ == pa.float32() else ("<d", 0x7FF8000000000000)
        size = struct.calcsize(code)
        return lambda value: nan.to_bytes(size, "little") if math.isnan(value) else struct.pack(code, value + 0.0)
    if pa.types.is_decimal(type_) and type_.precision <= SMALL_DIGITS:
        return lambda value: int(value.scaleb(type_.scale)).to_bytes(8, "little", signed=True)
    if type_ == BINARY:
        return bytes
    raise NotCompilable("a hash of values of this type")


def _hash(step: Callable[[int, bytes], int], bits: int) -> Callable[[Site], Run]:
    def make(site: Site) -> Run:
        writers = [_hashed_bytes(INT if t == DATE else BIGINT if t == TIMESTAMP else t) for t in site.takes]

        def one(row: Sequence[Any]) -> int:
            value = SEED
            for item, write in zip(row, writers, strict=True):
                value = value if item is None else step(value, write(item))
            return _signed(value, bits)

        def run(*arguments: Datum) -> Datum:
            length = next((len(a) for a in arguments if isinstance(a, pa.Array)), 1)
            columns = [_plain_values(a, length) for a in arguments]
            found = [one(row) for row in zip(*columns, strict=True)]
            single = all(isinstance(a, pa.Scalar) for a in arguments)
            return pa.scalar(found[0], site.gives) if single else pa.array(found, site.gives)

        return run

    return make


def _plain_values(value: Datum, length: int) -> list[Any]:
    """Dates and times as integers, other values as Python values."""
    if value.type in (DATE, TIMESTAMP, TIMESTAMP_NTZ):
        value = pc.cast(value, INT if value.type == DATE else BIGINT)
    return [value.as_py()] * length if isinstance(value, pa.Scalar) else value.to_pylist()


def hash_rule(gives: pa.DataType) -> Function:
    def rule(operands: Operands) -> Signature | None:
        types = tuple(types_of(operands))
        return Signature(types, gives) if types and VOID not in types else None

    return Function(rule, gives)


def charset_rule(gives: pa.DataType, source: pa.DataType) -> Function:
    def rule(operands: Operands) -> Signature | None:
        value, charset = types_of(operands)
        return Signature((source, STRING), gives) if value == source and charset == STRING else None

    return Function(rule, gives)


def _charset(name: str) -> None:
    if name.upper() != "UTF-8":
        raise NotCompilable("a character set other than UTF-8")


def _encode(text: str, charset: str) -> bytes:
    _charset(charset)
    return text.encode("utf-8")


def _decode(data: bytes, charset: str) -> str:
    _charset(charset)
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise NotCompilable("bytes that are not UTF-8") from error


FUNCTIONS: Functions = {
    "base64": bytes_rule(STRING).by_rows(_base64, "bytes as Base64"),
    "unbase64": takes(BINARY, STRING).by_rows(_unbase64, "Base64 as bytes"),
    "hex": Function(hex_rule, STRING).by_rows(_hex, "a whole number or bytes in hexadecimal digits"),
    "unhex": takes(BINARY, STRING).by_rows(_unhex, "hexadecimal digits as bytes"),
    "md5": bytes_rule(STRING).by_rows(lambda data: hashlib.md5(data).hexdigest(), "the MD5 digest"),
    "sha1": bytes_rule(STRING).by_rows(lambda data: hashlib.sha1(data).hexdigest(), "the SHA-1 digest"),
    "sha2": bytes_rule(STRING, INT).by_rows(_sha2, "the SHA-2 digest of 224, 256, 384 or 512 bits"),
    "crc32": bytes_rule(BIGINT).by_rows(zlib.crc32, "the CRC-32 checksum"),
    "hash": hash_rule(INT).by(Kernel(_hash(_murmur, 32), lazy=False), "Spark's Murmur3 hash of the arguments"),
    "xxhash64": hash_rule(BIGINT).by(Kernel(_hash(_xx, 64), lazy=False), "the xxHash64 of the arguments"),
    "encode": charset_rule(BINARY, STRING).by_rows(_encode, "a text as bytes in UTF-8"),
    "decode": charset_rule(STRING, BINARY).by_rows(_decode, "bytes in UTF-8 as text; or a value by cases, as CASE"),
    "url_encode": takes(STRING, STRING).by_rows(_url_encode, "a text as part of a URL"),
    "url_decode": takes(STRING, STRING).by_rows(_url_decode, "part of a URL as text", fallible=True),
}
