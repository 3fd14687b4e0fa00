"""PostgreSQL's catalogs, for clients that list tables and columns: a picture of the app's tables in SQLite."""

from __future__ import annotations

import json
import re
import sqlite3
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import sqlglot
from sqlglot import exp
from sqlglot.errors import SqlglotError

from millpond.contracts.source import without_identity
from millpond.serve.postgres.catalog_functions import (
    KEY_COLUMNS,
    LIST,
    SETTINGS,
    Listed,
    adapted,
    functions,
    is_list,
    shown_type,
    table_oid,
)
from millpond.serve.postgres.catalog_tables import COLUMNS, INFORMATION
from millpond.serve.postgres.wire_values import NUMERIC, TYPES, modifier_of, oid_of

if TYPE_CHECKING:
    from millpond.app.app import App

PUBLIC, CATALOG, SCHEMATA, OWNER, DATABASE = 2200, 11, 13_000, 10, 16_000
SCHEMAS = ("pg_catalog", "information_schema")
BOOLEANS = re.compile(
    r"^(relhas\w+|relrow\w+|relforce\w+|relis\w+|att(notnull|hasdef|isdropped|islocal)|indis\w+|condefer\w+|"
    r"rol(super|inherit|create\w+|canlogin|replication|bypassrls)|use(createdb|super|repl|bypassrls)|"
    r"dat(istemplate|allowconn)|has(indexes|rules|triggers)|puball\w+|typ(byval|notnull|isdefined))$"
)
_CATALOG_NAME = re.compile(
    r"\b(pg_\w+|information_schema|current_database|current_schemas?|current_setting|set_config|"
    r"version\s*\(|session_user|current_catalog|has_\w+_privilege)",
    re.I,
)


def mentions_catalog(sql: str) -> bool:
    """Whether a statement reads something of PostgreSQL's own, and not for the tables of the app."""
    return _CATALOG_NAME.search(sql) is not None


