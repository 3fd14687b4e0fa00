"""The columns found in sources on the network, kept in the state: a topic that is empty at the next start has them."""

from __future__ import annotations

import base64

import pyarrow as pa

from millpond.contracts.source import Found
from millpond.contracts.table import Store
from millpond.schema import Schema

PREFIX = "columns "


def remember(store: Store, source: str, found: Found) -> None:
    """Keep what was found; tables are made of it, so it stays as it is."""
    assert found.columns is not None
    text = base64.b64encode(found.columns.arrow().serialize().to_pybytes()).decode()
    with store.begin() as tx:
        tx.put(PREFIX + source, text)
        tx.commit()


def recall(store: Store, source: str) -> Found | None:
    """What was found at an earlier start; None when nothing was."""
    text = store.get(PREFIX + source)
    if text is None:
        return None
    return Found(Schema.from_arrow(pa.ipc.read_schema(pa.py_buffer(base64.b64decode(text)))))
