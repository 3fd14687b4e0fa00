"""How each table reaches Spark, and why."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from sqlglot import exp

from millpond.plan.bound import BoundQuery
from millpond.plan.model import Access, AccessKind

HINTS = {"lookup": AccessKind.LOOKUP, "snapshot": AccessKind.SNAPSHOT}


def choose_access(bound: BoundQuery, asked: Mapping[str, AccessKind] | None = None) -> tuple[Access, ...]:
    """How a query reads each of its tables. Every table is a snapshot for now; a choice by key equality goes here."""
    return tuple(_snapshot(name, (asked or {}).get(name.lower())) for name in bound.tables)


def _snapshot(name: str, asked: AccessKind | None) -> Access:
    if asked is AccessKind.LOOKUP:
        return Access(name, AccessKind.SNAPSHOT, "LOOKUP was asked for, but this version hands over whole tables")
    if asked is AccessKind.SNAPSHOT:
        return Access(name, AccessKind.SNAPSHOT, "asked for by the hint SNAPSHOT")
    return Access(name, AccessKind.SNAPSHOT, "the whole table, once per version; lookups by key are not there yet")


def take_hints(bound: BoundQuery) -> tuple[dict[str, AccessKind], list[tuple[exp.Expr, str]]]:
    """The LOOKUP and SNAPSHOT hints of a query, taken out of it: table to kind, and those that name no table."""
    asked: dict[str, AccessKind] = {}
    wrong: list[tuple[exp.Expr, str]] = []
    for select in bound.selects:
        hint = select.node.args.get("hint")
        if hint is None:
            continue
        for call in list(hint.expressions):
            kind = HINTS.get(call.name.lower())
            if kind is None:
                continue
            call.pop()
            for name in call.expressions:
                item = select.scope.item(name.name)
                if item is None or item.relation is None or item.relation.is_stream:
                    wrong.append((name, call.name.upper()))
                else:
                    asked[item.relation.name.lower()] = kind
        if not hint.expressions:
            select.node.set("hint", None)
    return asked, wrong


def tables_read(accesses: Iterable[Access]) -> tuple[str, ...]:
    return tuple(a.table for a in accesses)
