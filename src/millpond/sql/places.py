"""Where a node of a query stands in the text."""

from __future__ import annotations

from sqlglot import exp

from millpond.errors import Place
from millpond.sql.text import SourceText


def place_of(node: exp.Expr, source: SourceText) -> Place:
    """The place of the node; of what it is made of, or what it is part of, when it has none of its own."""
    span = _span(node)
    around: exp.Expr | None = node
    while span is None and around is not None:
        span = _span(around)
        around = around.parent
    return source.place(*span) if span else source.place(0)


def _span(node: exp.Expr) -> tuple[int, int] | None:
    """From the first to the last character that the node or a part of it remembers."""
    own = [n.meta for n in node.walk() if "start" in n.meta and "end" in n.meta]
    if not own:
        return None
    return min(meta["start"] for meta in own), max(meta["end"] for meta in own) + 1
