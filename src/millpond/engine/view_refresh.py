"""Refreshes views in the transaction that changes their tables: recomputes the affected parts, or the whole view."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from sqlglot import exp

from millpond.contracts.table import WriteTable
from millpond.engine.row_sets import (
    among,
    conform,
    joined_positions,
    positions,
    positions_among,
    rows_with,
    unique_rows,
)
from millpond.errors import ConstraintError
from millpond.plan.bound import rows_of
from millpond.plan.model import TablePlan
from millpond.plan.view_refresh import Bond, RefreshPlan, reach
from millpond.tables.hashing import equal_rows

if TYPE_CHECKING:
    from millpond.engine.work import Work

# The prefix of the relations with the selected rows of a table.
PART = "__part_"
# If more than this share of a view is affected, recomputing the whole view is faster.
TOUCHED_MAX = 0.5
ROWS_FEW = 1_000

# The outputs that identify parts, and the values of the affected parts.
Touched = dict[tuple[str, ...], pa.Table]


def follow(work: Work, view: TablePlan) -> int:
    """Refresh a view for the changes of this transaction; returns the number of changed rows."""
    target = work.table(view.name)
    touched = _touched(work, view, target)
    if touched is None:
        return compute(work, view)
    with _placed(view):
        return sum(_renew(work, view, target, rows) for rows in touched.values())


def compute(work: Work, view: TablePlan) -> int:
    """Recompute a whole view; returns the number of changed rows."""
    assert view.query is not None
    target = work.table(view.name)
    with _placed(view):
        return target.replace(conform(_answer(work, view.query, {}), target.schema))


@contextmanager
def _placed(view: TablePlan) -> Iterator[None]:
    """Errors inside get the place of the view: the statement that changed its tables is not wrong."""
    try:
        yield
    except ConstraintError as error:
        raise error.at(view.place) from error


def _answer(work: Work, query: exp.Query, picked: Mapping[str, pa.Table]) -> pa.Table:
    """The rows of a view's query over the selected rows of some tables, by alias, and all rows of the others."""
    names = ", ".join(sorted(picked))
    over = work.cache.once(f"picked {names}", query, lambda: _over(query, picked))
    return work.rows(over, given={PART + alias: rows for alias, rows in picked.items()})


def _over(query: exp.Query, picked: Mapping[str, pa.Table]) -> exp.Query:
    """The query with the tables whose rows were selected replaced by relations of those rows."""
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
    query = rows_of(query)
    found = [query.args["from_"].this] if query.args.get("from_") is not None else []
    found += [join.this for join in query.args.get("joins") or ()]
    return [node for node in found if isinstance(node, exp.Table)]


def _touched(work: Work, view: TablePlan, target: WriteTable) -> Touched | None:
    """The parts that changed rows of any table affect; None if the whole view must be recomputed."""
    plan = view.follow
    changed = {a.table.lower() for a in view.reads} & work.changed
    if not changed:
        return {}
    if not plan.part_columns or changed & set(plan.full):
        return None
    found: Touched = {}
    for given in plan.inputs:
        if given.table.lower() in changed:
            part_columns = plan.part_columns_from(given.alias)
            outputs = tuple(part.output for part in part_columns)
            rows = _values_of_parts(work, plan, given.alias)
            found[outputs] = unique_rows(pa.concat_tables([found[outputs], rows])) if outputs in found else rows
    limit = max(ROWS_FEW, int(len(target) * TOUCHED_MAX))
    return None if sum(rows.num_rows for rows in found.values()) > limit else found


def _values_of_parts(work: Work, plan: RefreshPlan, alias: str) -> pa.Table:
    """The values of the part columns, by the names of the view's columns, of the parts that changed rows of a table
    affect: the old and new rows, joined with current rows of the other tables and with those that this transaction has
    removed."""
    tables = {i.alias: i.table for i in plan.inputs}
    part_columns = plan.part_columns_from(alias)
    change = work.tx.changes(tables[alias])
    rows = _named(pa.concat_tables([change.removed, change.added]), alias)
    for other, bond in _way(plan, alias, {part.alias for part in part_columns}):
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
    names = {part.output: _column(rows, part.alias, part.column).column(0) for part in part_columns}
    return unique_rows(pa.table(names))


def _way(plan: RefreshPlan, start: str, wanted: set[str]) -> list[tuple[str, Bond]]:
    """The tables on the path to the wanted ones, in order."""
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
    """Recompute the affected parts, and replace their rows in the view."""
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
    """Replace rows by key; equal rows are not written, so that they do not appear in CHANGES. A duplicate key is an
    error."""
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
    """The rows of the tables that can contribute to the affected parts, by alias: found by the part columns, then by
    equality with rows found before. A table that cannot be reached in this way is not included, and all its rows are
    used."""
    tables = {i.alias: work.table(i.table) for i in plan.inputs}
    part_columns = [part for part in plan.part_columns if part.output in touched.column_names]
    found: dict[str, pa.Table] = {}
    for alias in dict.fromkeys(part.alias for part in part_columns):
        here = [part for part in part_columns if part.alias == alias]
        values = unique_rows(touched.select([part.output for part in here]))
        found[alias] = rows_with(tables[alias], [part.column for part in here], values)
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
