"""Queries that only pick columns of one source: what they yield follows from each row alone."""

from __future__ import annotations

from sqlglot import exp


def is_plain(query: exp.Query) -> bool:
    """Whether a query only picks columns; all of them where they are not known yet."""
    others = [name for name, value in query.args.items() if value and name not in ("expressions", "from_", "kind")]
    return bool(plain_columns(query)) or (not others and query.is_star and len(query.selects) == 1)


def plain_columns(query: exp.Query) -> dict[str, str]:
    """What a query that only picks columns yields: output name -> column of its source; none for any other query."""
    if not isinstance(query, exp.Select):
        return {}
    others = [name for name, value in query.args.items() if value and name not in ("expressions", "from_", "kind")]
    found = {}
    for projection in query.expressions:
        inner = projection.this if isinstance(projection, exp.Alias) else projection
        if not isinstance(inner, exp.Column):
            return {}
        found[projection.alias_or_name] = inner.name
    return {} if others else found
