"""BEGIN ... COMMIT: which statements of a file stand in which transaction."""

from __future__ import annotations

from dataclasses import dataclass, replace

from millpond.sql.statements import Begin, Commit, Rollback, Statement


@dataclass(frozen=True)
class Block:
    """One BEGIN with the statements up to its end; `end` is None when it never ends."""

    number: int
    begin: Begin
    statements: tuple[Statement, ...] = ()
    end: Commit | Rollback | None = None

    @property
    def undone(self) -> bool:
        return isinstance(self.end, Rollback)


def blocks_of(statements: tuple[Statement, ...]) -> tuple[Block, ...]:
    """The transactions of a file in order; a BEGIN inside another one belongs to the outer."""
    done: list[Block] = []
    current: Block | None = None
    for statement in statements:
        if isinstance(statement, Begin):
            current = current or Block(len(done) + 1, statement)
        elif isinstance(statement, Commit | Rollback):
            if current is not None:
                done.append(replace(current, end=statement))
            current = None
        elif current is not None:
            current = replace(current, statements=(*current.statements, statement))
    return (*done, current) if current is not None else tuple(done)
