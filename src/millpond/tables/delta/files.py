"""The files of one Delta table, through delta-rs: how they are created, read, merged into, and kept in order.

Each commit carries our mark as the transactions of an application: Delta stores the last number of each. A commit of a
number that is not the next one is not rejected by Delta, so the mark is compared before."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import deltalake
import pyarrow as pa
import pyarrow.compute as pc
from deltalake.exceptions import CommitFailedError, DeltaError, TableNotFoundError
from deltalake.transaction import CommitProperties, Transaction
from deltalake.writer import WriterProperties

from millpond.contracts.remote_table import Mark
from millpond.errors import MillpondError, SourceError
from millpond.faults import reach
from millpond.redact import redact
from millpond.schema import Schema, type_name
from millpond.tables.delta.datafusion import quoted
from millpond.tables.lookup_keys import Keys, among, key_columns
from millpond.uris import parse_uri

# The names of our numbers in the transactions of a Delta table.
VERSION, ROW, OWNER, MADE = "millpond.version", "millpond.row", "millpond.owner", "millpond.made"
OP, DELETE, UPSERT = "millpond_op", "d", "u"
# Rows that are pruned together: a lookup reads whole groups.
GROUP_ROWS = 65_536
# Rows of which those with a wanted key are kept at a time.
PORTION_ROWS = 262_144
# From this many small files on they are compacted; a table of up to this many rows is sorted by key then.
FILES_MAX, SMALL_BYTES, SORTED_ROWS_MAX = 16, 25_000_000, 5_000_000
# Each merge leaves the files that it has replaced: after this many versions, those that are old enough are removed.
VACUUM_VERSIONS = 64
HOUR_US = 3_600_000_000
# delta-rs writes its messages for a terminal.
COLOURS = re.compile(r"\x1b\[\d*m")
TIMEOUT_US = 30_000_000
_S3 = {
    "s3.endpoint": "AWS_ENDPOINT_URL",
    "s3.region": "AWS_REGION",
    "s3.access.key": "AWS_ACCESS_KEY_ID",
    "s3.secret.key": "AWS_SECRET_ACCESS_KEY",
    "s3.session.token": "AWS_SESSION_TOKEN",
}


class DeltaFiles:
    """One Delta table; used by one thread at a time, except `read`. `snapshot` is the newest version that was seen."""

    def __init__(self, path: str, schema: Schema, values: Mapping[str, Any]) -> None:
        self.path, self._schema = path.replace("s3a://", "s3://", 1), schema
        self.is_local = "://" not in path
        self._values = {**dict.fromkeys(_S3), "s3.timeout": TIMEOUT_US, **values}
        given = {name: str(values[option]) for option, name in _S3.items() if values.get(option) is not None}
        self._options = (
            None
            if self.is_local
            else {
                "AWS_ALLOW_HTTP": "true",
                "timeout": f"{self._values['s3.timeout'] // 1000}ms",
                **given,
            }
        )
        self._table: deltalake.DeltaTable | None = None
        self._vacuumed_version = 0
        self.snapshot: Any = None

    @property
    def table(self) -> deltalake.DeltaTable:
        assert self._table is not None, "used before it is opened"
        return self._table

    @contextmanager
    def translated(self) -> Iterator[None]:
        """Errors of delta-rs as ours."""
        try:
            yield
        except MillpondError:
            raise
        except (DeltaError, OSError, pa.ArrowException) as error:
            text = re.sub(r"\s+", " ", COLOURS.sub("", redact(str(error))))
            message = f"The Delta table {self.path} cannot be used: {text[:300].rstrip('. ')}."
            if self.is_local:
                hint = "Check that the folder exists and can be written."
                raise SourceError("MP506", message, hint=hint) from error
            denied = re.search(r"\b40[13]\b", text)
            hint = "Check 's3.access.key' and 's3.secret.key'." if denied else "Check 's3.endpoint' and the network."
            raise SourceError("MP507" if denied else "MP506", message, hint=hint) from error

    # The life of the files

    def open(self) -> bool:
        """Open the table; False if there is none."""
        with self.translated():
            try:
                self._table = deltalake.DeltaTable(self.path, storage_options=self._options)
            except TableNotFoundError:
                return False
            self._read_again()
            return True

    def create(self, owner: int) -> None:
        with self.translated():
            # All columns may be NULL there: what is NOT NULL is checked here, and deletes are merged without values.
            columns = pa.schema([pa.field(c.name, c.type) for c in self._schema])
            about = _commit(Mark(0), owner, made=True)
            if self.is_local:
                Path(self.path).mkdir(parents=True, exist_ok=True)
            self._table = deltalake.DeltaTable.create(
                self.path, columns, storage_options=self._options, commit_properties=about
            )
            self._read_again()

    def remove(self) -> None:
        """Remove everything."""
        if self.is_local:
            shutil.rmtree(self.path, ignore_errors=True)
            return
        from millpond.objects.bucket import Bucket

        uri = parse_uri(self.path)
        bucket = Bucket(uri, self._values, lambda code, message, hint: SourceError(code, message, hint=hint))
        bucket.delete([found.key for found in bucket.list(uri.path.strip("/"))])

    def refresh(self) -> None:
        """See what others have committed."""
        with self.translated():
            before = self.table.version()
            self.table.update_incremental()
            if self.table.version() != before:
                self._read_again()

    def _read_again(self) -> None:
        # A handle of its own, because that of the writer moves on.
        self.snapshot = deltalake.DeltaTable(self.path, version=self.table.version(), storage_options=self._options)

    # What Delta has stored

    def held(self) -> tuple[Mark, int | None, bool]:
        """The mark, the number of the owner, and whether that one has created the table."""
        with self.translated():
            number, row, owner, made = (self.table.transaction_version(name) for name in (VERSION, ROW, OWNER, MADE))
        return Mark(number or 0, row or 0), owner, bool(made)

    def own(self, mark: Mark, owner: int, *, made: bool) -> None:
        """Register an owner, by a commit without rows."""
        with self.translated():
            deltalake.write_deltalake(
                self.table, self._empty(), mode="append", commit_properties=_commit(mark, owner, made=made)
            )
            self._read_again()

    def differences(self) -> list[str]:
        """How the columns of the table differ from those that are declared."""
        held = {field.name: field.type for field in pa.schema(self.table.schema().to_arrow())}
        wrong = []
        for column in self._schema:
            found = held.pop(column.name, None)
            if found is None:
                wrong.append(f"column '{column.name}' is missing")
            elif found != column.type:
                wrong.append(f"column '{column.name}' is {type_name(found)}, not {type_name(column.type)}")
        return wrong + [f"column '{name}' is not declared here" for name in held]

    def count(self) -> int:
        with self.translated():
            return int(self.table.count())

    # Reading

    def read(self, snapshot: Any, condition: str | None = None, columns: Sequence[str] | None = None) -> pa.Table:
        """The rows of a version for which a condition in DataFusion's SQL is true; only the files, row groups and pages
        are read whose statistics permit it."""
        names = list(columns if columns is not None else self._schema.names)
        schema = pa.schema([self._schema.arrow().field(name) for name in names])
        with self.translated():
            return pa.table(snapshot.scan(columns=names, predicate=condition)).select(names).cast(schema)

    def read_keys(self, snapshot: Any, condition: str | None, keys: Keys) -> pa.Table:
        """The same, only the rows with one of some keys: the others are dropped while the files are read."""
        schema = self._schema.arrow()
        kept = [schema.empty_table()]
        with self.translated():
            rows = pa.RecordBatchReader.from_stream(snapshot.scan(columns=schema.names, predicate=condition))
            for part in _portions(rows):
                block = part.select(schema.names).cast(schema)
                kept.append(block.filter(pa.array(among(key_columns(self._schema, block), keys))))
        return pa.concat_tables(kept)

    # Writing

    def append(self, rows: pa.Table, mark: Mark, owner: int) -> None:
        """Add rows whose keys the files do not have."""
        with self.translated():
            reach("delta.merge.begin")
            deltalake.write_deltalake(
                self.table,
                _sorted(rows, self._schema),
                mode="append",
                writer_properties=_properties(),
                commit_properties=_commit(mark, owner),
            )
            reach("delta.merge.done")
            self._read_again()

    def merge(self, upserts: pa.Table, deletes: pa.Table, mark: Mark, owner: int) -> None:
        """Write rows and delete keys, in one commit. MP506 if another commit came between."""
        source = _source(self._schema, upserts, deletes)
        equal = " AND ".join(_equal(self._schema, name) for name in self._schema.key)
        values = {quoted(name): f"s.{quoted(name)}" for name in self._schema.names}
        with self.translated():
            reach("delta.merge.begin")
            merger = self.table.merge(
                source,
                equal,
                source_alias="s",
                target_alias="t",
                writer_properties=_properties(),
                commit_properties=_commit(mark, owner),
            )
            merger.when_matched_delete(f"s.{OP} = '{DELETE}'").when_matched_update(
                values, f"s.{OP} = '{UPSERT}'"
            ).when_not_matched_insert(values, f"s.{OP} = '{UPSERT}'").execute()
            reach("delta.merge.done")
            self._read_again()

    def tidy(self, kept_us: int) -> bool:
        """Compact many small files into few, and remove files that no version of the last time needs. Whether there was
        anything to do."""
        with self.translated():
            files = pa.table(self.table.get_add_actions(flatten=True))
            small = pc.sum(pc.less(files["size_bytes"], SMALL_BYTES)).as_py() or 0
            compacts = small >= FILES_MAX
            if not compacts and self.table.version() - self._vacuumed_version < VACUUM_VERSIONS:
                return False
            with _conflicts_ignored():
                if compacts:
                    self._compact(pc.sum(files["num_records"]).as_py())
                hours = kept_hours(kept_us)
                self.table.vacuum(retention_hours=hours, dry_run=False, enforce_retention_duration=False)
            self._vacuumed_version = self.table.version()
            self._read_again()
            return True

    def _compact(self, rows: int | None) -> None:
        if rows is not None and rows <= SORTED_ROWS_MAX and all(map(self._is_sortable, self._schema.key)):
            self.table.optimize.z_order(list(self._schema.key), writer_properties=_properties())
        else:
            self.table.optimize.compact(writer_properties=_properties())
        reach("delta.compacted")

    def _is_sortable(self, name: str) -> bool:
        return not pa.types.is_nested(self._schema[name].type)

    def _empty(self) -> pa.Table:
        return pa.schema([pa.field(c.name, c.type) for c in self._schema]).empty_table()


def _portions(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.Table]:
    """Batches, which are small, joined into portions of some size."""
    held: list[pa.RecordBatch] = []
    for batch in batches:
        held.append(batch)
        if sum(each.num_rows for each in held) >= PORTION_ROWS:
            yield pa.Table.from_batches(held)
            held = []
    if held:
        yield pa.Table.from_batches(held)


def kept_hours(kept_us: int) -> int:
    """How long replaced files are kept: Delta counts in hours, and nothing is removed too early."""
    return -(-kept_us // HOUR_US)


@contextmanager
def _conflicts_ignored() -> Iterator[None]:
    """Someone else compacts the same files: then there is nothing to do."""
    try:
        yield
    except CommitFailedError:
        return


def _commit(mark: Mark, owner: int, *, made: bool | None = None) -> CommitProperties:
    numbers = {VERSION: mark.number, ROW: mark.next_row, OWNER: owner}
    if made is not None:
        numbers[MADE] = int(made)
    about = {"millpond": json.dumps({"version": mark.number})}
    return CommitProperties(
        custom_metadata=about, app_transactions=[Transaction(name, number) for name, number in numbers.items()]
    )


def _properties() -> WriterProperties:
    return WriterProperties(compression="SNAPPY", max_row_group_size=GROUP_ROWS)


def _equal(schema: Schema, name: str) -> str:
    left, right = f"t.{quoted(name)}", f"s.{quoted(name)}"
    if pa.types.is_floating(schema[name].type):
        # Both zeros are one key, and so are all that are not a number.
        left, right = (f"nanvl({side} + 0, CAST('NaN' AS DOUBLE))" for side in (left, right))
    return f"{left} IS NOT DISTINCT FROM {right}"


def _source(schema: Schema, upserts: pa.Table, deletes: pa.Table) -> pa.Table:
    """The changes as one table, with what to do in a column of its own."""
    absent = [
        deletes[c.name] if c.name in schema.key else pa.nulls(deletes.num_rows, c.type) for c in schema
    ]  # fmt: skip
    fields = pa.schema([pa.field(c.name, c.type) for c in schema])
    parts = [(upserts.cast(fields), UPSERT), (pa.table(absent, schema=fields), DELETE)]
    return pa.concat_tables(
        [rows.append_column(OP, pa.array([op] * rows.num_rows, pa.string())) for rows, op in parts]
    ).combine_chunks()


def _sorted(rows: pa.Table, schema: Schema) -> pa.Table:
    """Rows in the order of their keys, so that lookups read few groups."""
    keys = [name for name in schema.key if not pa.types.is_nested(schema[name].type)]
    try:
        return rows.sort_by([(name, "ascending") for name in keys])
    except (pa.ArrowNotImplementedError, pa.ArrowInvalid):
        return rows
