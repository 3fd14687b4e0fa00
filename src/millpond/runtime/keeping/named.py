"""Views without rows of their own, in the ledger: queries know them after the app has stopped, too."""

from __future__ import annotations

from typing import Any

from millpond.contracts.table import Store, Transaction
from millpond.plan.model import NamedQuery, Plan
from millpond.runtime.keeping.ledger import NAMED


def views_of(store: Store) -> dict[str, dict[str, Any]]:
    """Name, text and origin of each, by name in lower case."""
    return {key.removeprefix(NAMED): found for key, found in store.items(NAMED).items()}


def put_views(tx: Transaction, store: Store, plan: Plan) -> None:
    """Called at the start: the views of the file, in the place of those that it had."""
    wanted = {view.name.lower(): view for view in plan.views if view.text}
    for name, found in views_of(store).items():
        if found["file"] and name not in wanted:
            tx.put(NAMED + name, None)
    for view in wanted.values():
        put_view(tx, view, of_file=True)


def put_view(tx: Transaction, view: NamedQuery, *, of_file: bool) -> None:
    """Remember a view."""
    tx.put(NAMED + view.name.lower(), {"name": view.name, "text": view.text, "file": of_file})
