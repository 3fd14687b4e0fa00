"""The Java that Spark will start with: where it is and how old."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path

JAVA_MIN = 17
ASK_TIMEOUT_S = 20.0


def find_java(environment: Mapping[str, str] | None = None) -> Path | None:
    """The program that Spark would start: that of JAVA_HOME, else the one on the PATH; None when there is none."""
    environment = os.environ if environment is None else environment
    home = environment.get("JAVA_HOME")
    found = str(Path(home) / "bin" / "java") if home else shutil.which("java", path=environment.get("PATH"))
    return Path(found) if found and os.access(found, os.X_OK) else None


def java_version(java: Path) -> int | None:
    """The major version from the JDK's release file, else from `java -version`; None when neither tells."""
    release = java.resolve().parent.parent / "release"
    if release.is_file():
        for line in release.read_text("utf-8", "replace").splitlines():
            if line.startswith("JAVA_VERSION="):
                return _major(line.split("=", 1)[1].strip('"'))
    try:
        done = subprocess.run([java, "-version"], capture_output=True, text=True, check=False, timeout=ASK_TIMEOUT_S)
    except (OSError, subprocess.TimeoutExpired):
        return None
    words = done.stderr.split('"')
    return _major(words[1]) if len(words) > 1 else None


def _major(version: str) -> int | None:
    """17 from `17.0.15`, 8 from `1.8.0_392`."""
    parts = version.split(".")
    number = parts[1] if parts[0] == "1" and len(parts) > 1 else parts[0]
    return int(number) if number.isdigit() else None
