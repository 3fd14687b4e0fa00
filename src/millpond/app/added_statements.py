"""Definitions that `app.execute` adds to an app: kept in its state directory and planned after those of its file."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from millpond.engine.state_directory import ADDED, amend_identity, identity_of
from millpond.errors import Problem
from millpond.sql.parser import parse_script
from millpond.sql.statements import CreateStream, CreateTable, CreateView, Drop

# Takes the place of a file name in the places of these statements.
FILE = "<added>"


@dataclass(frozen=True)
class Added:
    """A statement, and the name, in lower case, of the table or view that it defines or drops."""

    name: str
    sql: str

    @property
    def drops(self) -> bool:
        """Whether it confirms that a table is dropped: it is removed when that is done."""
        return self.sql.startswith("DROP")


def added_to(state: Path) -> tuple[Added, ...]:
    """The added statements of an app; none if there is no state directory."""
    return tuple(Added(found["name"], found["sql"]) for found in identity_of(state).get(ADDED, ()))


def keep(state: Path, added: Sequence[Added]) -> None:
    """Store the statements; called by the process that has locked the directory."""
    if tuple(added) != added_to(state):
        amend_identity(state, {ADDED: [{"name": found.name, "sql": found.sql} for found in added]})


def settle(state: Path, text: str, variables: Mapping[str, str]) -> None:
    """Remove the statements that the app's file has replaced, and those whose table was dropped."""
    keep(state, [found for found in beside(text, variables, added_to(state)) if not found.drops])


def beside(text: str, variables: Mapping[str, str], added: Sequence[Added]) -> tuple[Added, ...]:
    """The statements that remain valid with a file: names that it declares or drops itself belong to the file."""
    if not added:
        return ()
    script = parse_script(text, variables=variables)
    own = {s.name.key for s in script.statements if isinstance(s, CreateTable | CreateStream | CreateView | Drop)}
    own |= {name.lower() for _, name in script.unread}
    return tuple(found for found in added if found.name not in own)


def joined(text: str, added: Sequence[Added]) -> tuple[str, list[int]]:
    """A text with the statements appended, even if its last semicolon is missing, and the line of each."""
    lines: list[int] = []
    for found in added:
        text += "\n;\n"
        lines.append(text.count("\n") + 1)
        text += found.sql
    return text, lines


def placed(problem: Problem, lines: Sequence[int]) -> Problem:
    """A problem of a joined text, with its place in the added statement if it is in one."""
    if problem.place is None or not lines or problem.place.line < lines[0]:
        return problem
    first = lines[bisect_right(lines, problem.place.line) - 1]
    return replace(problem, place=replace(problem.place, file=FILE, line=problem.place.line - first + 1))


def explained(problem: Problem) -> Problem:
    """A problem at a start, with a hint for a statement that is not in the file."""
    if problem.place is None or problem.place.file != FILE:
        return problem
    hint = "It was added by app.execute; a DROP ... IF EXISTS of its name in the file removes it."
    return replace(problem, hint=f"{problem.hint} {hint}".strip())
