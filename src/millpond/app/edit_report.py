"""The report of what a changed file does to a state directory: as text for people, as JSON for programs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from millpond.app.edits import Difference, EditKind, FlowChange, ShotChange, TableChange, difference
from millpond.contracts.table import Store
from millpond.engine.ledger import finish_edit, require_together
from millpond.engine.state_directory import StateFolder, open_existing
from millpond.errors import Problem, StateError
from millpond.plan.model import Plan
from millpond.tables.store import open_store


@dataclass(frozen=True)
class Edit:
    """A difference and the state directory that it applies to."""

    difference: Difference
    state: Path
    # MP809 for each flow that cannot continue, independent of the file.
    obstacles: tuple[Problem, ...] = ()

    def as_text(self) -> str:
        return difference_text(self.difference, self.state, self.obstacles)

    def as_json(self) -> dict[str, Any]:
        return difference_json(self.difference, self.state) | {"obstacles": [p.as_json() for p in self.obstacles]}


def _obstacles(plan: Plan, store: Store, folder: StateFolder) -> Iterator[Problem]:
    for flow in plan.flows:
        try:
            require_together(flow, store, folder.flow(flow.id))
        except StateError as error:
            yield error.problems[0]


def read_edit(plan: Plan, state: Path) -> Edit:
    """What a plan would change in a state directory; MP807 if there is none, MP801 while an app uses it."""
    folder = open_existing(state, plan.name)
    try:
        store = open_store(folder.store)
        try:
            finish_edit(store)
            return Edit(difference(plan, store), state, tuple(_obstacles(plan, store, folder)))
        finally:
            store.close()
    finally:
        folder.close()


def difference_text(found: Difference, state: Path, obstacles: Sequence[Problem] = ()) -> str:
    """A section each for tables, flows, statements and notes; hidden tables only if they are lost."""
    tables = [_table(t) for t in found.tables if not t.hidden or t.loses]
    stuck = {flow.name for flow in found.flows if any(f"'{flow.name}' cannot continue" in p.message for p in obstacles)}
    flows = [line for flow in found.flows for line in _flow(flow, stuck=flow.name in stuck)]
    sections = (
        ("Tables", tables),
        ("Flows", flows),
        ("Statements without a stream", [_shot(s) for s in found.one_shots]),
        ("Notes", [line for p in (*obstacles, *found.losses, *found.warnings) for line in str(p).splitlines()]),
    )
    parts = [f"{title}\n" + "\n".join(f"  {line}" for line in lines) for title, lines in sections if lines]
    return "\n\n".join([f"Against the state in {state}", *parts])


def _table(table: TableChange) -> str:
    rows = "" if table.change is EditKind.NEW else f", {table.rows} row{'s' * (table.rows != 1)}"
    descriptions = {
        EditKind.REBUILT: f"rebuilt from its definition{rows} now",
        EditKind.REPLACED: f"replaced by its CREATE OR REPLACE, or DROP and CREATE{rows} now",
        EditKind.CHANGED: f"changed: it starts empty{rows} now",
    }
    if table.change is EditKind.RESHAPED:
        moves = f"; moved {table.moves}" if table.moves else ""
        descriptions[EditKind.RESHAPED] = f"kept{rows}{moves}{_columns(table)}"
    again = f"; recomputed from the beginning of {table.again}" if table.again else ""
    return f"{table.name}  {descriptions.get(table.change, f'{table.change}{rows}')}{again}" + (
        ", LOST" if table.loses and not (table.moves and not table.removed) else ""
    )


def _columns(table: TableChange) -> str:
    """The added and removed columns."""
    from_now = ", counted from now on" if table.counts else ", with their default or NULL in existing rows"
    added = f"; added: {', '.join(table.added)}{'' if table.again else from_now}" if table.added else ""
    return added + (f"; removed: {', '.join(table.removed)}" if table.removed else "")


def _flow(flow: FlowChange, *, stuck: bool) -> Iterator[str]:
    where = "from the start of its source" if flow.batch < 0 else f"after batch {flow.batch}"
    descriptions = {
        EditKind.NEW: "new, reads from the start of its source",
        EditKind.DROPPED: "dropped; its position is kept",
    }
    goes_on = f"cannot continue {where}" if stuck else f"continues {where}"
    yield f"{flow.name}  {descriptions.get(flow.change, f'{flow.change}, {goes_on}')}"
    yield from (f"  added: line {step.place.line}, {step.kind} {step.target}" for step in flow.added)
    yield from (f"  removed: {called}" for called in flow.removed)


def _shot(shot: ShotChange) -> str:
    when = "runs at each start" if shot.repeat else "has run" if shot.has_run else "will run"
    return f"line {shot.line}: {shot.kind} {when}"


def difference_json(found: Difference, state: Path) -> dict[str, Any]:
    """The difference for programs."""
    return {
        "state": str(state),
        "tables": [
            {"name": t.name, "change": str(t.change), "rows": t.rows, "loses": t.loses, "hidden": t.hidden}
            | ({"added": list(t.added), "removed": list(t.removed)} if t.change is EditKind.RESHAPED else {})
            | ({"again": t.again} if t.again else {})
            for t in found.tables
        ],
        "flows": [
            {
                "name": f.name,
                "change": str(f.change),
                "batch": f.batch,
                "added": [s.place.line for s in f.added],
                "removed": list(f.removed),
            }
            for f in found.flows
        ],
        "one_shots": [
            {"line": s.line, "kind": s.kind.lower(), "has_run": s.has_run, "repeat": s.repeat} for s in found.one_shots
        ],
        "losses": [p.as_json() for p in found.losses],
        "warnings": [p.as_json() for p in found.warnings],
    }
