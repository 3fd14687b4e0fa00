"""Small files of the state directory: JSON that is replaced whole and carries a checksum.

The first line is the JSON, the second its checksum: a crash leaves the old file or the new one, and whatever else
changes a byte is noticed when the file is read.
"""

from __future__ import annotations

import json
import zlib
from pathlib import Path
from typing import Any

from millpond.disk import make_folder, replace_file
from millpond.errors import StateError

CHECKSUM = "crc32"


def write_sealed(file: Path, value: Any) -> None:
    """Write a value, all of it or nothing; its folder is made if need be. Not for two threads at once."""
    make_folder(file.parent)
    replace_file(file, lambda out: out.write(sealed(value)), "small", "The state cannot be written")


def sealed(value: Any) -> bytes:
    """The bytes of a file that holds a value."""
    body = json.dumps(value, ensure_ascii=False).encode()
    return body + b"\n" + seal(body) + b"\n"


def seal(body: bytes) -> bytes:
    """The checksum of a line, as text."""
    return f"{CHECKSUM} {zlib.crc32(body):08x}".encode()


def read_sealed(file: Path, hint: str = "Restore it from a copy, or start over with another --state.") -> Any:
    """The value of a file; FileNotFoundError when there is none, MP804 when it is not what was written."""
    try:
        lines = file.read_bytes().split(b"\n")
    except FileNotFoundError:
        raise
    except OSError as error:
        raise StateError("MP804", f"{file} cannot be read: {error.strerror}.", hint=hint) from error
    if len(lines) != 3 or lines[2] or lines[1] != seal(lines[0]):
        raise StateError("MP804", f"{file} is damaged: its checksum does not match.", hint=hint)
    return json.loads(lines[0])
