"""Where the trading example lies: in the source tree, or in the installed package."""

from pathlib import Path

import millpond


def folder() -> Path:
    """The folder of trading.sql and its CSV files; it may not be writable, so run it with a state and OUT elsewhere."""
    # In the source tree this is a link to examples/ at the top; a wheel carries the files themselves.
    return Path(millpond.__file__).resolve().parent / "examples" / "trading"
