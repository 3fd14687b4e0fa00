"""The content of a source's files: from the bytes of a file to batches of a feed, and from a feed to records."""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from millpond.contracts.source import BAD, HIDDEN_SOURCE, ORDER_MAJOR, ORDER_MINOR, RAW
from millpond.errors import SourceError
from millpond.schema import Schema
from millpond.sources.files.feed_records import feed_schema, parsed_batch, parsed_rows, unparsed_batch, with_line_end
from millpond.sources.records.arrow_parsing import parsed, quick_parser
from millpond.sources.records.column_types import HEADER, PROBLEM, SUSPECT, VALUE
from millpond.sources.records.formats import FileFormat, check_header, is_compressed
from millpond.sources.records.text_parsing import Texts, parse_texts
from millpond.sources.records.text_reader import Piece, ReadSpec, Tail, layout_of, pieces, read_header

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


# Files with less unread text than this are parsed together: calling the parser costs more than their records.
SMALL_BYTES = 64 << 10


@dataclass(frozen=True)
class Opening:
    """How to read a file: its layout, the start of its records, the number of its header, its length, and its name in
    `_source`, by default the path."""

    layout: str
    start: int
    header: int = -1
    size: int | None = None
    source: str = ""


@dataclass(frozen=True)
class Chunk:
    """Some records of a file, ready for a feed; `end` is the position after them; `closed`: nothing can follow; `text`:
    they are not parsed yet; `small`: parsing was not tried, because they are so few that they are parsed together with
    their neighbours."""

    batch: pa.RecordBatch
    end: int
    closed: bool = False
    text: bool = False
    small: bool = False

    def cut(self, rows: int) -> tuple[Chunk, Chunk]:
        at = self.batch.column(ORDER_MINOR)[rows].as_py()
        first = Chunk(self.batch.slice(0, rows), at, text=self.text, small=self.small)
        return first, replace(self, batch=self.batch.slice(rows))


class Contents(Protocol):
    """The content of a source's files, text or Parquet. `schema` is that of the feed; `headers` are stored with it."""

    @property
    def schema(self) -> pa.Schema: ...
    @property
    def format(self) -> str: ...

    headers: list[tuple[str, ...]]
    # Whether bad records are only in chunks that are not parsed yet.
    separates_bad: bool

    def is_whole(self, path: Path) -> bool:
        """Whether a file is read as a whole, so that any change of it is a rewrite."""

    def opening(self, path: Path, tail: Tail) -> Opening | None:
        """How to read a new file, or None while it has no record; MP503 if it lacks a declared column."""

    def chunks(self, path: Path, opening: Opening, tail: Tail, major: int) -> Iterator[Chunk]:
        """The file's records from the opening's start on."""

    def parsed_together(self, small: Sequence[pa.RecordBatch]) -> Iterator[Chunk]:
        """The records of small chunks, in order, parsed; the text of those that could not be parsed."""

    def records(self, fed: DataFrame, text: bool) -> DataFrame:
        """The rows of a feed as records; `text`: some of them may not be parsed yet."""

    def arrow_records(self, fed: pa.Table, text: bool) -> pa.Table | None:
        """The same on the driver; None if Spark must parse."""


