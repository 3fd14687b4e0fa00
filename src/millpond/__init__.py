"""Millpond: SQL tables kept up to date from streams, files and databases, on Spark."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from millpond.errors import MillpondError

if TYPE_CHECKING:
    from millpond.runtime.app import App
    from millpond.runtime.result import Result

__all__ = ["App", "MillpondError", "Result", "__version__"]

__version__ = "0.1.0"

# Tables lie in memory-mapped files: Arrow's engine warns of their buffers on standard error and reads them anyway.
os.environ.setdefault("ACERO_ALIGNMENT_HANDLING", "ignore")


def __getattr__(name: str) -> Any:
    # The command line must answer `check` without importing pyspark: the app is imported when it is first named.
    if name == "App":
        from millpond.runtime.app import App

        return App
    if name == "Result":
        from millpond.runtime.result import Result

        return Result
    raise AttributeError(f"module 'millpond' has no attribute {name!r}")
