"""Views that follow their tables: the parts that a transaction's changes touch are computed again, or all of it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from sqlglot import exp

from millpond.contracts.table import WriteTable
from millpond.plan.model import TablePlan
from millpond.plan.refresh import Bond, RefreshPlan, reach
from millpond.runtime.aggregates.aggregate import positions
from millpond.runtime.changing.row_sets import among, conform, joined_positions, positions_among, rows_with, unique_rows
from millpond.tables.hashing import equal_rows

if TYPE_CHECKING:
    from millpond.runtime.flows.work import Work

# The name under which Spark reads what was picked of a table.
PART = "__part_"
# Above this share of a view its parts are not worth telling apart.
TOUCHED_MAX = 0.5
ROWS_FEW = 1_000

# Which outputs tell parts apart, and the values of those that were touched.
Touched = dict[tuple[str, ...], pa.Table]


def follow(work: Work, view: TablePlan) -> int:
    """Bring a view up to date with what this transaction has changed; returns the rows changed."""
    target = work.table(view.name)
    touched = _touched(work, view, target)
    if touched is None:
        return compute(work, view)
    return sum(_renew(work, view, target, rows) for rows in touched.values())


def compute(work: Work, view: TablePlan) -> int:
    """Compute all of a view; returns the rows changed."""
    assert view.query is not None
    target = work.table(view.name)
    return target.replace(conform(_answer(work, view.query, {}), target.schema))


def _answer(work: Work, query: exp.Query, picked: Mapping[str, pa.Table]) -> pa.Table:
    """A view's query, over the rows picked of some of its tables, by alias, and all rows of the others."""
    names = ", ".join(sorted(picked))
    over = work.memory.once(f"picked {names}", query, lambda: _over(query, picked))
    return work.rows(over, given={PART + alias: rows for alias, rows in picked.items()})


def _over(query: exp.Query, picked: Mapping[str, pa.Table]) -> exp.Query:
    """The query with relations of their own in the place of the tables that were picked from."""
    over = query.copy()
    for table in _sources(over):
        alias = table.alias_or_name
        if alias.lower() in picked:
            table.set("this", exp.to_identifier(PART + alias.lower(), quoted=True))
            table.set("alias", exp.TableAlias(this=exp.to_identifier(alias, quoted=True)))
    return over


def _sources(query: exp.Query) -> list[exp.Table]:
    """The tables in FROM and JOIN of the query itself."""
    if not isinstance(query, exp.Select):
        return []
    found = [query.args["from_"].this] if query.args.get("from_") is not None else []
    found += [join.this for join in query.args.get("joins") or ()]
    return [node for node in found if isinstance(node, exp.Table)]


def _touched(work: Work, view: TablePlan, target: WriteTable) -> Touched | None:
    """The parts that changed rows of any table touch; None when all of the view must be computed."""
    plan = view.follow
    changed = {a.table.lower() for a in view.reads} & work.changed
    if not changed:
        return {}
    if not plan.marks or changed & set(plan.full):
        return None
    found: Touched = {}
    for given in plan.inputs:
        if given.table.lower() in changed:
            marks = plan.marks_from(given.alias)
            outputs = tuple(mark.output for mark in marks)
            rows = _marks_of(work, plan, given.alias)
            found[outputs] = unique_rows(pa.concat_tables([found[outputs], rows])) if outputs in found else rows
    limit = max(ROWS_FEW, int(len(target) * TOUCHED_MAX))
    return None if sum(rows.num_rows for rows in found.values()) > limit else found


def _marks_of(work: Work, plan: RefreshPlan, alias: str) -> pa.Table:
    """The marks, under the names of the view's columns, that changed rows of a table lead to: those rows as they were
    and as they are, joined with rows that are in the other tables now or were when the transaction began."""
    tables = {i.alias: i.table for i in plan.inputs}
    marks = plan.marks_from(alias)
    change = work.tx.changes(tables[alias])
    rows = _named(pa.concat_tables([change.removed, change.added]), alias)
    for other, bond in _way(plan, alias, {mark.alias for mark in marks}):
        across = bond.across(other)
        assert across is not None
        column, (here, own) = across
        keys = unique_rows(_column(rows, here, own))
        partners = rows_with(work.table(tables[other]), [column], keys)
        if tables[other].lower() in work.changed:
            partners = pa.concat_tables([partners, work.tx.changes(tables[other]).removed])
        partners = _named(partners, other)
        left, right = joined_positions(_column(rows, here, own), _column(partners, other, column))
        one, two = rows.take(left), partners.take(right)
        rows = pa.table([*one.columns, *two.columns], names=[*one.column_names, *two.column_names])
    names = {mark.output: _column(rows, mark.alias, mark.column).column(0) for mark in marks}
    return unique_rows(pa.table(names))


