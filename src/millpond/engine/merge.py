"""MERGE and INSERT ... ON CONFLICT without a stream: conditions are evaluated on the old table, then it is changed."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from sqlglot import exp

from millpond.contracts.table import WriteTable
from millpond.engine.row_sets import ROW_NUMBER, numbered, positions_among, swap_rows, with_columns
from millpond.engine.spark.transfer import Dataset
from millpond.engine.work import Work
from millpond.errors import TableError
from millpond.plan.change_model import EXCLUDED, MergeBranch, OnConflict
from millpond.plan.model import OneShot
from millpond.relational.codes import group_codes
from millpond.schema import Schema, type_name
from millpond.sql.nodes import Default
from millpond.sql.parser import parse_expression
from millpond.sql.statements import Merge, Statement, When

TARGET = "__target__"


@dataclass(frozen=True)
class Merging:
    """The parts of a MERGE: the source as FROM, the table under its alias, and the outputs of its query."""

    source: exp.Select
    target: exp.Expr
    alias: str
    on: exp.Expr
    outputs: tuple[exp.Expr, ...]

    @classmethod
    def of(cls, statement: Statement, query: exp.Query | None) -> Merging:
        assert isinstance(statement, Merge)
        assert isinstance(query, exp.Select)
        alias = (statement.alias or statement.table).text
        source = query.copy()
        outputs = tuple(e.unalias() for e in source.expressions)
        source.set("joins", [j for j in source.args["joins"] if j.this.alias_or_name.lower() != alias.lower()])
        on = source.args.pop("where").this
        return cls(source, exp.alias_(exp.to_table(TARGET), alias, table=True, quoted=True), alias, on, outputs)

    def holds(self, branch: MergeBranch, earlier: list[MergeBranch]) -> list[exp.Expr]:
        """The conditions for a branch to apply: its own is true, and none of the earlier branches' is."""
        taken = [
            exp.func("coalesce", self.outputs[b.condition].copy(), exp.false())
            for b in earlier
            if b.condition is not None
        ]
        own = [self.outputs[branch.condition].copy()] if branch.condition is not None else []
        return [exp.paren(condition) for condition in own] + [exp.not_(condition) for condition in taken]

    def query(self, when: When, columns: list[exp.Expr], conditions: list[exp.Expr]) -> exp.Select:
        """The rows that branches of a kind apply to."""
        number = exp.column(ROW_NUMBER, table=self.alias, quoted=True)
        if when is When.BY_SOURCE:
            inner = self._selecting(self.source, [exp.Literal.number(1)], [self.on])
            lone = exp.not_(exp.Exists(this=inner))
            return self._selecting(exp.select().from_(self.target.copy()), [number, *columns], [lone, *conditions])
        if when is When.NOT_MATCHED:
            inner = self._selecting(exp.select().from_(self.target.copy()), [exp.Literal.number(1)], [self.on])
            return self._selecting(self.source, columns, [exp.not_(exp.Exists(this=inner)), *conditions])
        joined = self.source.copy()
        joined.append("joins", exp.Join(this=self.target.copy(), kind="CROSS"))
        return self._selecting(joined, [number, *columns], [self.on, *conditions])

    def _selecting(self, query: exp.Select, columns: list[exp.Expr], conditions: list[exp.Expr]) -> exp.Select:
        made = query.copy()
        made.set("expressions", [column.copy() for column in columns])
        return made.where(*(exp.paren(c.copy()) for c in conditions))


def merge(work: Work, shot: OneShot) -> int:
    """Run a MERGE without a stream; returns the number of changed rows."""
    statement = shot.statement
    assert isinstance(statement, Merge)
    return merge_rows(work, work.table(statement.table.text), Merging.of(statement, shot.query), shot.branches)


def merge_rows(
    work: Work, table: WriteTable, parts: Merging, branches: tuple[MergeBranch, ...], batch: Dataset | None = None
) -> int:
    """Merge the source into a table; returns the number of changed rows. MP412 if two rows of the source would change
    the same row of the table."""
    rows = table.to_arrow()
    swapped: list[tuple[pa.ChunkedArray, pa.Table]] = []
    added: list[pa.Table] = []
    for number, branch in enumerate(branches):
        earlier = [b for b in branches[:number] if b.when is branch.when]
        query = _query(parts, branch, parts.holds(branch, earlier), table.schema)
        found = work.rows(query, batch, {TARGET: numbered(rows)})
        if branch.when is When.NOT_MATCHED:
            added.append(found)
        else:
            places = found[ROW_NUMBER]
            new = with_columns(rows.take(places), found.drop_columns([ROW_NUMBER]), table.schema.arrow())
            swapped.append((places, new if branch.values else new.slice(0, 0)))
    return _apply(table, rows, swapped, added)


