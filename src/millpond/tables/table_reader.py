"""The reading methods of a table, implemented once over any fixed state of its rows."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, cast

import pyarrow as pa

from millpond.contracts.table import PUBLIC, AggregateCall, TableFiles, documented
from millpond.contracts.table import Keys as KeysGiven
from millpond.errors import BindError, ConstraintError, TableError, did_you_mean
from millpond.expressions.parameters import has_nested, written_out
from millpond.schema import Column, Schema
from millpond.tables import selection
from millpond.tables.draft import State
from millpond.tables.index import Ids, distinct
from millpond.tables.lookup_keys import Keys, OneKey
from millpond.tables.row_conversion import exact_array, to_array, unmatched
from millpond.tables.selection import Condition, Evaluator, as_condition
from millpond.tables.value_conversion import cast_array, may_round


@documented
class ReadableTable:
    """Implements ReadTable. A subclass provides the state, and counts the accesses."""

    name: str
    schema: Schema
    null_keys: bool
    evaluator: Evaluator

    def _state(self) -> State:
        raise NotImplementedError

    def _note(self, state: State, ids: Ids, asked: int, *, indexed: bool = False) -> None:
        """Called with the rows that were found, and the number of keys that were looked up."""

    def _locate(self, state: State, keys: Keys) -> Ids:
        """The row of each key, or -1."""
        return state.locate(keys)

    def _fetch(self, state: State, keys: Keys) -> tuple[Ids, pa.Table] | None:
        """Row numbers and rows of many keys at once, each row once; None if the state does not support it."""
        return None

    def _rows(self, state: State, ids: Ids) -> pa.Table:
        """All columns of rows that were looked up by key."""
        return state.table(ids, range(len(self.schema)))

    @property
    def version(self) -> int:
        return self._state().number

    def __len__(self) -> int:
        return self._state().live

    def __bool__(self) -> bool:
        return True

    def __dir__(self) -> list[str]:
        return sorted(name for name in PUBLIC if hasattr(self, name))

    def get(self, key: Any) -> dict[str, Any] | None:
        state = self._state()
        ids = self._locate(state, self._one_key(key))
        self._note(state, ids[ids >= 0], 1)
        return row_of(self._rows(state, ids)) if len(ids) and ids[0] >= 0 else None

    def contains(self, key: Any) -> bool:
        state = self._state()
        ids = self._locate(state, self._one_key(key))
        self._note(state, ids[ids >= 0], 1)
        return bool(len(ids) and ids[0] >= 0)

    def count(self, condition: Any = None, parameters: Sequence[Any] = ()) -> int:
        if condition is None:
            return len(self)
        return len(self._select(self._state(), condition, parameters).ids)

    def exists(self, condition: Any, parameters: Sequence[Any] = ()) -> bool:
        return self.count(condition, parameters) > 0

    def find(
        self,
        condition: Any = None,
        parameters: Sequence[Any] = (),
        *,
        columns: Sequence[str] | None = None,
        limit: int | None = None,
        offset: int = 0,
    ) -> pa.Table:
        state, positions = self._state(), self._positions(columns)
        _check_page(limit, offset)
        if condition is None:
            return state.all(positions).slice(offset, limit)
        return self._select(state, condition, parameters).page(offset, limit).table(positions)

    def values(self, column: str, condition: Any = None, parameters: Sequence[Any] = ()) -> list[Any]:
        if isinstance(column, str) and column not in self.schema and "*" in column:
            return self._path_values(column, condition, parameters)
        return list(self.find(condition, parameters, columns=[column]).column(0).to_pylist(maps_as_pydicts="lossy"))

    def _path_values(self, path: str, condition: Any, parameters: Sequence[Any]) -> list[Any]:
        """All values that a wildcard path finds in the rows, one after the other."""
        expression = self.evaluator.expanded(selection.parsed(path)).expression
        found = self.evaluator.values(expression, self._selected(condition, parameters).columns, ())
        return list(found.flatten().to_pylist(maps_as_pydicts="lossy"))

    def scalar(self, expression: str, condition: Any = None, parameters: Sequence[Any] = ()) -> Any:
        own, rest = selection.split_parameters(expression, parameters)
        return selection.aggregate(self.evaluator, expression, self._selected(condition, rest), own)

    def lookup(self, keys: KeysGiven, by: str | Sequence[str] | None = None) -> pa.Table:
        state, names = self._state(), self._by_columns(by)
        wanted = self._keys(keys, names)
        fetched = self._fetch(state, wanted) if names == self.schema.key else None
        if fetched is not None:
            ids, rows = fetched
            self._note(state, ids, len(wanted))
            return rows
        return self._rows(state, self._found_ids(state, wanted, names))

    def scan(self, where: Any = None, batch_rows: int = 65_536) -> Iterator[pa.RecordBatch]:
        if batch_rows < 1:
            raise TableError("MP409", f"batch_rows cannot be {batch_rows}.", hint="Pass at least 1.")
        return iter(self.find(where).to_batches(max_chunksize=batch_rows))

    def to_arrow(self, columns: Sequence[str] | None = None) -> pa.Table:
        return self._state().all(self._positions(columns))

    def files(self) -> TableFiles | None:
        return self._state().files()

    def aggregated(self, calls: Sequence[AggregateCall], condition: Any = None) -> list[int | None] | None:
        asked = as_condition(condition)
        return self._state().aggregated(calls, None if asked is None else asked.expression)

    def _selected(self, condition: Any, parameters: Sequence[Any]) -> selection.Selected:
        state = self._state()
        if condition is None:
            return selection.Selected(state, state.ids())
        return self._select(state, condition, parameters)

    def _select(self, state: State, condition: Any, parameters: Sequence[Any]) -> selection.Selected:
        asked = as_condition(condition)
        assert asked is not None
        if parameters and has_nested(parameters):
            expression, parameters = written_out(asked.expression, parameters, self.schema)
            asked = Condition(asked.text, expression)
        selected = selection.select(state, asked, parameters, self.evaluator)
        by_index = bool(selected.through) and selected.through != self.schema.key
        self._note(state, selected.ids, selected.asked, indexed=by_index)
        return selected

    def _lookup_ids(self, state: State, keys: KeysGiven, by: str | Sequence[str] | None) -> Ids:
        names = self._by_columns(by)
        return self._found_ids(state, self._keys(keys, names), names)

    def _found_ids(self, state: State, wanted: Keys, names: tuple[str, ...]) -> Ids:
        if names == self.schema.key:
            found = self._locate(state, wanted)
            ids = distinct(found[found >= 0])
            self._note(state, ids, len(wanted))
            return ids
        columns = tuple(self.schema.position(n) for n in names)
        through = state.locate_by(columns, wanted)
        ids = selection.scan_for(state, columns, wanted) if through is None else through
        self._note(state, ids, len(wanted), indexed=through is not None)
        return ids

    def _by_columns(self, by: str | Sequence[str] | None) -> tuple[str, ...]:
        if by is None:
            self._need_key()
            return self.schema.key
        names = (by,) if isinstance(by, str) else tuple(by)
        return tuple(self.schema.columns[p].name for p in self._positions(names))

    def _one_key(self, key: Any) -> Keys:
        self._need_key()
        columns = [self.schema[n] for n in self.schema.key]
        return _key_of_lists([[part] for part in self._parts(key)], columns)

    def _parts(self, key: Any) -> tuple[Any, ...]:
        width = len(self.schema.key)
        if width == 1 and not (isinstance(key, tuple) and len(key) == 1):
            return (key,)
        parts = tuple(key[n] for n in self.schema.key) if isinstance(key, Mapping) else key
        if not isinstance(parts, tuple | list) or len(parts) != width:
            names = ", ".join(self.schema.key)
            raise TableError("MP409", f"A key of '{self.name}' has {width} parts.", hint=f"Pass a tuple of ({names}).")
        return tuple(parts)

    def _keys(self, keys: KeysGiven, names: tuple[str, ...]) -> Keys:
        """Keys as arrays of the columns' types, without keys that contain NULL, unless NULL can be a key."""
        columns = [self.schema[n] for n in names]
        if type(keys) is list and len(keys) == len(columns) == 1 and selection.is_exact(keys[0], columns[0].type):
            return OneKey((keys[0],), (columns[0].type,))
        if isinstance(keys, pa.Table | pa.RecordBatch):
            wanted = _key_of_arrays([keys.column(self._column_of(keys, c.name)) for c in columns], columns)
        elif isinstance(keys, pa.Array | pa.ChunkedArray):
            wanted = _key_of_arrays(_key_arrays(keys, len(columns)), columns)
        elif isinstance(keys, str | bytes | Mapping) or not isinstance(keys, Iterable):
            hint = "Pass a list of keys, or an Arrow array."
            raise TableError("MP409", f"Keys of type {type(keys).__name__} are not supported.", hint=hint)
        elif len(columns) == 1:
            wanted = _key_of_lists([[k[0] if isinstance(k, tuple) and len(k) == 1 else k for k in keys]], columns)
        else:
            rows = [self._parts(k) if names == self.schema.key else tuple(cast("Iterable[Any]", k)) for k in keys]
            wanted = _key_of_lists([[r[i] for r in rows] for i in range(len(columns))], columns)
        nulls_count = self.null_keys and names == self.schema.key
        return wanted if nulls_count else selection.without_nulls(wanted)

    def _column_of(self, keys: pa.Table, name: str) -> int:
        found = [i for i, n in enumerate(keys.schema.names) if n.lower() == name.lower()]
        if not found:
            raise self._no_column(name, keys.schema.names)
        return found[0]

    def _positions(self, columns: Sequence[str] | None) -> list[int]:
        if columns is None:
            return list(range(len(self.schema)))
        for name in columns:
            if not isinstance(name, str) or name not in self.schema:
                raise self._no_column(str(name), self.schema.names)
        return [self.schema.position(name) for name in columns]

    def _no_column(self, name: str, names: Sequence[str]) -> BindError:
        hint = did_you_mean(name, names) or f"Its columns are: {', '.join(names)}."
        return BindError("MP202", f"'{self.name}' has no column '{name}'.", hint=hint)

    def _need_key(self) -> None:
        if not self.schema.key:
            hint = "Declare a PRIMARY KEY, or use find or lookup(keys, by=...)."
            raise TableError("MP409", f"Table '{self.name}' has no primary key.", hint=hint)


