"""Did you mean: the nearest of the names there are."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches


def nearest(name: str, names: Iterable[str]) -> str | None:
    """The name most like `name`, or None when none is near."""
    by_key = {n.lower(): n for n in names}
    found = get_close_matches(name.lower(), list(by_key), n=1, cutoff=0.6)
    return by_key[found[0]] if found else None


def did_you_mean(name: str, names: Iterable[str]) -> str:
    """A sentence for a hint, or nothing: `Did you mean 'users'?`"""
    found = nearest(name, names)
    return f"Did you mean '{found}'?" if found else ""
