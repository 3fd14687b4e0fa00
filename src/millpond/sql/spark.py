"""Query trees to the text that Spark runs."""

from __future__ import annotations

from sqlglot import ErrorLevel, exp

from millpond.errors import BindError
from millpond.sql.dialect import MILLPOND
from millpond.sql.functions import REFUSED_HINT, refusal


def render(node: exp.Expr) -> str:
    """The Spark SQL of a tree, names in backquotes where they need them; the tree is left as it was.

    MP219 for a function that is refused: what Python hands to a table as text passes no planner before this."""
    for call in node.find_all(exp.Anonymous):
        if refused := refusal(call):
            raise BindError("MP219", refused, hint=REFUSED_HINT)
    return MILLPOND.generate(node, copy=True, comments=False, unsupported_level=ErrorLevel.RAISE)