class Catalog:
    """The catalogs at one moment; made for one query, since tables come and go."""

    def __init__(self, app: App, database: str, user: str) -> None:
        self._app = app
        self._database, self._user = database, user
        self._connection = sqlite3.connect(":memory:")
        for schema in SCHEMAS:
            self._connection.execute(f"ATTACH ':memory:' AS {schema}")
        for name, columns in COLUMNS.items():
            place = "information_schema" if name in INFORMATION else "pg_catalog"
            # Clients write numbers as texts, which are equal to a number where the column is numeric.
            kind = "" if name in INFORMATION or name == "pg_settings" else " NUMERIC"
            typed = [f"{column}{'' if column.endswith('name') else kind}" for column in columns.split()]
            self._connection.execute(f'CREATE TABLE {place}."{name}" ({", ".join(typed)})')
        self._connection.execute(f"CREATE TABLE {KEY_COLUMNS} (of_index, number, place)")
        self._connection.create_aggregate(LIST, 2, Listed)  # type: ignore[arg-type]
        self._fill()
        keys = {table_oid(f"{n}_pkey"): list(getattr(s, "key", ())) for n, s, _ in self._relations()}
        names = {table_oid(n): n for n, _, _ in self._relations()}
        for name, function in functions(self._database, self._user, names, keys).items():
            self._connection.create_function(name, -1, function)

    def answer(self, sql: str) -> pa.Table:
        """The rows of a query over the catalogs. One that uses more of PostgreSQL than there is here has no rows: it
        reads things that an app does not have."""
        tree = sqlglot.parse_one(sql, dialect="postgres")
        selects = tree.selects if isinstance(tree, exp.Query) else []
        kinds = [LIST if is_list(e) else "boolean" if _is_boolean(e) else "" for e in selects]
        names = tree.named_selects if isinstance(tree, exp.Query) else []
        try:
            cursor = self._connection.execute(adapted(tree))
            rows, names = cursor.fetchall(), [column[0] for column in cursor.description]
        except (sqlite3.Error, SqlglotError):
            rows = []
        names = [_function_name(selects[n]) or name if n < len(selects) else name for n, name in enumerate(names)]
        columns = list(zip(*rows, strict=True)) if rows else [() for _ in names]
        made = [_column(list(values), kinds[n] if n < len(kinds) else "") for n, values in enumerate(columns)]
        return pa.Table.from_arrays(made, names=list(names))

    def close(self) -> None:
        self._connection.close()

    def _add(self, table: str, /, **values: Any) -> None:
        place = "information_schema" if table in INFORMATION else "pg_catalog"
        marks = ", ".join("?" * len(values))
        sql = f"INSERT INTO {place}.{table} ({', '.join(values)}) VALUES ({marks})"
        self._connection.execute(sql, [*values.values()])

    def _fill(self) -> None:
        for oid, name in ((PUBLIC, "public"), (CATALOG, "pg_catalog"), (SCHEMATA, "information_schema")):
            self._add("pg_namespace", oid=oid, nspname=name, nspowner=OWNER)
            self._add("schemata", catalog_name=self._database, schema_name=name, schema_owner=self._user)
        self._add(
            "pg_database",
            oid=DATABASE,
            datname=self._database,
            datdba=OWNER,
            encoding=6,
            datistemplate=0,
            datallowconn=1,
            datcollate="C",
            datctype="C",
            datlocprovider="c",
        )
        self._add("pg_roles", oid=OWNER, rolname=self._user, rolsuper=0, rolinherit=1, rolcanlogin=1)
        self._add("pg_user", usename=self._user, usesysid=OWNER, usesuper=0)
        self._add("pg_am", oid=2, amname="heap", amtype="t")
        self._add("pg_tablespace", oid=1663, spcname="pg_default", spcowner=OWNER)
        for name, setting in SETTINGS.items():
            self._add("pg_settings", name=name, setting=setting, context="internal", vartype="string")
        for oid, (name, size) in TYPES.items():
            self._add(
                "pg_type",
                oid=oid,
                typname=name,
                typnamespace=CATALOG,
                typlen=size,
                typtype="b",
                typelem=0,
                typrelid=0,
                typbasetype=0,
                typisdefined=1,
                typcategory="U",
                typdelim=",",
                typarray=0,
            )
        for name, schema, kind in self._relations():
            self._add_relation(name, schema, kind)

    def _relations(self) -> Iterator[tuple[str, Any, str]]:
        views = {view.name.lower() for view in self._app.plan.views}
        for name in self._app.tables():
            yield name, without_identity(self._app.table(name).schema), "v" if name.lower() in views else "r"
        known = {name.lower() for name in self._app.tables()}
        for view in self._app.plan.views:
            if view.name.lower() not in known and view.columns is not None:
                yield view.name, view.columns, "v"

    def _add_relation(self, name: str, schema: Any, kind: str) -> None:
        oid, key = table_oid(name), list(getattr(schema, "key", ()))
        self._add(
            "pg_class",
            oid=oid,
            relname=name,
            relnamespace=PUBLIC,
            relowner=OWNER,
            relam=2,
            relkind=kind,
            relpersistence="p",
            relhasindex=int(bool(key)),
            relnatts=len(list(schema)),
            relchecks=0,
            relhasrules=0,
            relhastriggers=0,
            relrowsecurity=0,
            relforcerowsecurity=0,
            relispartition=0,
            reltablespace=0,
            reloftype=0,
            reltoastrelid=0,
            relreplident="d",
            reltuples=-1,
            relhassubclass=0,
            relhasoids=0,
        )
        place = {"table_catalog": self._database, "table_schema": "public", "table_name": name}
        view = kind == "v"
        self._add("tables", **place, table_type="VIEW" if view else "BASE TABLE", is_insertable_into="NO")
        if view:
            self._add("pg_views", schemaname="public", viewname=name, viewowner=self._user, definition="")
        else:
            self._add(
                "pg_tables", schemaname="public", tablename=name, tableowner=self._user, hasindexes=int(bool(key))
            )
        for number, column in enumerate(schema, 1):
            self._add_column(oid, place, number, column, key)
        if key:
            self._add_key(name, oid, key, [column.name for column in schema])

    def _add_column(self, table: int, place: dict[str, str], number: int, column: Any, key: list[str]) -> None:
        type_ = oid_of(column.type)
        required = not getattr(column, "nullable", True) or column.name in key
        self._add(
            "pg_attribute",
            attrelid=table,
            attname=column.name,
            atttypid=type_,
            attlen=TYPES[type_][1],
            attnum=number,
            atttypmod=modifier_of(column.type),
            attnotnull=int(required),
            atthasdef=0,
            attidentity="",
            attgenerated="",
            attisdropped=0,
            attislocal=1,
            attcollation=0,
            attndims=0,
        )
        self._add(
            "columns",
            **place,
            column_name=column.name,
            ordinal_position=number,
            is_nullable="NO" if required else "YES",
            data_type=shown_type(type_, -1),
            udt_schema="pg_catalog",
            udt_name=TYPES[type_][0],
            is_identity="NO",
            is_generated="NEVER",
            numeric_precision=column.type.precision if type_ == NUMERIC else None,
            numeric_scale=column.type.scale if type_ == NUMERIC else None,
        )

    def _add_key(self, name: str, oid: int, key: list[str], columns: list[str]) -> None:
        index, numbers = table_oid(f"{name}_pkey"), [columns.index(column) + 1 for column in key]
        self._add(
            "pg_class",
            oid=index,
            relname=f"{name}_pkey",
            relnamespace=PUBLIC,
            relowner=OWNER,
            relkind="i",
            relpersistence="p",
            reltablespace=0,
            relam=403,
        )
        listed = " ".join(map(str, numbers))
        for place_in_key, number in enumerate(numbers):
            self._connection.execute(f"INSERT INTO {KEY_COLUMNS} VALUES (?, ?, ?)", [index, number, place_in_key])
        self._add(
            "pg_index",
            indexrelid=index,
            indrelid=oid,
            indnatts=len(key),
            indnkeyatts=len(key),
            indisunique=1,
            indisprimary=1,
            indisvalid=1,
            indisclustered=0,
            indisreplident=0,
            indisexclusion=0,
            indimmediate=1,
            indkey=listed,
            indisready=1,
            indislive=1,
        )
        self._add(
            "pg_constraint",
            oid=index + 1,
            conname=f"{name}_pkey",
            connamespace=PUBLIC,
            contype="p",
            conrelid=oid,
            conindid=index,
            condeferrable=0,
            condeferred=0,
            convalidated=1,
            confrelid=0,
            conkey="{" + listed.replace(" ", ",") + "}",
        )
        place = {"table_catalog": self._database, "table_schema": "public", "table_name": name}
        named = {"constraint_catalog": self._database, "constraint_schema": "public", "constraint_name": f"{name}_pkey"}
        self._add("table_constraints", **named, **place, constraint_type="PRIMARY KEY")
        for position, column in enumerate(key, 1):
            self._add("key_column_usage", **named, **place, column_name=column, ordinal_position=position)


def _function_name(expression: exp.Expr) -> str:
    """The name of a column without an alias that is the call of a function: as in PostgreSQL, that of the function."""
    found = expression.args["expression"] if isinstance(expression, exp.Dot) else expression
    return found.sql(dialect="postgres").partition("(")[0].lower() if isinstance(found, exp.Func) else ""


def _is_boolean(expression: exp.Expr) -> bool:
    inner = expression.unalias()
    if isinstance(inner, exp.Column):
        return BOOLEANS.match(inner.name.lower()) is not None
    return isinstance(inner, exp.Predicate | exp.Not | exp.Boolean | exp.Connector)


def _column(values: list[Any], kind: str) -> pa.Array:
    if kind == LIST:
        return pa.array([None if value is None else json.loads(value) for value in values], pa.list_(pa.string()))
    if kind == "boolean":
        return pa.array([None if value is None else bool(value) for value in values], pa.bool_())
    kinds = {type(value) for value in values if value is not None}
    if kinds == {int}:
        return pa.array(values, pa.int64())
    return pa.array([None if value is None else str(value) for value in values], pa.string())
