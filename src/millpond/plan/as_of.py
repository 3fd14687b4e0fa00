"""Reading a table as of a time or version: FOR SYSTEM_TIME AS OF, TIMESTAMP AS OF and VERSION AS OF.

The relation becomes the hidden table of the old rows. A time of the event is a condition of the join; a constant one
makes the relation a subquery.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pyarrow as pa
from sqlglot import exp

from millpond.plan.bound import Item, Scope
from millpond.plan.catalog import Relation
from millpond.plan.expression_types import type_of, with_type
from millpond.plan.history import keeps_no_rows
from millpond.plan.history_model import FROM, GONE, MOMENT, TO, VERSION
from millpond.schema import TIMESTAMP, TIMESTAMP_NTZ, Column, type_name

if TYPE_CHECKING:
    from millpond.plan.binder import Binder

_HIDDEN = (Column(FROM, TIMESTAMP), Column(TO, TIMESTAMP))
_TIMES = (TIMESTAMP, TIMESTAMP_NTZ, pa.date32(), pa.string(), pa.null())


def history_of(binder: Binder, relation: Relation, version: exp.Expr, label: str) -> Relation | None:
    """The relation of a table's old rows; None, with a finding, if it keeps none."""
    if relation.wrong:
        return None
    if relation.is_stream or relation.query is not None or relation.local:
        message = f"{label[:1].upper()}{label[1:]} has no past: only a table can be read as of a time or version."
        binder.findings.error("MP215", message, version, "Remove the clause, or store the rows in a table.")
        return None
    if not relation.history:
        message, hint = keeps_no_rows(relation.name)
        binder.findings.error("MP303", message, version, hint)
        return None
    return replace(relation, name=relation.history, hidden=_HIDDEN)


def is_constant(version: exp.Expr) -> bool:
    """Whether the time or version does not depend on a row."""
    return version.expression.find(exp.Column) is None


def constant_rows(binder: Binder, item: Item, version: exp.Expr) -> None:
    """Replace the item's table by a subquery of the rows of a constant time or version."""
    table, wanted = item.node, version.expression
    if item.columns is None:
        message = f"The columns of {item.label} are not known yet, so that it cannot be read as of a time or version."
        binder.findings.error("MP221", message, version, "Declare its columns.")
        return
    by_version = str(version.this).upper() == "VERSION"
    if by_version and not (isinstance(wanted, exp.Literal) and wanted.is_int):
        message = "VERSION AS OF requires a whole number."
        binder.findings.error("MP206", message, wanted, "SHOW CHANGES lists the versions: VERSION AS OF 41.")
        return
    bound = wanted if by_version else _as_time(binder, binder.bind_inside(wanted, Scope()), wanted)
    if bound is None:
        return
    assert isinstance(table, exp.Table)
    assert item.relation is not None
    inner = exp.Table(this=exp.to_identifier(item.relation.name, quoted=True))
    name = item.relation.name
    first, last = (VERSION, GONE) if by_version else (FROM, TO)
    inner.set("alias", exp.TableAlias(this=exp.to_identifier(name, quoted=True)))
    inner.meta[MOMENT] = ("version" if by_version else "time", bound.copy())
    columns = [
        exp.alias_(exp.column(own.name, table=name, quoted=True), shown.name, quoted=True)
        for own, shown in zip(_own_columns(item), item.columns, strict=True)
    ]
    rows = exp.Select(expressions=columns).from_(inner, copy=False)
    rows.where(_held_at(name, first, last, bound), copy=False)
    derived = exp.Subquery(this=rows, alias=exp.TableAlias(this=exp.to_identifier(item.alias, quoted=True)))
    for part in ("joins", "laterals", "pivots", "sample"):
        derived.set(part, table.args.get(part))
    table.replace(derived)
    item.node = derived


def _own_columns(item: Item) -> tuple[Column, ...]:
    assert item.relation is not None
    assert item.relation.columns is not None
    return item.relation.columns.columns


def moment_condition(binder: Binder, item: Item, version: exp.Expr, scope: Scope) -> exp.Expr | None:
    """The bound condition that a row of the history was valid at a time of the event."""
    if str(version.this).upper() == "VERSION":
        message = "VERSION AS OF requires a whole number."
        hint = "The row at the time of an event is read with FOR SYSTEM_TIME AS OF t.ts."
        binder.findings.error("MP206", message, version.expression, hint)
        return None
    others = Scope(scope.outer, [other for other in scope.items if other is not item])
    moment = _as_time(binder, binder.bind_inside(version.expression, others), version.expression)
    return None if moment is None else _held_at(item.alias, FROM, TO, moment)


def _as_time(binder: Binder, moment: exp.Expr, written: exp.Expr) -> exp.Expr | None:
    found = type_of(moment)
    if found == TIMESTAMP:
        return moment
    if found is not None and found not in _TIMES:
        message = f"AS OF requires a TIMESTAMP, but this is {type_name(found)}."
        binder.findings.error("MP206", message, written, "Use the event's time, such as t.ts.")
        return None
    return exp.cast(moment, "timestamp", dialect="spark")


def _held_at(alias: str, first: str, last: str, moment: exp.Expr) -> exp.Expr:
    def column(name: str) -> exp.Expr:
        return with_type(exp.column(name, table=alias, quoted=True), pa.int64() if first == VERSION else TIMESTAMP)

    ended = exp.Or(
        this=exp.Is(this=column(last), expression=exp.null()),
        expression=exp.LT(this=moment.copy(), expression=column(last)),
    )
    return exp.And(this=exp.LTE(this=column(first), expression=moment.copy()), expression=exp.Paren(this=ended))