def _query(parts: Merging, branch: MergeBranch, conditions: list[exp.Expr], schema: Schema) -> exp.Select:
    """The query of a branch: the numbers of the table's rows that it applies to, and the new values."""
    values = [(name, parts.outputs[n]) for name, n in branch.values]
    if branch.when is When.NOT_MATCHED:
        # A column that is left out of an insert gets its default.
        values = [(name, value) for name, value in values if not isinstance(value, Default)]
    columns = [exp.alias_(_cast(schema, name, value), name, quoted=True) for name, value in values]
    return parts.query(branch.when, columns, conditions)


def _cast(schema: Schema, name: str, value: exp.Expr) -> exp.Expr:
    """A value in the type of its column; a subquery as an output has an alias, which is removed."""
    made: exp.Expr = _default(schema, name) if isinstance(value, Default) else value.copy()
    if isinstance(made, exp.Subquery):
        made.set("alias", None)
    return exp.cast(made, type_name(schema[name].type), dialect="spark")


def _default(schema: Schema, name: str) -> exp.Expr:
    default = schema[name].default
    return parse_expression(default) if default is not None else exp.Null()


def _apply(
    table: WriteTable, rows: pa.Table, swapped: list[tuple[pa.ChunkedArray, pa.Table]], added: list[pa.Table]
) -> int:
    numbers = [place for places, _ in swapped for place in places.to_pylist()]
    _require_once(table, rows, numbers)
    changed = 0
    if numbers:
        new = pa.concat_tables([new for _, new in swapped])
        changed += swap_rows(table, rows, pa.chunked_array([pa.array(numbers, pa.int64())]), new)
    for found in added:
        changed += table.insert(found) if found.num_rows else 0
    return changed


def _require_once(table: WriteTable, rows: pa.Table, numbers: list[int]) -> None:
    values, counts = np.unique(np.array(numbers, np.int64), return_counts=True)
    twice = values[counts > 1]
    if len(twice):
        shown = _shown(table, rows, int(twice[0]))
        message = f"Two rows of the source would change the same row of '{table.name}' ({shown})."
        raise TableError("MP412", message, hint="Make ON match only one of them, or aggregate the source.")


def _shown(table: WriteTable, rows: pa.Table, number: int) -> str:
    row = rows.slice(number, 1).select(list(table.schema.key or table.schema.names)).to_pylist()[0]
    return ", ".join(f"{name} = {value!r}" for name, value in row.items())


def insert_or_change(work: Work, table: WriteTable, rows: pa.Table, conflict: OnConflict) -> int:
    """INSERT ... ON CONFLICT of whole rows; returns the number of changed rows. Of equal new keys, DO NOTHING inserts
    the first; with DO UPDATE they are MP412."""
    key = [table.schema[name].name for name in table.schema.key]
    _, firsts = group_codes(rows.select(key).columns, rows.num_rows)
    if len(firsts) < rows.num_rows:
        if conflict.assignments:
            other = np.setdiff1d(np.arange(rows.num_rows), firsts)
            message = f"Two of the new rows have the same key ({_shown(table, rows, int(other[0]))})."
            raise TableError("MP412", message, hint="Use each key once, or aggregate the rows in the query.")
        rows = rows.take(pa.array(firsts))
    there = table.lookup(rows.select(key))
    known = pc.is_in(
        pa.array(np.arange(rows.num_rows)), value_set=positions_among(rows, key, there.select(key)).cast("int64")
    )
    changed = _set(work, table, there, rows, conflict) if conflict.assignments and there.num_rows else 0
    fresh = rows.filter(pc.invert(known))
    return changed + (table.insert(fresh) if fresh.num_rows else 0)


def _set(work: Work, table: WriteTable, there: pa.Table, rows: pa.Table, conflict: OnConflict) -> int:
    """Change the existing rows by DO UPDATE."""
    own, new = exp.to_table(TARGET), exp.to_table(f"__{EXCLUDED}__")
    same = [
        exp.EQ(
            this=exp.column(name, table=table.name, quoted=True),
            expression=exp.column(name, table=EXCLUDED, quoted=True),
        )
        for name in table.schema.key
    ]
    values = [exp.alias_(_cast(table.schema, n, v), n, quoted=True) for n, v in conflict.assignments]
    query = exp.select(exp.column(ROW_NUMBER, table=table.name, quoted=True), *values)
    query = query.from_(exp.alias_(own, table.name, table=True, quoted=True))
    query = query.join(exp.alias_(new, EXCLUDED, table=True, quoted=True), on=exp.and_(*same), join_type="inner")
    query = query.where(conflict.where.copy()) if conflict.where is not None else query
    found = work.rows(query, given={TARGET: numbered(there), f"__{EXCLUDED}__": rows})
    if not found.num_rows:
        return 0
    changed = with_columns(there.take(found[ROW_NUMBER]), found.drop_columns([ROW_NUMBER]), table.schema.arrow())
    return table.upsert(changed)
