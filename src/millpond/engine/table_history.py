"""The old rows of a table with 'history': each change ends the validity of a row, and begins that of the next one.

Refreshed like a view, in the transaction that changes the table. Refreshing again in the same transaction starts from
the rows before it, so that the result depends only on the transaction's changes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from sqlglot import exp

from millpond.contracts.table import Transaction, WriteTable
from millpond.engine.row_sets import key_codes, positions, positions_among, rows_with, unique_rows
from millpond.errors import TableError
from millpond.expressions.compile import compile_expression
from millpond.expressions.failures import NotCompilable
from millpond.plan.expression_types import as_expression
from millpond.plan.history_model import (
    ADDED,
    AT,
    ENDED,
    FROM,
    GONE,
    GONE_AT,
    HISTORY,
    MOMENT,
    OPEN,
    TO,
    VERSION,
    HistoryPlan,
)
from millpond.plan.model import BESIDE, TablePlan
from millpond.relational.moments import moment_of
from millpond.schema import TIMESTAMP, Schema
from millpond.sql.conditions import all_of
from millpond.tables.hashing import equal_rows

if TYPE_CHECKING:
    from millpond.engine.spark.transfer import Dataset
    from millpond.engine.work import Work

# Ledger key prefix, followed by the name of the hidden table: what is no longer available, and the newest time.
HELD = "history:"
LISTS = "SHOW CHANGES lists the versions."


@dataclass(frozen=True)
class Held:
    """The beginning of a history: versions below `version` and times below `time_us` are not complete; `newest_us` is
    the newest time that the table has seen."""

    version: int
    time_us: int | None
    newest_us: int

    @classmethod
    def of(cls, found: dict[str, Any] | None) -> Held | None:
        return None if found is None else cls(found["version"], found["time"], found["newest"])

    def as_json(self) -> dict[str, Any]:
        return {"version": self.version, "time": self.time_us, "newest": self.newest_us}


@dataclass(frozen=True)
class _Moment:
    """One transaction: the version that it makes, and its time."""

    version: int
    now: pa.Scalar
    changed: bool


def keep_history(work: Work, view: TablePlan, *, whole: bool) -> int:
    """Add the changes of this transaction to a history; `whole` compares it with all rows of the table. Returns the
    number of changed rows."""
    plan = view.history
    assert plan is not None
    history, table = work.table(view.name), work.table(plan.table)
    change = work.tx.changes(plan.table)
    changed = plan.table.lower() in work.changed
    moment = _Moment(change.version + changed, pa.scalar(work.context.now_us(), TIMESTAMP), changed)
    before, after = change.removed, change.added
    if whole:
        before, after = history.find(f"{GONE} IS NULL").select(list(table.schema.names)), table.to_arrow()
    # Nothing is NOT NULL in the history.
    types = pa.schema([history.schema.arrow().field(name).with_nullable(True) for name in table.schema.names])
    after, gone = _differing(before.cast(types), after.cast(types), plan.key)
    written = (rows.cast(types) for rows in work.passed.get(plan.table.lower(), ()))
    passed = pa.concat_tables([types.empty_table(), *written])
    gone = _with_vanished(gone, passed, table, plan.key)
    new = _new_rows(plan, moment, passed, after)
    known = Held.of(work.tx.get(HELD + view.name.lower()))
    held = _seen(known or _first(plan, moment, new), new, moment, plan)
    if known is None:
        work.tx.put(HELD + view.name.lower(), held.as_json())
    if not new.num_rows and not gone.num_rows:
        return 0
    done = _Keeping(plan, history, moment, held).add(new, after.select(list(plan.key)), gone)
    held, pruned = _prune(history, plan, held)
    work.tx.put(HELD + view.name.lower(), held.as_json())
    return done + pruned


def _first(plan: HistoryPlan, moment: _Moment, rows: pa.Table) -> Held:
    """A history begins: what was before the existing rows is unknown; by the time of commits, everything before now."""
    now = moment.now.cast(pa.int64()).as_py()
    if not plan.time:
        return Held(moment.version, now, now)
    begins = pc.max(rows[FROM].cast(pa.int64())).as_py() if not moment.changed else None
    return Held(moment.version - moment.changed, begins, np.iinfo(np.int64).min)


def _differing(before: pa.Table, after: pa.Table, key: tuple[str, ...]) -> tuple[pa.Table, pa.Table]:
    """The rows that are new or differ from those before, and the keys that are gone."""
    names = list(key)
    after = after.combine_chunks()
    where = pc.fill_null(positions(after.select(names), before.select(names)), -1).to_numpy(zero_copy_only=False)
    known = np.flatnonzero(where >= 0)
    ours = after.take(pa.array(known)).combine_chunks()
    theirs = before.take(pa.array(where[known])).combine_chunks()
    same = np.zeros(after.num_rows, bool)
    if len(known):
        pairs = [(_array(a), _array(b)) for a, b in zip(ours.columns, theirs.columns, strict=True)]
        same[known] = equal_rows([a for a, _ in pairs], [b for _, b in pairs])
    left = np.ones(before.num_rows, bool)
    left[where[known]] = False
    return after.filter(pa.array(~same)), before.select(names).filter(pa.array(left))


def _array(column: pa.ChunkedArray) -> pa.Array:
    return column.combine_chunks() if column.num_chunks != 1 else column.chunk(0)


def _with_vanished(gone: pa.Table, passed: pa.Table, table: WriteTable, key: tuple[str, ...]) -> pa.Table:
    """The keys that are gone, with those that were added and deleted by the same transaction."""
    if not passed.num_rows:
        return gone
    names = list(key)
    keys = unique_rows(passed.select(names))
    there = rows_with(table, names, keys).select(names).cast(keys.schema)
    return unique_rows(pa.concat_tables([gone, keys.filter(pc.is_null(positions(keys, unique_rows(there))))]))


def _new_rows(plan: HistoryPlan, moment: _Moment, passed: pa.Table, after: pa.Table) -> pa.Table:
    """The rows to add: those of the table now, and, by the time of a column, those that were replaced meanwhile. Of
    several rows of a key with the same time the last one counts."""
    rows = pa.concat_tables([passed, after])
    there = np.arange(rows.num_rows) >= rows.num_rows - after.num_rows
    count = rows.num_rows
    now = pa.repeat(moment.now, count)
    begins = pc.coalesce(rows[plan.time].cast(TIMESTAMP), moment.now) if plan.time else now
    version = pa.array(np.full(count, moment.version, np.int64))
    in_table = pa.array(there)
    added = {
        FROM: begins,
        TO: pa.nulls(count, TIMESTAMP),
        VERSION: version,
        GONE: pc.if_else(in_table, pa.scalar(None, pa.int64()), version),
        AT: now,
        GONE_AT: pc.if_else(in_table, pa.scalar(None, TIMESTAMP), now),
        ENDED: pa.nulls(count, TIMESTAMP),
        OPEN: pa.array(np.ones(count, bool)),
    }
    for column in ADDED:
        rows = rows.append_column(pa.field(column.name, column.type), added[column.name])
    codes, _ = key_codes([rows[name] for name in (*plan.key, FROM)], count)
    last = np.zeros(count, bool)
    last[np.unique(codes[::-1], return_index=True)[1]] = True
    return rows.filter(pa.array(last[::-1]))


def _seen(held: Held, new: pa.Table, moment: _Moment, plan: HistoryPlan) -> Held:
    now = moment.now.cast(pa.int64()).as_py()
    times = new[FROM].cast(pa.int64())
    newest = pc.max(times).as_py() if plan.time and new.num_rows else None if plan.time else now
    return held if newest is None else Held(held.version, held.time_us, max(held.newest_us, newest))


@dataclass(frozen=True)
class _Keeping:
    """Adds rows to a history, and ends those that are no longer valid."""

    plan: HistoryPlan
    history: WriteTable
    moment: _Moment
    held: Held

    def add(self, new: pa.Table, changed: pa.Table, gone: pa.Table) -> int:
        """Add rows; `changed` are the keys whose row in the table is another one now, `gone` those without one."""
        names = list(self.plan.key)
        keys = unique_rows(pa.concat_tables([new.select(names), gone]))
        # The columns of a key are not NULL in a table, but may be in its history.
        types = pa.schema([field.with_nullable(True) for field in self.history.schema.arrow()])
        old, complete = self._old_rows(keys, new)
        old = old.cast(types)
        undone = pc.equal(old[VERSION], self.moment.version) if self.moment.changed else None
        dropped = old.filter(undone) if undone is not None else old.slice(0, 0)
        before = old.filter(pc.invert(undone)) if undone is not None else old
        complete = complete.filter(pc.invert(undone)) if undone is not None else complete
        rows = pa.concat_tables([self._restored(before), new.cast(types)]).combine_chunks()
        rows = self._left_table(rows, before.num_rows, changed, gone)
        rows = self._ended(rows, before, complete, gone)
        is_new = np.arange(rows.num_rows) >= before.num_rows
        written = rows.filter(pa.array(is_new | self._differs(rows, before)))
        if dropped.num_rows:
            self.history.delete(keys=dropped.select(list(self.history.schema.key)))
        if written.num_rows:
            self.history.upsert(written)
        return int(dropped.num_rows + written.num_rows)

    def _old_rows(self, keys: pa.Table, new: pa.Table) -> tuple[pa.Table, pa.Array]:
        """The rows of keys that may change, each with whether all rows of its key are among them. If all new rows come
        after the valid one of their key, that one is sufficient."""
        names = list(self.plan.key)
        ask = keys.append_column(OPEN, pa.array(np.ones(keys.num_rows, bool)))
        opened = rows_with(self.history, [*names, OPEN], ask)
        valid = opened.filter(pc.is_null(opened[TO]))
        place = positions(new.select(names), valid.select(names))
        later = pc.greater_equal(new[FROM], valid[FROM].take(place))
        behind = unique_rows(new.select(names).filter(pc.invert(pc.fill_null(later, False))))
        if self.moment.changed:
            # An earlier refresh in this transaction may have closed rows that are open again now.
            redone = pc.or_(pc.equal(opened[VERSION], self.moment.version), pc.is_null(opened[VERSION]))
            behind = unique_rows(pa.concat_tables([behind, opened.filter(redone).select(names).cast(behind.schema)]))
        if not behind.num_rows:
            return opened, pa.array(np.zeros(opened.num_rows, bool))
        others = np.ones(opened.num_rows, bool)
        others[positions_among(opened, names, behind).to_numpy()] = False
        opened = opened.filter(pa.array(others))
        whole = rows_with(self.history, names, behind)
        complete = np.arange(opened.num_rows + whole.num_rows) >= opened.num_rows
        return pa.concat_tables([opened, whole]), pa.array(complete)

    def _restored(self, rows: pa.Table) -> pa.Table:
        """The rows as they were before this transaction."""
        if not self.moment.changed:
            return rows
        mine = pc.fill_null(pc.equal(rows[GONE], self.moment.version), False)
        for name in (GONE, GONE_AT, ENDED):
            rows = _with(rows, name, pc.if_else(mine, pa.scalar(None, rows[name].type), rows[name]))
        return rows

    def _left_table(self, rows: pa.Table, count: int, changed: pa.Table, gone: pa.Table) -> pa.Table:
        """The rows with the version in which the table no longer has them."""
        names = list(self.plan.key)
        keys = pa.concat_tables([changed, gone])
        mask = np.zeros(rows.num_rows, bool)
        mask[positions_among(rows, names, keys).to_numpy()] = True
        mask[count:] = False
        left = pc.and_(pa.array(mask), pc.is_null(rows[GONE]))
        rows = _with(rows, GONE, pc.if_else(left, pa.scalar(self.moment.version, pa.int64()), rows[GONE]))
        return _with(rows, GONE_AT, pc.if_else(left, self.moment.now, rows[GONE_AT]))

    def _ended(self, rows: pa.Table, before: pa.Table, complete: pa.Array, gone: pa.Table) -> pa.Table:
        """The rows with the time from which each is no longer valid: that of the next row of its key, or of the
        deletion."""
        names = list(self.plan.key)
        codes, _ = key_codes([rows[name] for name in names], rows.num_rows)
        times = rows[FROM].cast(pa.int64()).to_numpy()
        order = np.lexsort((np.arange(rows.num_rows), rows[VERSION].to_numpy(), times, codes))
        following = np.append(order[1:], -1)
        following[np.append(codes[order][1:] != codes[order][:-1], True)] = -1
        after = np.full(rows.num_rows, -1, np.int64)
        after[order] = following
        ends = rows[FROM].take(pa.array(after, mask=after < 0))
        # Not all rows of such a key were read: the end of a row that was not the valid one is unchanged.
        fixed = np.zeros(rows.num_rows, bool)
        fixed[: before.num_rows] = ~np.asarray(complete.to_numpy(zero_copy_only=False), bool)
        stays = pc.and_(pa.array(fixed), pc.is_valid(rows[TO]))
        ends = pc.if_else(stays, rows[TO], ends)
        mask = np.zeros(rows.num_rows, bool)
        mask[positions_among(rows, names, gone).to_numpy()] = True
        deleted = pc.and_(pa.array(mask), pc.is_null(ends))
        newest = pa.scalar(self.held.newest_us, pa.int64()).cast(TIMESTAMP)
        rows = _with(rows, ENDED, pc.if_else(deleted, _later(rows[FROM], newest), rows[ENDED]))
        by_deletion = pc.or_(pc.is_null(ends), pc.fill_null(pc.less(rows[ENDED], ends), False))
        rows = _with(rows, TO, pc.if_else(by_deletion, rows[ENDED], ends))
        return _with(rows, OPEN, pc.or_(pc.is_null(rows[TO]), pc.is_null(rows[GONE])))

    @staticmethod
    def _differs(rows: pa.Table, before: pa.Table) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
        """Which rows differ from what they were."""
        found = np.zeros(rows.num_rows, bool)
        count = before.num_rows
        if count:
            names = [TO, GONE, ENDED, OPEN]
            now = [_array(rows[name].slice(0, count)) for name in names]
            found[:count] = ~equal_rows(now, [_array(before[name]) for name in names])
        return found


def _later(times: pa.ChunkedArray, other: pa.Scalar) -> pa.ChunkedArray:
    return pc.if_else(pc.greater(times, other), times, other)


def _with(rows: pa.Table, name: str, values: pa.ChunkedArray) -> pa.Table:
    place = rows.column_names.index(name)
    return rows.set_column(place, rows.schema.field(place), values)


def _prune(history: WriteTable, plan: HistoryPlan, held: Held) -> tuple[Held, int]:
    """Delete what was no longer valid before the period."""
    until = pa.scalar(held.newest_us - plan.period_us, pa.int64()).cast(TIMESTAMP).as_py()
    condition = f"{TO} <= ? AND {GONE} IS NOT NULL"
    old = history.find(condition, [until], columns=[TO, VERSION, GONE])
    if not old.num_rows:
        return held, 0
    history.delete(condition, [until])
    versions = pc.max(old[GONE].filter(pc.greater(old[GONE], old[VERSION]))).as_py()
    time = pc.max(old[TO]).cast(pa.int64()).as_py()
    known = held.time_us
    return Held(
        max(held.version, versions or 0), time if known is None else max(known, time), held.newest_us
    ), old.num_rows


def count_outside(work: Work, query: exp.Query, batch: Dataset) -> int:
    """The number of events that find no row in a history because their time is before its beginning."""
    histories = {table.name.lower() for table in work.context.plan.tables if table.history is not None}
    asking = work.cache.once("moments", query, lambda: _moments(query, histories)) if histories else ()
    return sum(_count_missing(work, moment, batch) for moment in asking)


@dataclass(frozen=True)
class _Asked:
    """A join of the events with a history: a query of their earliest time, and one that counts those before a time
    that find no row, as a function of that time."""

    history: str
    earliest: exp.Select
    missing: exp.Select
    time: exp.Expr


def _moments(query: exp.Query, histories: set[str]) -> tuple[_Asked, ...]:
    found = []
    for select in query.find_all(exp.Select):
        source = select.args.get("from_")
        for join in select.args.get("joins") or ():
            if source is None or not isinstance(join.this, exp.Table) or join.this.name.lower() not in histories:
                continue
            moment = moment_of(tuple(all_of(join.args.get("on"))), frozenset([join.this.alias_or_name.lower()]))
            own = {source.this.alias_or_name.lower(), join.this.alias_or_name.lower()}
            # A time or key from another joined table is not counted.
            if moment is not None and {c.table.lower() for c in join.args["on"].find_all(exp.Column)} <= own:
                found.append(_asked(source.this, join, moment[1]))
    return tuple(found)


def _asked(relation: exp.Expr, join: exp.Join, time: exp.Expr) -> _Asked:
    earliest = exp.Select(expressions=[exp.alias_(exp.Min(this=time.copy()), "t")]).from_(relation.copy())
    missing = exp.Select(expressions=[exp.alias_(exp.Count(this=exp.Star()), "n")]).from_(relation.copy())
    anti = exp.Join(this=join.this.copy(), side="LEFT", kind="ANTI", on=join.args["on"].copy())
    missing.set("joins", [anti])
    return _Asked(join.this.name.lower(), earliest, missing, time)


def _count_missing(work: Work, asked: _Asked, batch: Dataset) -> int:
    held = Held.of(work.tx.get(HELD + asked.history))
    if held is None or held.time_us is None:
        return 0
    earliest = work.rows(asked.earliest, batch)["t"][0].cast(TIMESTAMP).cast(pa.int64()).as_py()
    if earliest is None or earliest >= held.time_us:
        return 0
    begin = exp.func("timestamp_micros", exp.Literal.number(held.time_us))
    counted = asked.missing.where(exp.LT(this=asked.time.copy(), expression=begin))
    return int(work.rows(counted, batch)["n"][0].as_py())


def require_held(query: exp.Expr, tx: Transaction) -> None:
    """MP409 if a query reads a version, or a time, of a table that its history does not contain."""
    for node in query.find_all(exp.Table):
        wanted = node.meta.get(MOMENT)
        if wanted is None or (held := Held.of(tx.get(HELD + node.name.lower()))) is None:
            continue
        kind, moment = wanted
        name = node.name.removesuffix(BESIDE + HISTORY)
        if kind == "version":
            _require_version(name, int(moment.this), held, tx.table(name).version)
        elif held.time_us is not None:
            _require_time(name, moment, held.time_us)


def _require_version(name: str, wanted: int, held: Held, newest: int) -> None:
    if wanted > newest:
        raise TableError("MP409", f"Table '{name}' has no version {wanted} yet: the newest is {newest}.", hint=LISTS)
    if wanted < held.version:
        message = f"Version {wanted} of table '{name}' is no longer available: the oldest is {held.version}."
        raise TableError("MP409", message, hint=f"'history' sets how long old rows are kept. {LISTS}")


def _require_time(name: str, moment: exp.Expr, first_us: int) -> None:
    one = pa.table({"one": pa.nulls(1, pa.int8())})
    try:
        values = compile_expression(as_expression(moment), Schema.from_arrow(one.schema)).evaluate(one)
    except NotCompilable:
        # A function that only Spark evaluates.
        return
    found = values[0].cast(pa.int64()).as_py()
    if found is not None and found < first_us:
        first = pa.scalar(first_us, pa.int64()).cast(TIMESTAMP).as_py().isoformat().replace("+00:00", "Z")
        message = f"The rows of table '{name}' at that time are no longer available: they begin at {first}."
        raise TableError("MP409", message, hint="'history' sets how long old rows are kept.")
