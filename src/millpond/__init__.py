"""Millpond: SQL tables kept up to date from streams, files and databases, on Spark."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from millpond import redact
from millpond.errors import MillpondError

if TYPE_CHECKING:
    from millpond.app.app import App
    from millpond.app.queries import Result

__all__ = ["App", "MillpondError", "Result", "__version__"]

__version__ = "0.1.0"

# Tables are memory-mapped files: Arrow reports their buffers as unaligned on standard error and reads them anyway.
os.environ.setdefault("ACERO_ALIGNMENT_HANDLING", "ignore")


def _declare_options() -> None:
    # Importing a plug-in imports its module, which `import millpond` must not do.
    from millpond import registry

    registry.import_all()


redact.before_first_use(_declare_options)


def __getattr__(name: str) -> Any:
    # `millpond check` must not import pyspark, which takes a second: the app is imported on first use.
    if name == "App":
        from millpond.app.app import App

        return App
    if name == "Result":
        from millpond.app.queries import Result

        return Result
    raise AttributeError(f"module 'millpond' has no attribute {name!r}")
