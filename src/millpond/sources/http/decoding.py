"""Compressed bodies: gzip, deflate and Brotli, in parts, and checked to be whole."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterable, Iterator
from itertools import chain

GZIP_MAGIC = b"\x1f\x8b"
# Both gzip and zlib headers.
ANY_WINDOW, RAW_WINDOW = 32 + zlib.MAX_WBITS, -zlib.MAX_WBITS
PART_BYTES = 1 << 20

Decode = Callable[[Iterable[bytes]], Iterator[bytes]]


class CannotDecode(ValueError):
    """The bytes do not have their Content-Encoding, or are cut off."""


def decoder(encoding: str) -> Decode:
    """What decodes a body of this Content-Encoding; a file that is compressed itself is decompressed as well."""
    names = [name.strip().lower() for name in encoding.split(",") if name.strip()]
    steps = [_DECODERS.get(name) for name in names if name != "identity"]
    if None in steps:
        raise CannotDecode(f"its Content-Encoding '{encoding}' is not supported")

    def decode(data: Iterable[bytes]) -> Iterator[bytes]:
        # The last one was applied last.
        for step in reversed(steps):
            assert step is not None
            data = step(data)
        yield from _unzipped_file(data)

    return decode


def _unzipped_file(data: Iterable[bytes]) -> Iterator[bytes]:
    parts = iter(data)
    first = next(parts, b"")
    yield from (_inflated if first.startswith(GZIP_MAGIC) else iter)(chain([first], parts))


def _inflated(data: Iterable[bytes]) -> Iterator[bytes]:
    """gzip, also of several members, and zlib."""
    engine, begun = zlib.decompressobj(ANY_WINDOW), False
    for part in data:
        left = part
        while left:
            if engine.eof:
                engine = zlib.decompressobj(ANY_WINDOW)
            try:
                found = engine.decompress(left, PART_BYTES)
            except zlib.error as error:
                if begun:
                    raise CannotDecode(str(error)) from error
                # What is called deflate is often sent without its header.
                engine = zlib.decompressobj(RAW_WINDOW)
                found = _first_raw(engine, left)
            begun = True
            yield found
            left = engine.unconsumed_tail or engine.unused_data
    while begun and not engine.eof:
        found = engine.decompress(engine.unconsumed_tail, PART_BYTES)
        if not found:
            raise CannotDecode("it is cut off")
        yield found


def _first_raw(engine: zlib._Decompress, data: bytes) -> bytes:
    try:
        return engine.decompress(data, PART_BYTES)
    except zlib.error as error:
        raise CannotDecode(str(error)) from error


def _brotli(data: Iterable[bytes]) -> Iterator[bytes]:
    import brotli

    engine, begun = brotli.Decompressor(), False
    try:
        for part in data:
            begun = True
            yield engine.process(part, output_buffer_limit=PART_BYTES)
            while not engine.can_accept_more_data():
                yield engine.process(b"", output_buffer_limit=PART_BYTES)
    except brotli.error as error:
        raise CannotDecode(str(error)) from error
    if begun and not engine.is_finished():
        raise CannotDecode("it is cut off")


_DECODERS: dict[str, Decode] = {"gzip": _inflated, "x-gzip": _inflated, "deflate": _inflated, "br": _brotli}