class TextContents:
    """JSON and CSV files. CSV headers are numbered, because files of one source may order their columns differently."""

    separates_bad = True

    def __init__(self, form: FileFormat, columns: Schema, *, declared: bool = True) -> None:
        self.form, self._columns, self._declared = form, columns, declared
        self.schema = feed_schema(columns)
        self.headers: list[tuple[str, ...]] = []

    @property
    def format(self) -> str:
        return self.form.name

    def is_whole(self, path: Path) -> bool:
        return is_compressed(path) or not self.form.byte_wise

    def opening(self, path: Path, tail: Tail) -> Opening | None:
        if is_compressed(path) and not is_whole_gzip(path):
            if tail is Tail.TAKE:
                raise cut_off(path)
            return None
        if not self.form.byte_wise and tail is Tail.LEAVE:
            return None
        layout = layout_of(path, self.form)
        if layout != "csv" or not self.form.header:
            return None if layout is None else Opening(layout, 0, 0 if layout == "csv" else -1)
        header = read_header(path, self.form, tail)
        if header is None:
            return None
        check_header(header.names, self._columns, path, declared=self._declared)
        return Opening(layout, header.end, self._number(header.names))

    def _number(self, names: tuple[str, ...]) -> int:
        if names not in self.headers:
            self.headers.append(names)
        return self.headers.index(names)

    def _names(self, header: int) -> Sequence[str]:
        return self.headers[header] if self.form.header else self._columns.names

    def chunks(
        self, path: Path, opening: Opening, tail: Tail, major: int, keep: Callable[[Piece], Piece] | None = None
    ) -> Iterator[Chunk]:
        """With `keep`, only the records that it returns for each piece."""
        names = self._names(opening.header) if opening.layout == "csv" else ()
        parse = quick_parser(self.form, opening.layout, self._columns, names)
        end = None if self.is_whole(path) else opening.size
        tail = Tail.TAKE if self.is_whole(path) else tail
        reading = ReadSpec(self.form, opening.layout, opening.start, tail, len(names), end)
        size = path.stat().st_size if opening.size is None else opening.size
        small = parse is not None and size - opening.start <= SMALL_BYTES
        source = opening.source or str(path)
        found = pieces(path, reading) if keep is None else map(keep, pieces(path, reading))
        for part, table in parsed(found, None if small else parse):
            if table is None:
                batch = unparsed_batch(part, source, major, opening.header, self.schema)
            else:
                batch = parsed_batch(part, table, source, major, self.schema)
            text = table is None and len(part) > 0
            yield Chunk(batch, part.end, part.closed, text, small=small and text and part.problem is None)

    def parsed_together(self, small: Sequence[pa.RecordBatch]) -> Iterator[Chunk]:
        for header, batches in groupby(small, lambda batch: batch.column(HEADER)[0].as_py()):
            layout = "csv" if self.form.name == "csv" else "lines"
            parse = quick_parser(self.form, layout, self._columns, self._names(header) if layout == "csv" else ())
            rows = pa.Table.from_batches(map(with_line_end, batches), self.schema).combine_chunks().to_batches()[0]
            piece = Piece(rows.column(VALUE), np.arange(rows.num_rows), rows.num_rows)
            for part, table in parsed([piece], parse):
                there = rows.slice(int(part.positions[0]), len(part))
                batch = there if table is None else parsed_rows(there, table)
                yield Chunk(batch, 0, text=table is None)

    def records(self, fed: DataFrame, text: bool) -> DataFrame:
        from pyspark.sql import functions as F

        parsed_rows = fed.where(F.col(VALUE).isNull()) if text else fed
        nothing = {BAD: F.lit(None).cast("string"), RAW: F.lit(None).cast("binary")}
        good = shaped(parsed_rows.withColumns(nothing), self._columns)
        if not text:
            return good
        parts = self._parse(fed.where(F.col(VALUE).isNotNull()))
        return reduce(lambda a, b: a.unionAll(b), [good, *parts])

    def arrow_records(self, fed: pa.Table, text: bool) -> pa.Table | None:
        wanted = [*self._columns.names, HIDDEN_SOURCE.name, ORDER_MAJOR, ORDER_MINOR]
        if not text:
            return fed.select(wanted)
        is_text = fed[VALUE].is_valid()
        found = [fed.filter(pc.invert(is_text)).select(wanted)]
        unparsed = fed.filter(is_text)
        for number in pc.unique(unparsed[HEADER]).to_pylist():
            rows = unparsed.filter(pc.equal(unparsed[HEADER], number))
            texts = Texts(*(rows[name].to_pylist() for name in (VALUE, PROBLEM, SUSPECT)))
            is_csv = self.form.name == "csv"
            parsed = parse_texts(
                texts, self._columns, self._names(number) if is_csv else (), self.form if is_csv else None
            )
            if parsed is None:
                return None
            for name in wanted[len(self._columns) :]:
                parsed = parsed.append_column(name, rows[name])
            found.append(parsed)
        return pa.concat_tables(found, promote_options="default")

    def _parse(self, fed: DataFrame) -> list[DataFrame]:
        """The records that are still text, parsed by Spark; CSV by header, because headers differ."""
        from pyspark.sql import functions as F

        from millpond.sources.records.spark_parsing import parse_csv, parse_json

        kept = [HIDDEN_SOURCE.name, ORDER_MAJOR, ORDER_MINOR]
        if self.form.name != "csv":
            return [shaped(parse_json(fed, self._columns, kept), self._columns)]
        headers = [list(names) for names in self.headers] if self.form.header else [list(self._columns.names)]
        return [
            shaped(parse_csv(fed.where(F.col(HEADER) == number), self._columns, kept, names, self.form), self._columns)
            for number, names in enumerate(headers)
        ]


def shaped(rows: DataFrame, columns: Schema) -> DataFrame:
    """Rows with the same columns in the same order, independent of the parser."""
    from pyspark.sql import functions as F

    from millpond.sources.records.column_types import quoted

    kept = (HIDDEN_SOURCE.name, ORDER_MAJOR, ORDER_MINOR, BAD, RAW)
    return rows.select(*[F.col(quoted(name)) for name in columns.names], *kept)


def cut_off(path: Path) -> SourceError:
    """MP502 for an incomplete compressed file."""
    hint = "It is read when it is complete: write it again, preferably under another name, and rename it at the end."
    return SourceError("MP502", f"'{path}' is incomplete: the end of the compressed file is missing.", hint=hint)


def is_whole_gzip(path: Path) -> bool:
    """Whether a compressed file is complete, according to its checksum. MP502 if it is not gzip."""
    try:
        with gzip.open(path, "rb") as file:
            while file.read(1 << 20):
                pass
    except EOFError:
        return False
    except (gzip.BadGzipFile, zlib.error) as error:
        message = f"'{path}' is not a gzip file: {error}."
        raise SourceError("MP502", message, hint="Compress it again, or remove .gz from its name.") from error
    return True
