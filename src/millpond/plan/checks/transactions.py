"""Check: transactions are closed and not nested, with either one-shot statements or those of one stream."""

from __future__ import annotations

from collections.abc import Iterator

from millpond.errors import Problem
from millpond.plan.checks.subject import Subject
from millpond.plan.one_shots import Block, blocks_of
from millpond.sql.statements import Begin, Commit, Delete, Insert, Merge, Rollback, Statement, Update, Upsert

CHANGES = (Insert, Upsert, Update, Delete, Merge)


def check(subject: Subject) -> Iterator[Problem]:
    yield from _pairing(subject)
    for block in blocks_of(subject.statements):
        yield from _content(subject, block)


def _pairing(subject: Subject) -> Iterator[Problem]:
    opened: Statement | None = None
    for statement in subject.statements:
        if isinstance(statement, Begin):
            if opened is not None:
                hint = "End the previous one first: COMMIT;"
                yield subject.problem("MP217", "A transaction is already open.", statement.place, hint)
            opened = opened or statement
        elif isinstance(statement, Commit | Rollback):
            if opened is None:
                word = "COMMIT" if isinstance(statement, Commit) else "ROLLBACK"
                yield subject.problem("MP217", f"{word} has no matching BEGIN.", statement.place, "Add BEGIN;")
            opened = None
    if opened is not None:
        yield subject.problem("MP217", "This transaction never ends.", opened.place, "Add COMMIT;")


def _content(subject: Subject, block: Block) -> Iterator[Problem]:
    drivers = {id(p.statement): p.drivers for p in subject.planned}
    kinds: set[tuple[str, ...]] = set()
    for statement in block.statements:
        if not isinstance(statement, CHANGES):
            message = "Only INSERT, UPSERT, UPDATE, DELETE and MERGE are allowed in a transaction."
            yield subject.problem("MP217", message, statement.place, "Write it before BEGIN or after COMMIT.")
            continue
        kinds.add(drivers.get(id(statement), ()))
        if len(kinds) > 1:
            message = (
                "A transaction cannot combine one-shot statements with those of a stream, or statements of two streams."
            )
            yield subject.problem("MP217", message, statement.place, "Write it in a separate transaction.")
            break
    if block.undone:
        message = "This transaction ends with ROLLBACK, so it changes nothing."
        yield subject.warning("MP223", message, block.begin.place, "End it with COMMIT if its changes are intended.")
