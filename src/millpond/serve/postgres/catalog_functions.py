"""PostgreSQL's functions and words as SQLite, in which the catalogs are asked, has them."""

from __future__ import annotations

import json
import re
import zlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from sqlglot import exp
from sqlglot.errors import ErrorLevel

from millpond.serve.postgres.wire_values import NUMERIC, TYPES

VERSION = "15.0"
VERSION_TEXT = f"PostgreSQL {VERSION} (Millpond)"
SETTINGS = {
    "server_version": VERSION,
    "server_version_num": "150000",
    "server_encoding": "UTF8",
    "client_encoding": "UTF8",
    "DateStyle": "ISO, MDY",
    "IntervalStyle": "postgres",
    "TimeZone": "UTC",
    "integer_datetimes": "on",
    "standard_conforming_strings": "on",
    "is_superuser": "off",
    "search_path": "public",
    "transaction_isolation": "read committed",
    "transaction_read_only": "off",
    "default_transaction_read_only": "off",
    "max_identifier_length": "63",
    "statement_timeout": "0",
    "extra_float_digits": "1",
    "application_name": "",
    "lc_collate": "C",
    "ssl": "off",
}
# Names of types as `\d` shows them.
SHOWN = {
    "bool": "boolean",
    "int8": "bigint",
    "int2": "smallint",
    "int4": "integer",
    "float4": "real",
    "float8": "double precision",
    "varchar": "character varying",
    "timestamp": "timestamp without time zone",
    "timestamptz": "timestamp with time zone",
}
# Functions of which every call has the same result.
CONSTANTS: Mapping[str, Any] = {
    "version": VERSION_TEXT,
    "pg_backend_pid": 1,
    "pg_is_in_recovery": 0,
    "txid_current": 1,
    "pg_encoding_to_char": "UTF8",
    "pg_table_is_visible": 1,
    "pg_type_is_visible": 1,
    "pg_function_is_visible": 1,
    "has_table_privilege": 1,
    "has_schema_privilege": 1,
    "has_database_privilege": 1,
    "has_any_column_privilege": 1,
    "has_column_privilege": 1,
    "pg_relation_is_publishable": 0,
    "current_schema": "public",
    "current_schemas": "{public}",
    "pg_total_relation_size": 0,
    "pg_relation_size": 0,
    "pg_database_size": 0,
    "pg_size_pretty": "0 bytes",
}
# Functions that find nothing here; so do others of PostgreSQL that are not known.
NOTHING = (
    "obj_description",
    "col_description",
    "shobj_description",
    "array_to_string",
    "inet_server_addr",
    "json_build_object",
)
# The table of the columns of keys, and the aggregate that makes a list.
KEY_COLUMNS, LIST = "mp_key_columns", "mp_list"
# How often words may be inside of others.
DEPTH_MAX = 12


def table_oid(name: str) -> int:
    return 16_384 + zlib.crc32(name.lower().encode()) % 1_000_000_000


def functions(
    database: str, user: str, names: Mapping[int, str], keys: Mapping[int, Sequence[str]]
) -> dict[str, Callable[..., Any]]:
    """The functions by name; `names` are the tables by their numbers, `keys` the columns of primary keys by theirs."""
    constants = {**CONSTANTS, "current_database": database, "current_user": user, "pg_get_userbyid": user}
    found: dict[str, Callable[..., Any]] = {
        name: lambda *_, value=value: value for name, value in {**constants, **dict.fromkeys(NOTHING)}.items()
    }
    return found | {
        "mp_matches": lambda text, pattern: int(text is not None and re.search(pattern, str(text)) is not None),
        "mp_relation": lambda given: _relation(given, names),
        "mp_part": lambda text, number: str(text).split(".")[int(number)].strip('"'),
        "mp_parts": lambda text: len(str(text).split(".")),
        "format_type": shown_type,
        "to_regclass": lambda name: _relation(name, names),
        "quote_ident": lambda name: name,
        "current_setting": lambda name, *_: SETTINGS.get(str(name), ""),
        "set_config": lambda name, value, local: value,
        "pg_get_constraintdef": lambda oid, *_: f"PRIMARY KEY ({', '.join(keys.get((oid or 0) - 1, ()))})",
        "pg_get_indexdef": lambda oid, *_: f"CREATE UNIQUE INDEX ON t USING btree ({', '.join(keys.get(oid, ()))})",
    }


def _relation(given: Any, names: Mapping[int, str]) -> Any:
    """`'users'::regclass` is a number, and a number as text is a name."""
    if isinstance(given, int) or str(given).isdigit():
        return int(given)
    plain = str(given).split(".")[-1].strip('"')
    known = {name.lower(): oid for oid, name in names.items()}
    return known.get(plain.lower(), table_oid(plain))


def shown_type(oid: int | None, modifier: int | None) -> str | None:
    """The name of a type, as PostgreSQL writes it."""
    if oid is None or int(oid) not in TYPES:
        return None if oid is None else "text"
    name = TYPES[int(oid)][0]
    if int(oid) == NUMERIC and modifier is not None and int(modifier) > 4:
        return f"numeric({(int(modifier) - 4) >> 16},{(int(modifier) - 4) & 0xFFFF})"
    return SHOWN.get(name, name)