def _way(plan: RefreshPlan, start: str, wanted: set[str]) -> list[tuple[str, Bond]]:
    """The tables to go through, in order, to reach those that are wanted."""
    reached = reach(plan, start)
    needed: set[str] = set()
    for alias in wanted:
        here = alias
        while (bond := reached[here]) is not None:
            needed.add(here)
            across = bond.across(here)
            assert across is not None
            here = across[1][0]
    return [(alias, bond) for alias, bond in reached.items() if bond is not None and alias in needed]


def _named(rows: pa.Table, alias: str) -> pa.Table:
    return rows.rename_columns([f"{alias}.{name}".lower() for name in rows.column_names])


def _column(rows: pa.Table, alias: str, name: str) -> pa.Table:
    return rows.select([f"{alias}.{name}".lower()])


def _renew(work: Work, view: TablePlan, target: WriteTable, touched: pa.Table) -> int:
    """Compute the touched parts and put them in the place of what the view holds of them."""
    assert view.query is not None
    if not touched.num_rows:
        return 0
    outputs = touched.column_names
    picked = _picked(work, view.follow, touched)
    new = among(conform(_answer(work, view.query, picked), target.schema), outputs, touched)
    if target.schema.key:
        return _replace_by_key(target, rows_with(target, outputs, touched), new)
    rows = target.to_arrow()
    gone = positions_among(rows, outputs, touched)
    rest = pc.invert(pc.is_in(pa.array(range(rows.num_rows), gone.type), value_set=gone))
    return target.replace(pa.concat_tables([rows.filter(rest), new.cast(rows.schema)]))


def _replace_by_key(target: WriteTable, old: pa.Table, new: pa.Table) -> int:
    """Rows that are as they were stay untouched; two rows of one key are an error."""
    key = [target.schema[name].name for name in target.schema.key]
    where = pc.fill_null(positions(new.select(key), old.select(key)), -1).to_numpy(zero_copy_only=False)
    known = np.flatnonzero(where >= 0)
    before, after = old.take(pa.array(where[known])), new.take(pa.array(known))
    same = equal_rows([c.combine_chunks() for c in before.columns], [c.combine_chunks() for c in after.columns])
    gone = np.setdiff1d(np.arange(old.num_rows), where[known[same]])
    different = np.setdiff1d(np.arange(new.num_rows), known[same])
    if len(gone):
        target.delete(keys=old.take(pa.array(gone)).select(key))
    if len(different):
        target.insert(new.take(pa.array(different)))
    return max(len(gone), len(different))


def _picked(work: Work, plan: RefreshPlan, touched: pa.Table) -> dict[str, pa.Table]:
    """The rows of the tables that can be in the touched parts, by alias: found by the marks, then by equality with
    rows that were found. A table that nothing leads to is not among them: all its rows count."""
    tables = {i.alias: work.table(i.table) for i in plan.inputs}
    marks = [mark for mark in plan.marks if mark.output in touched.column_names]
    found: dict[str, pa.Table] = {}
    for alias in dict.fromkeys(mark.alias for mark in marks):
        here = [mark for mark in marks if mark.alias == alias]
        values = unique_rows(touched.select([mark.output for mark in here]))
        found[alias] = rows_with(tables[alias], [mark.column for mark in here], values)
    waiting = list(found)
    while waiting:
        rows_of = waiting.pop(0)
        for bond in plan.bonds:
            across = bond.across(rows_of)
            if across is None or across[1][0] in found or bond.optional not in (None, across[1][0]):
                continue
            own, (other, column) = across
            keys = found[rows_of].select([tables[rows_of].schema[own].name])
            found[other] = rows_with(tables[other], [column], unique_rows(keys).drop_null())
            waiting.append(other)
    return found