class Snapshot(ReadableTable):
    """A table at one version."""

    def __init__(self, reading: ReadableTable, state: State) -> None:
        self.name, self.schema = reading.name, reading.schema
        self.null_keys, self.evaluator = reading.null_keys, reading.evaluator
        self._fixed = state

    def _state(self) -> State:
        return self._fixed


def row_of(table: pa.Table) -> dict[str, Any]:
    """A table of one row as a dict."""
    rows: list[dict[str, Any]] = table.to_pylist(maps_as_pydicts="lossy")
    return rows[0]


def _key_of_lists(values: Sequence[Sequence[Any]], columns: Sequence[Column]) -> Keys:
    """Keys from Python values, one list for each column, without keys that no row can have."""
    exact = [exact_array(given, column) for given, column in zip(values, columns, strict=True)]
    if all(array is not None for array in exact):
        return Keys(tuple(exact))
    out = {i for given, column in zip(values, columns, strict=True) for i in unmatched(given, column)}
    if out:
        values = [[v for i, v in enumerate(given) if i not in out] for given in values]
    with _about_keys():
        return Keys(tuple(to_array(given, column) for given, column in zip(values, columns, strict=True)))


def _key_of_arrays(values: Sequence[pa.Array | pa.ChunkedArray], columns: Sequence[Column]) -> Keys:
    """Keys from Arrow arrays, one for each column, without keys that no row can have."""
    if any(may_round(given.type, column.type) for given, column in zip(values, columns, strict=True)):
        return _key_of_lists([given.to_pylist() for given in values], columns)
    with _about_keys():
        return Keys(tuple(cast_array(given, column) for given, column in zip(values, columns, strict=True)))


@contextmanager
def _about_keys() -> Iterator[None]:
    """Raise the error of a value that cannot be stored as an error of a key."""
    try:
        yield
    except ConstraintError as error:
        hint = "Pass keys of the column's type."
        raise ConstraintError(error.code, error.problems[0].message, hint=hint) from error


def _key_arrays(keys: pa.Array | pa.ChunkedArray, width: int) -> list[pa.Array]:
    array = keys.combine_chunks() if isinstance(keys, pa.ChunkedArray) else keys
    if pa.types.is_struct(array.type) and array.type.num_fields == width:
        return list(array.flatten())
    if width != 1:
        raise TableError(
            "MP409", f"Keys of {width} columns cannot be one array.", hint="Pass a list of tuples or a table."
        )
    return [array]


def _check_page(limit: int | None, offset: int) -> None:
    if not isinstance(offset, int) or not isinstance(limit, int | None):
        message = f"limit {limit!r} and offset {offset!r} must be whole numbers."
        raise TableError("MP409", message, hint="Pass an int, or omit it.")
    if offset < 0 or (limit is not None and limit < 0):
        raise TableError("MP409", f"limit {limit} and offset {offset} cannot be negative.", hint="Start at 0.")
