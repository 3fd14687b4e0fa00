"""The new records of a response: those that were not in the previous response, by key or as a whole."""

from __future__ import annotations

import base64
import csv
import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import numpy.typing as npt

from millpond.sources.records.formats import FileFormat, column_place
from millpond.sources.records.text_reader import BLANKS, Piece, fields

Hashes = npt.NDArray[np.uint64]
NONE = np.zeros(0, np.uint64)


@dataclass(frozen=True)
class Known:
    """Hashes of the last complete response, and of the records since then of an incomplete one."""

    last: Hashes = field(default_factory=lambda: NONE)
    came: Hashes = field(default_factory=lambda: NONE)

    def with_part(self, came: Hashes) -> Known:
        """Called when a part of a response is durable."""
        return replace(self, came=np.concatenate([self.came, came])) if len(came) else self

    def with_answer(self, added: Hashes, left: Hashes) -> Known:
        """Called when the whole response is durable."""
        if not len(added) and not len(left):
            return replace(self, came=NONE)
        return Known(np.union1d(np.setdiff1d(self.last, left, assume_unique=True), added))


class Occurrences:
    """How often each hash has occurred so far: sorted arrays, of which each is more than twice as long as the next, so
    that millions of records need 8 bytes each."""

    def __init__(self) -> None:
        self._sorted: list[Hashes] = []

    def numbers(self, found: Hashes) -> list[int]:
        """Of each hash, which occurrence it is, from 1."""
        order = np.argsort(found, kind="stable")
        ordered = found[order]
        numbers = np.empty(len(found), np.int64)
        numbers[order] = np.arange(1, len(found) + 1) - np.searchsorted(ordered, ordered, "left")
        for before in self._sorted:
            numbers += np.searchsorted(before, found, "right") - np.searchsorted(before, found, "left")
        self._sorted.append(ordered)
        while len(self._sorted) > 1 and len(self._sorted[-2]) <= 2 * len(self._sorted[-1]):
            last = self._sorted.pop()
            self._sorted[-1] = np.sort(np.concatenate([self._sorted[-1], last]))
        return numbers.tolist()


class Sieve:
    """Passes only the new records of one response. Equal records are counted: a second one is new if there was one
    before. Of records with one key, all are new if that key did not exist."""

    def __init__(self, known: Known, key: Sequence[str] | None, form: FileFormat, names: Sequence[str] = ()) -> None:
        self._known, self._key, self._form, self.names = known, key, form, names
        self._occurrences = Occurrences()
        self._all: list[Hashes] = []
        # Of the records of a page that passed: where they are, and their hashes.
        self.positions: list[npt.NDArray[np.int64]] = []
        self.hashes: list[Hashes] = []

    def next_page(self, names: Sequence[str]) -> None:
        """`names` is the header of the page, if it has one."""
        self.names, self.positions, self.hashes = names, [], []

    def keep(self, piece: Piece) -> Piece:
        """The new records of a piece."""
        texts = [value.as_py().strip(BLANKS) for value in piece.values]
        whole = [self._identity(text) for text in texts]
        numbers = self._occurrences.numbers(_hashes(whole))
        occurrences = _hashes([b"%b#%d" % one for one in zip(whole, numbers, strict=True)])
        bases = occurrences if self._key is None else self._bases(texts, occurrences)
        self._all.append(bases)
        new = ~np.isin(bases, self._known.last) & ~np.isin(occurrences, self._known.came)
        self.positions.append(piece.positions[new])
        self.hashes.append(occurrences[new])
        suspect = None if piece.suspect is None else piece.suspect[new]
        return replace(piece, values=piece.values.filter(new), positions=piece.positions[new], suspect=suspect)

    def hashes_at(self, positions: npt.NDArray[np.int64]) -> Hashes:
        """The hashes of records of the page that passed."""
        if not len(positions):
            return NONE
        found = np.searchsorted(np.concatenate(self.positions), positions)
        return np.concatenate(self.hashes)[found]

    def difference(self) -> tuple[Hashes, Hashes]:
        """The difference between the whole response and the last one."""
        now = np.unique(np.concatenate(self._all)) if self._all else NONE
        return np.setdiff1d(now, self._known.last), np.setdiff1d(self._known.last, now)

    def _bases(self, texts: Sequence[bytes], occurrences: Hashes) -> Hashes:
        """The hashes of keys; a record without a key is compared as a whole, because NULL is equal to nothing."""
        keys = [self._key_of(text) for text in texts]
        return np.where([key is None for key in keys], occurrences, _hashes([key or b"" for key in keys]))

    def _key_of(self, text: bytes) -> bytes | None:
        try:
            if self._form.name == "csv":
                values = self._csv_key(fields(text, self._form))
            else:
                row = json.loads(text, parse_float=str, parse_int=str)
                lowered = {name.lower(): value for name, value in row.items()} if isinstance(row, dict) else {}
                values = [lowered.get(name.lower()) for name in self._key or ()]
            if any(value is None or value == "" for value in values):
                return None
            return json.dumps(values, sort_keys=True, ensure_ascii=False).encode("utf-8", "surrogatepass")
        except (ValueError, RecursionError, csv.Error):
            return None

    def _identity(self, text: bytes) -> bytes:
        """A record by its values, in whatever order and with whatever blanks they were written; one that cannot be read
        by its bytes."""
        try:
            if self._form.name == "csv":
                return json.dumps(fields(text, self._form)).encode()
            row = json.loads(text, parse_float=str, parse_int=str)
            return json.dumps(row, sort_keys=True, ensure_ascii=False).encode("utf-8", "surrogatepass")
        except (ValueError, RecursionError, csv.Error):
            return text

    def _csv_key(self, values: Sequence[str]) -> list[str | None]:
        places = [column_place(name, self.names) for name in self._key or ()]
        return [values[place] if place is not None and place < len(values) else None for place in places]


def _hashes(texts: Sequence[bytes]) -> Hashes:
    digests = b"".join(hashlib.blake2b(text, digest_size=8).digest() for text in texts)
    return np.frombuffer(digests, np.uint64)


def stored(hashes: Hashes) -> str:
    """Hashes as text."""
    return base64.b64encode(hashes.tobytes()).decode()


def restored(text: str) -> Hashes:
    return np.frombuffer(base64.b64decode(text), np.uint64)
