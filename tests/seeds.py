"""The seed of the random tests: another one in each run, printed, and given again by MILLPOND_SEED."""

from __future__ import annotations

import os
import random

VARIABLE = "MILLPOND_SEED"
# The workers of one run inherit it from the process that starts them, so that all collect the same tests.
FRESH = int(os.environ.setdefault(VARIABLE, str(random.SystemRandom().randrange(10**6))))


def replayed_by() -> str:
    """How to run the same random tests again."""
    return f"{VARIABLE}={FRESH} runs the same random tests again"
