"""Query trees to the text that Spark runs."""

from __future__ import annotations

from sqlglot import ErrorLevel, exp

from millpond.sql.dialect import MILLPOND


def render(node: exp.Expr) -> str:
    """The Spark SQL of a tree, names in backquotes where they need them; the tree is left as it was."""
    return MILLPOND.generate(node, copy=True, comments=False, unsupported_level=ErrorLevel.RAISE)
