"""The changing methods of a table: rows are checked and completed before the draft is changed, for all-or-nothing."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Any

import numpy as np
import pyarrow as pa
from sqlglot import exp

from millpond.contracts.table import Keys as KeysGiven
from millpond.contracts.table import Rows, documented
from millpond.errors import ConstraintError, TableError
from millpond.tables import selection
from millpond.tables.constraints import require_checks
from millpond.tables.draft import Draft
from millpond.tables.index import Ids
from millpond.tables.lookup_keys import Keys, check_nulls, check_unique, key_columns, last_of_each, shown_key
from millpond.tables.replacement import Replacement
from millpond.tables.row_conversion import Incoming, incoming, to_array
from millpond.tables.single_rows import Row, RowShape
from millpond.tables.table_reader import ReadableTable
from millpond.tables.value_conversion import cast_array

_NO_ROWS = np.empty(0, dtype=np.int64)


@documented
class WritableTable(ReadableTable):
    """Implements WriteTable. A subclass provides the draft to change."""

    shape: RowShape | None

    def _draft(self) -> AbstractContextManager[Draft]:
        """The draft of one change, which counts if the block does not raise."""
        raise NotImplementedError

    def insert(self, rows: Rows) -> int:
        alone = self._alone(rows, whole=False)
        if alone is not None:
            with self._draft() as draft:
                return self._insert_one(draft, *alone)
        groups = incoming(self.name, self.schema, rows)
        with self._draft() as draft, _undone_on_error(draft):
            return sum(self._insert(draft, given) for given in groups)

    def upsert(self, rows: Rows) -> int:
        self._need_key()
        alone = self._alone(rows, whole=True)
        if alone is not None:
            with self._draft() as draft:
                return self._upsert_one(draft, *alone)
        groups = incoming(self.name, self.schema, rows)
        with self._draft() as draft, _undone_on_error(draft):
            return sum(self._upsert(draft, given) for given in groups)

    def update(self, condition: Any, values: Mapping[str, Any], parameters: Sequence[Any] = ()) -> int:
        with self._draft() as draft:
            return self._update(draft, condition, values, parameters)

    def update_many(self, changes: Sequence[tuple[Any, Mapping[str, Any], Sequence[Any]]]) -> int:
        with self._draft() as draft, _undone_on_error(draft):
            return sum(self._update(draft, condition, values, given) for condition, values, given in changes)

    def delete(self, condition: Any = None, parameters: Sequence[Any] = (), *, keys: KeysGiven | None = None) -> int:
        if condition is not None and keys is not None:
            raise TableError("MP409", "delete accepts a condition or keys, not both.", hint="Call it twice.")
        if condition is None and keys is None:
            # A variable that is None by mistake must not delete all rows.
            raise TableError(
                "MP409", "delete requires a condition or keys.", hint="To delete all rows, write delete('true')."
            )
        with self._draft() as draft:
            if keys is not None:
                ids = self._lookup_ids(draft, keys, None)
            else:
                ids = self._select(draft, condition, parameters).ids
            draft.remove(ids)
            return len(ids)

    def replace(self, rows: pa.Table) -> int:
        return self.replace_in_parts([rows])

    def replace_in_parts(self, parts: Iterable[pa.Table], *, whole: bool = True) -> int:
        with self._draft() as draft, _undone_on_error(draft):
            changing = Replacement(draft)
            added = 0
            for part in parts:
                (given,) = incoming(self.name, self.schema, part)
                batch = self._complete(given)
                keys = self._checked_keys(batch)
                if keys is not None:
                    check_unique(self.name, self.schema, keys)
                added += changing.add(batch, keys)
            return max(changing.finish() if whole else 0, added)

    def _alone(self, rows: Rows, *, whole: bool) -> tuple[RowShape, Row, Keys | None] | None:
        """The only row, and its key, if its values have exactly the columns' types, so that Arrow is not needed."""
        shape = self.shape
        if shape is None or type(rows) is not list or len(rows) != 1 or type(rows[0]) is not dict:
            return None
        row = shape.row(rows[0], whole=whole)
        if row is None or not self.schema.key:
            return None if row is None else (shape, row, None)
        key = shape.key(row)
        return None if key is None else (shape, row, key)

    def _insert_one(self, draft: Draft, shape: RowShape, row: Row, key: Keys | None) -> int:
        if key is not None:
            self._check_free(key, draft.locate(key))
        draft.change_one(_NO_ROWS, shape, row, key)
        return 1

    def _upsert_one(self, draft: Draft, shape: RowShape, row: Row, key: Keys | None) -> int:
        assert key is not None
        there = draft.locate(key)
        draft.change_one(there if there[0] >= 0 else _NO_ROWS, shape, row, key)
        return 1

    def _update_one(self, draft: Draft, row: int, values: Mapping[str, Any]) -> bool:
        """Change one row without Arrow; returns whether that was possible."""
        old = None if self.shape is None else draft.values(row)
        if self.shape is None or old is None:
            return False
        new = self.shape.changed(old, values)
        key = self.shape.key(new) if new is not None and self.schema.key else None
        if new is None or (key is None and self.schema.key):
            return False
        draft.change_one(np.array([row]), self.shape, new, key)
        return True

    def _insert(self, draft: Draft, given: Incoming) -> int:
        batch = self._complete(given)
        keys = self._checked_keys(batch)
        if keys is not None:
            check_unique(self.name, self.schema, keys)
            self._check_free(keys, draft.locate(keys))
        draft.change(_NO_ROWS, batch, keys)
        return int(batch.num_rows)

    def _upsert(self, draft: Draft, given: Incoming) -> int:
        keys = self._keys_of(given)
        last = last_of_each(keys)
        if last is not None:
            given, keys = given.take(last), Keys(keys.at(last))
        there = draft.locate(keys)
        batch = self._merged(draft, given, there)
        self._check_rules(batch)
        draft.change(there[there >= 0], batch, keys)
        return int(batch.num_rows)

    def _update(self, draft: Draft, condition: Any, values: Mapping[str, Any], parameters: Sequence[Any]) -> int:
        if condition is None:
            # As in delete, a variable that is None by mistake must not change all rows.
            raise TableError(
                "MP409", "update requires a condition.", hint="To change all rows, write update('true', ...)."
            )
        found = self._select(draft, condition, parameters)
        if not len(found.ids):
            self._positions(list(values))
            return 0
        if len(found.ids) == 1 and self._update_one(draft, int(found.ids[0]), values):
            return 1
        batch = self._with_values(found, values, parameters)
        self._check_rules(batch)
        keys = self._checked_keys(batch)
        if keys is not None and any(self.schema[name].name in self.schema.key for name in values):
            check_unique(self.name, self.schema, keys)
            there = draft.locate(keys)
            self._check_free(keys, np.where(np.isin(there, found.ids), -1, there))
        draft.change(found.ids, batch, keys)
        return len(found.ids)

    def _with_values(
        self, found: selection.Selected, values: Mapping[str, Any], given: Sequence[Any]
    ) -> pa.RecordBatch:
        rows = found.table(range(len(self.schema)))
        columns = [c.combine_chunks() for c in rows.columns]
        for position, value in zip(self._positions(list(values)), values.values(), strict=True):
            column = self.schema.columns[position]
            if isinstance(value, exp.Expression):
                columns[position] = cast_array(self.evaluator.values(value, rows.select, given), column)
            else:
                one = to_array([value], column)
                columns[position] = one.take(pa.array(np.zeros(rows.num_rows, dtype=np.int64)))
        return pa.RecordBatch.from_arrays(columns, schema=self.schema.arrow())

    def _merged(self, draft: Draft, given: Incoming, there: Ids) -> pa.RecordBatch:
        """Partial rows, completed from the existing rows, or from defaults."""
        absent = [i for i, c in enumerate(self.schema) if c.name not in given.columns]
        if not absent:
            return given.batch(self.schema, {})
        known = there >= 0
        old = draft.table(there[known], absent)
        fresh = self._defaults(absent, int((~known).sum()))
        order = np.empty(len(there), dtype=np.int64)
        order[np.concatenate([np.flatnonzero(known), np.flatnonzero(~known)])] = np.arange(len(there))
        taken = pa.array(order)
        filled = {
            self.schema.columns[p].name: pa.concat_arrays([old.column(i).combine_chunks(), fresh[i]]).take(taken)
            for i, p in enumerate(absent)
        }
        return given.batch(self.schema, filled)

    def _complete(self, given: Incoming) -> pa.RecordBatch:
        absent = [i for i, c in enumerate(self.schema) if c.name not in given.columns]
        fresh = self._defaults(absent, given.rows)
        batch = given.batch(self.schema, {self.schema.columns[p].name: a for p, a in zip(absent, fresh, strict=True)})
        self._check_rules(batch)
        return batch

    def _defaults(self, positions: Sequence[int], rows: int) -> list[pa.Array]:
        return [self.evaluator.default(self.schema.columns[p], rows) for p in positions]

    def _keys_of(self, given: Incoming) -> Keys:
        for name in self.schema.key:
            if name not in given.columns:
                message = f"Rows for '{self.name}' have no key column '{name}'."
                raise ConstraintError("MP403", message, hint="Every row must have its key. Nothing was changed.")
        keys = Keys(tuple(given.columns[name] for name in self.schema.key))
        self._check_key_nulls(keys)
        return keys

    def _checked_keys(self, batch: pa.RecordBatch) -> Keys | None:
        if not self.schema.key:
            return None
        keys = key_columns(self.schema, batch)
        self._check_key_nulls(keys)
        return keys

    def _check_key_nulls(self, keys: Keys) -> None:
        if not self.null_keys:
            check_nulls(self.name, self.schema.key, keys.columns, "MP403")

    def _check_rules(self, batch: pa.RecordBatch) -> None:
        """Check NOT NULL and CHECK constraints."""
        names = [c.name for c in self.schema if not c.nullable and c.name not in self.schema.key]
        check_nulls(self.name, names, [batch.column(self.schema.position(n)) for n in names], "MP401")
        if self.schema.checks:
            require_checks(self.name, self.schema, pa.Table.from_batches([batch]), self.evaluator.over)

    def _check_free(self, keys: Keys, there: Ids) -> None:
        if len(there) == 1 and there.item(0) < 0:
            return
        taken = np.flatnonzero(there >= 0)
        if len(taken):
            message = (
                f"Table '{self.name}' already has a row with the key {shown_key(self.schema, keys, int(taken[0]))}."
            )
            raise ConstraintError("MP402", message, hint="Use UPSERT to replace it. Nothing was changed.")


@contextmanager
def _undone_on_error(draft: Draft) -> Iterator[None]:
    point = draft.point()
    try:
        yield
    except BaseException:
        draft.rollback_to(point)
        raise
