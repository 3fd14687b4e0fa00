"""Which engine evaluates: Arrow on the driver where it can, unless MILLPOND_ENGINE=spark says that Spark must."""

from __future__ import annotations

import os

ENGINE = "MILLPOND_ENGINE"


def spark_only() -> bool:
    """Whether nothing may be evaluated by Arrow: what it and Spark give must be the same, and this shows it."""
    return os.environ.get(ENGINE, "").lower() == "spark"
