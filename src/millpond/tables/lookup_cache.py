"""Rows that were looked up in a source, and keys that it does not have, for a limited time.

The least recently used are evicted."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from millpond.contracts.lookup import KeyReader
from millpond.contracts.source import SourceSpec
from millpond.registry import find
from millpond.schema import Schema

Key = tuple[Any, ...]


@dataclass(frozen=True, eq=False)
class Answer:
    """The rows of a key: their places in a block of rows; none if the source has no such row."""

    block: pa.Table
    places: tuple[int, ...]
    until: float


class CachedKeys:
    """The source of one table, asked only for keys that are not cached. Used by all readers, in any thread."""

    def __init__(self, spec: SourceSpec, type_: str, schema: Schema, clock: Callable[[], float]) -> None:
        plugin = find("source", type_)
        assert plugin.open_keys is not None, "the planner requests lookups only of sources that have them"
        self._schema, self._clock = schema, clock
        self._source: KeyReader = plugin.open_keys(spec)
        assert spec.columns is not None
        self._columns = dict(zip(schema.names, spec.columns.names, strict=True))
        self.size_max: int = spec.values["cache.max_size"]
        self._ttl_s, self._absent_s = (spec.values[name] / 1e6 for name in ("cache.ttl", "cache.negative.ttl"))
        self._lock = threading.Lock()
        # Ordered by use, with the columns by which they were looked up.
        self._answers: OrderedDict[tuple[tuple[str, ...], Key], Answer] = OrderedDict()
        self.hits = self.misses = self.evictions = 0

    def __len__(self) -> int:
        return len(self._answers)

    def lookup(self, columns: Sequence[str], keys: Sequence[pa.Array]) -> pa.Table:
        """All columns of the rows where these columns have one of the values."""
        names = tuple(columns)
        if not self.size_max:
            self.misses += len(keys[0])
            return self._asked(names, keys)
        wanted: list[Key] = list(zip(*(key.to_pylist() for key in keys), strict=True))
        if len(first := dict(zip(reversed(wanted), range(len(wanted) - 1, -1, -1), strict=True))) < len(wanted):
            keys = [key.take(pa.array(list(first.values()))) for key in keys]
            wanted = list(first)
        known = self._known(names, wanted)
        missing = np.flatnonzero([answer is None for answer in known])
        parts = [_gathered([answer for answer in known if answer is not None], self._schema.arrow())]
        if len(missing):
            taken = [key.take(pa.array(missing)) for key in keys]
            found = self._asked(names, taken)
            self._keep(names, [wanted[place] for place in missing], found)
            parts.append(found)
        return pa.concat_tables(parts)

    def scan(self) -> pa.Table:
        return self._named(self._source.scan())

    def _asked(self, names: tuple[str, ...], keys: Sequence[pa.Array]) -> pa.Table:
        return self._named(self._source.lookup([self._columns[name] for name in names], keys))

    def _named(self, rows: pa.Table) -> pa.Table:
        """Rows of the source under the names of the table's columns."""
        return pa.Table.from_arrays(rows.columns, schema=self._schema.arrow())

    def narrowed(self, condition: Any, parameters: Sequence[Any]) -> pa.Table | None:
        """None: conditions are evaluated here."""
        return None

    def aggregated(self, calls: Any, condition: Any) -> None:
        """None: rows are aggregated here."""

    def _known(self, names: tuple[str, ...], wanted: Sequence[Key]) -> list[Answer | None]:
        now, found = self._clock(), list[Answer | None]()
        with self._lock:
            for key in wanted:
                answer = self._answers.get((names, key))
                if answer is not None and answer.until <= now:
                    del self._answers[names, key]
                    self.evictions += 1
                    answer = None
                if answer is not None:
                    self._answers.move_to_end((names, key))
                found.append(answer)
            hits = sum(answer is not None for answer in found)
            self.hits, self.misses = self.hits + hits, self.misses + len(found) - hits
        return found

    def _keep(self, names: tuple[str, ...], asked: Sequence[Key], rows: pa.Table) -> None:
        """Cache the answers to these keys, also that there is no row; only the last ones if there are more than fit."""
        rows = rows.combine_chunks()
        places: dict[Key, list[int]] = {key: [] for key in asked[-self.size_max :]}
        for place, key in enumerate(zip(*(rows[name].to_pylist() for name in names), strict=True)):
            if key in places:
                places[key].append(place)
        now = self._clock()
        with self._lock:
            for key, found in places.items():
                until = now + (self._ttl_s if found else self._absent_s)
                self._answers[names, key] = Answer(rows, tuple(found), until)
                self._answers.move_to_end((names, key))
            while len(self._answers) > self.size_max:
                self._answers.popitem(last=False)
                self.evictions += 1

    def close(self) -> None:
        self._source.close()


def _gathered(answers: Sequence[Answer], schema: pa.Schema) -> pa.Table:
    """The rows of answers, in any order."""
    blocks: dict[int, tuple[pa.Table, list[int]]] = {}
    for answer in answers:
        if answer.places:
            blocks.setdefault(id(answer.block), (answer.block, []))[1].extend(answer.places)
    parts = [block.take(pa.array(places)) for block, places in blocks.values()]
    return pa.concat_tables([schema.empty_table(), *parts])


def without_nulls(keys: Sequence[pa.Array]) -> list[pa.Array]:
    """Keys without those that contain NULL, which no row equals."""
    there = pc.is_valid(keys[0])
    for key in keys[1:]:
        there = pc.and_(there, pc.is_valid(key))
    return [key.filter(there) for key in keys]