def adapted(tree: exp.Expr) -> str:
    """A query of PostgreSQL as SQLite's."""
    known = {*functions("", "", {}, {}), LIST}
    for select in list(tree.find_all(exp.Select)):
        _with_key_columns(select)
    before = ""
    for _ in range(DEPTH_MAX):
        # What was replaced is not looked into, so that it is repeated as long as something changes.
        tree = tree.transform(_adapted, known)
        now = tree.sql(dialect="sqlite", unsupported_level=ErrorLevel.IGNORE)
        if now == before:
            break
        before = now
    return before


def _with_key_columns(select: exp.Select) -> None:
    """`unnest(pg_index.indkey)` and `generate_subscripts(pg_index.indkey, 1)`: a join with the columns of the keys."""
    for node in list(select.expressions):
        found = node.unalias()
        column = next(iter(found.find_all(exp.Column)), None)
        is_place = isinstance(found, exp.Anonymous) and str(found.this).lower() == "generate_subscripts"
        if column is None or column.name != "indkey" or not (is_place or isinstance(found, exp.Explode | exp.Unnest)):
            continue
        if not any(join.this.name == KEY_COLUMNS for join in select.args.get("joins") or ()):
            index = column.copy()
            index.set("this", exp.to_identifier("indexrelid"))
            select.join(KEY_COLUMNS, on=exp.EQ(this=index, expression=exp.column("of_index", KEY_COLUMNS)), copy=False)
        found.replace(exp.column("place" if is_place else "number", KEY_COLUMNS))


def is_list(expression: exp.Expr) -> bool:
    return isinstance(expression.unalias(), exp.ArrayAgg)


class Listed:
    """`array_agg(x ORDER BY y)` for SQLite: a list as JSON."""

    def __init__(self) -> None:
        self._found: list[tuple[Any, Any]] = []

    def step(self, value: Any, place: Any) -> None:
        self._found.append((place, value))

    def finalize(self) -> str:
        return json.dumps([value for _, value in sorted(self._found, key=lambda pair: (pair[0] is None, pair[0]))])


def _listed(node: exp.Expr) -> exp.Expr:
    order = node.find(exp.Order)
    value = order.this if order is not None else node.this
    place = order.expressions[0].this if order is not None else exp.Literal.number(0)
    return exp.Anonymous(this=LIST, expressions=[value, place])


def _adapted(node: exp.Expr, known: set[str]) -> exp.Expr:
    for kind, change in CHANGES:
        if isinstance(node, kind):
            return change(node)
    if isinstance(node, exp.Anonymous):
        name = str(node.this).lower()
        return exp.null() if name.startswith("pg_") and name not in known else node
    return node


def _cast(node: exp.Expr) -> exp.Expr:
    name = node.args["to"].sql(dialect="postgres").lower().rpartition(".")[2].strip('"')
    return exp.func("mp_relation", node.this) if name == "regclass" else _inner(node)


def _inner(node: exp.Expr) -> exp.Expr:
    found: exp.Expr = node.this
    return found


def _matches(node: exp.Expr) -> exp.Expr:
    matched = exp.func("mp_matches", node.this, node.args["expression"])
    return exp.Not(this=matched) if "!" in str(node.args.get("operator") or "") else matched


def _any(node: exp.Expr) -> exp.Expr:
    """`x = ANY (ARRAY[...])` is `x IN (...)`."""
    right = node.args["expression"]
    given = right.this.unnest() if isinstance(right, exp.Any) else None
    return exp.In(this=node.this, expressions=given.expressions) if isinstance(given, exp.Array) else node


def _in(node: exp.Expr) -> exp.Expr:
    """The schemas of the search path are one: public."""
    query = node.args.get("query")
    if query is not None and "search_path" in query.sql(dialect="postgres"):
        return exp.In(this=node.this, expressions=[exp.Literal.string("public")])
    return node


def _array(node: exp.Expr) -> exp.Expr:
    return exp.null() if node.find(exp.Query) is not None else node


def _bracket(node: exp.Expr) -> exp.Expr:
    """`(parse_ident('a.b'))[1]`; sqlglot counts from 0."""
    inner = node.this.unnest()
    parsed = isinstance(inner, exp.Anonymous) and str(inner.this).lower() == "parse_ident"
    return exp.func("mp_part", inner.expressions[0], node.expressions[0]) if parsed else node


def _array_size(node: exp.Expr) -> exp.Expr:
    inner = node.this
    parsed = isinstance(inner, exp.Anonymous) and str(inner.this).lower() == "parse_ident"
    return exp.func("mp_parts", inner.expressions[0]) if parsed else node


def _dot(node: exp.Expr) -> exp.Expr:
    """A function with its schema."""
    found: exp.Expr = node.args["expression"]
    return found if isinstance(found, exp.Func) else node


def _call(name: str) -> Callable[[exp.Expr], exp.Expr]:
    return lambda node: exp.Anonymous(this=name, expressions=[])


CHANGES: tuple[tuple[Any, Callable[[exp.Expr], exp.Expr]], ...] = (
    (exp.ArrayAgg, _listed),
    (exp.Collate, _inner),
    (exp.Cast, _cast),
    ((exp.RegexpLike, exp.RegexpILike, exp.Operator), _matches),
    (exp.Dot, _dot),
    (exp.EQ, _any),
    (exp.In, _in),
    (exp.Array, _array),
    (exp.Bracket, _bracket),
    (exp.ArraySize, _array_size),
    (exp.ByteString, lambda node: exp.Literal.string(node.this)),
    ((exp.CurrentUser, exp.SessionUser), _call("current_user")),
    ((exp.CurrentSchema,), _call("current_schema")),
    ((exp.CurrentVersion,), _call("version")),
)
