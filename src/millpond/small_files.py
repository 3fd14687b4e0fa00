"""Small files that are replaced whole: a crash leaves the old one or the new one."""

from __future__ import annotations

import os
from pathlib import Path


def write_safely(file: Path, text: str) -> None:
    """Write a small file, all of it or nothing; its folder is made if need be. Not for two threads at once."""
    file.parent.mkdir(parents=True, exist_ok=True)
    temporary = file.with_suffix(".tmp")
    with open(temporary, "w", encoding="utf-8") as out:
        out.write(text)
        out.flush()
        os.fsync(out.fileno())
    os.replace(temporary, file)
