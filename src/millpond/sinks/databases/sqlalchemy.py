"""sql://driver:rest as a sink: rows are upserted or appended in any database with a SQLAlchemy driver.

Guarantee: at least once. Rows are stored in the outbox before our commit and written after it. After a crash in between
the last output is written again: an upsert changes nothing then, appended rows are doubled.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from millpond.contracts.sink import Sink, SinkPlugin, SinkSpec
from millpond.databases.address import SINK_PARAMETERS
from millpond.databases.driver_values import last_of_each
from millpond.databases.options import WRITING
from millpond.databases.sqlalchemy import SCHEME, address, described, engine_of, translated
from millpond.errors import SinkError, SourceError
from millpond.options import TEXT, Option
from millpond.rendering import plain_texts
from millpond.schema import Column, Schema
from millpond.sinks.databases.sink import DELETE, OPERATION, DatabaseSink, Rejected, Target, written_by_halves
from millpond.sinks.outbox import Parcel
from millpond.uris import Uri

# Keys that one statement looks up.
KEYS_MAX = 200
WRITTEN = ("table", "schema", "key", "create", "batch.size")
OPTIONS = (
    Option("driver", TEXT, None, "The name of the SQLAlchemy driver, in place of the one in the URI."),
    *(option for option in WRITING if option.name in WRITTEN),
)


class SqlTarget(Target):
    """One table, written by transactions of their own."""

    def __init__(self, spec: SinkSpec) -> None:
        self._spec = spec
        with self._translated():
            self._engine = engine_of(spec.uri, spec.values, spec.base, spec.shown, reads=False)
            self._describe()

    def _describe(self) -> None:
        table, schema = self._spec.values["table"], self._spec.values["schema"]
        try:
            columns, key = described(self._engine, table, schema)
        except KeyError:
            columns, key = None, []
        self.columns = None if columns is None else columns.with_key(tuple(key))

    @contextmanager
    def _translated(self) -> Iterator[None]:
        """Errors of the driver as those of a sink."""
        try:
            with translated(self._spec.shown):
                yield
        except SourceError as error:
            problem = error.problems[0]
            if problem.code == "MP309":
                raise
            code = "MP602" if problem.code == "MP506" else "MP601"
            message = problem.message.replace("cannot be read", "cannot be written")
            raise SinkError(code, message, hint=problem.hint) from error

    def _table(self, columns: Schema) -> Any:
        import sqlalchemy as sa

        # A key gets its values from us: SQLAlchemy makes an integer key a sequence (SERIAL) unless it is asked not to.
        made = [
            sa.Column(c.name, self._type(c), primary_key=c.name in columns.key, autoincrement=False) for c in columns
        ]
        return sa.Table(self._spec.values["table"], sa.MetaData(), *made, schema=self._spec.values["schema"])

    def _type(self, column: Column) -> Any:
        import sqlalchemy as sa

        type_ = column.type
        assert type_ is not None
        kinds: tuple[tuple[Any, Any], ...] = (
            (pa.types.is_boolean, sa.Boolean),
            (pa.types.is_int64, sa.BigInteger),
            (pa.types.is_integer, sa.Integer),
            (pa.types.is_floating, sa.Double),
            (pa.types.is_timestamp, sa.DateTime),
            (pa.types.is_date, sa.Date),
            (pa.types.is_binary, sa.LargeBinary),
        )
        if pa.types.is_decimal(type_):
            return sa.Numeric(type_.precision, type_.scale)
        return next((found for fits, found in kinds if fits(type_)), sa.Text)

    def create(self, columns: Schema) -> None:
        with self._translated():
            self._table(columns).create(self._engine, checkfirst=True)
            self._describe()

    def has_unique(self, key: Sequence[str]) -> bool:
        """Rows are looked up by their key: an index is for the database to have."""
        return True

    def accepts(self, type_: pa.DataType, column: Column) -> bool:
        """Databases differ in what they cast: only a text for a number or a time is known to be wrong."""
        kinds = (pa.types.is_integer, pa.types.is_floating, pa.types.is_decimal, pa.types.is_temporal)
        return not (pa.types.is_string(type_) and any(kind(column.type) for kind in kinds))

    def apply(self, parcel: Parcel, key: tuple[str, ...], owner: str, reject: Callable[[Rejected], None]) -> int:
        assert self.columns is not None
        rejected: Rejected = []
        own = {name: self.columns[name].name for name in parcel.schema.names if name != OPERATION}
        keys = [name for name, column in own.items() if column in key]
        fields = [Column(own[f.name], f.type) for f in parcel.schema if f.name != OPERATION]
        table = self._table(Schema.of(fields))

        def write(rows: pa.Table) -> None:
            with self._engine.begin() as connection:
                self._write(connection, table, rows, own, keys)

        with self._translated():
            batches = (pa.Table.from_batches([batch]) for batch in parcel.rows())
            written = sum(written_by_halves(rows, write, _rejection, rejected) for rows in batches)
        reject(rejected)
        return written

    def _write(self, connection: Any, table: Any, rows: pa.Table, own: dict[str, str], keys: list[str]) -> None:
        """Upsert rows by their key, or append them."""
        import sqlalchemy as sa

        if not keys:
            connection.execute(sa.insert(table), self._values(rows, own))
            return
        rows = last_of_each(rows, keys)
        names = [own[name] for name in keys]
        if OPERATION in rows.column_names:
            is_gone = pc.fill_null(pc.equal(rows[OPERATION], DELETE), False)
            gone = self._values(rows.filter(is_gone), {name: own[name] for name in keys})
            if gone:
                connection.execute(sa.delete(table).where(*_matches(table, names)), _bound(gone, names))
            rows = rows.filter(pc.invert(is_gone))
        values = self._values(rows, own)
        there = set().union(*(_existing(connection, table, names, part) for part in _parts(values)))
        known = [row for row in values if tuple(row[name] for name in names) in there]
        others = [row for row in values if tuple(row[name] for name in names) not in there]
        changed = [column for column in own.values() if column not in names]
        if known and changed:
            sets = {column: sa.bindparam(f"v_{column}") for column in changed}
            update = sa.update(table).where(*_matches(table, names)).values(sets)
            both = [
                {**k, **{f"v_{c}": row[c] for c in changed}} for k, row in zip(_bound(known, names), known, strict=True)
            ]
            connection.execute(update, both)
        if others:
            connection.execute(sa.insert(table), others)

    def _values(self, rows: pa.Table, own: dict[str, str]) -> list[dict[str, Any]]:
        """Rows as drivers take them: moments without a zone, in UTC; nested values as JSON."""
        columns = {}
        for name, column in own.items():
            values, type_ = rows[name], rows[name].type
            if pa.types.is_timestamp(type_):
                columns[column] = values.cast(pa.timestamp("us")).to_pylist()
            elif pa.types.is_nested(type_):
                columns[column] = plain_texts(values.combine_chunks())
            elif pa.types.is_decimal(type_) and self._engine.dialect.name == "sqlite":
                # Its driver has no decimals, and stores their texts as exactly as the column can.
                columns[column] = [None if v is None else _shortest(v) for v in values.to_pylist()]
            else:
                columns[column] = values.to_pylist()
        return [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]

    def close(self) -> None:
        self._engine.dispose()


def _shortest(value: Decimal) -> Any:
    return int(value) if value == value.to_integral_value() and abs(value) < 2**63 else float(value)


def _matches(table: Any, names: list[str]) -> list[Any]:
    """A condition on the key, whose values are bound for each row."""
    import sqlalchemy as sa

    return [table.c[name] == sa.bindparam(f"k_{name}") for name in names]


def _bound(rows: list[dict[str, Any]], names: list[str]) -> list[dict[str, Any]]:
    return [{f"k_{name}": row[name] for name in names} for row in rows]


def _parts(rows: list[dict[str, Any]]) -> Iterator[list[dict[str, Any]]]:
    for first in range(0, len(rows), KEYS_MAX):
        yield rows[first : first + KEYS_MAX]


def _existing(connection: Any, table: Any, names: list[str], rows: list[dict[str, Any]]) -> set[tuple[Any, ...]]:
    """The keys of rows that the table has."""
    import sqlalchemy as sa

    conditions = [sa.and_(*(table.c[name] == row[name] for name in names)) for row in rows]
    query = sa.select(*(table.c[name] for name in names)).where(sa.or_(*conditions))
    return {tuple(row) for row in connection.execute(query)}


def _rejection(error: Exception) -> str | None:
    """The message of the database for a row that it rejects."""
    import sqlalchemy as sa

    if isinstance(error, sa.exc.IntegrityError | sa.exc.DataError):
        return f"The database rejects the row: {str(error.orig).strip().splitlines()[0]}."
    return None


def open_sink(spec: SinkSpec) -> Sink:
    return DatabaseSink(spec, SqlTarget)


def validate(spec: SinkSpec) -> str | None:
    if not address(spec.uri, spec.values)[0]:
        return "sql:// names a driver: sql://sqlite:/data/parts.db?table=parts."
    names = [name.lower() for name, _ in spec.uri.params]
    if any(name not in SINK_PARAMETERS for name in names):
        return f"The URI of a database that is written has the parameters {' and '.join(SINK_PARAMETERS)} only."
    return (
        None if spec.values["table"] else "The URI names the table that is written: sql://sqlite:parts.db?table=parts."
    )


def located(uri: Uri, given: Any, named: Any) -> dict[str, Any]:
    """The values with the parameters of the URI."""
    own = {name.lower(): text for name, text in uri.params if name.lower() in SINK_PARAMETERS}
    return {**own, **given}


PLUGIN = SinkPlugin(
    name=SCHEME,
    options=OPTIONS,
    guarantee="at least once",
    open=open_sink,
    validate=validate,
    set_by=lambda uri: tuple(name.lower() for name, _ in uri.params),
    located=located,
)
