"""The columns found in sources, kept in the state directory.

A stream has the same at every start, and a topic or file that is empty or gone still has them. They are part of the
directory's identity, because a plan needs them before the store is opened.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping
from pathlib import Path

import pyarrow as pa

from millpond.contracts.source import Found, Mode
from millpond.plan.model import Plan
from millpond.registry import find
from millpond.runtime.keeping.state import COLUMNS, amend_identity, identity_of
from millpond.schema import Schema


def remember(state: Path, source: str, found: Found) -> None:
    """Keep what was found in a source."""
    assert found.columns is not None
    text = base64.b64encode(found.columns.arrow().serialize().to_pybytes()).decode()
    amend_identity(state, {COLUMNS: {**_entries(state), source: text}})


def recall(state: Path, source: str) -> Found | None:
    """What was found at an earlier start; None when nothing was."""
    text = _entries(state).get(source)
    return None if text is None else Found(Schema.from_arrow(pa.ipc.read_schema(pa.py_buffer(base64.b64decode(text)))))


def recalled(state: Path, plan: Plan) -> dict[str, Found]:
    """The columns of those local streams that were found to be others at an earlier start, by the ids of their sources:
    rows that came of them are in the tables, and what comes now must fit these."""
    local = [s for s in plan.sources if s.mode is Mode.APPEND and not s.declared and find("source", s.type).local]
    found = {source.spec.id: (source, recall(state, source.id)) for source in local}
    return {id_: known for id_, (source, known) in found.items() if known and known.columns != source.columns}


def _entries(state: Path) -> Mapping[str, str]:
    entries: Mapping[str, str] = identity_of(state).get(COLUMNS, {})
    return entries
