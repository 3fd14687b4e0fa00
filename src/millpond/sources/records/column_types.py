"""Column types as Spark SQL, and the columns of raw records before they are parsed."""

from __future__ import annotations

import pyarrow as pa

from millpond.schema import Schema, type_name

VALUE = "_mp_value"  # BINARY: the record as received; NULL when it is parsed already
SUSPECT = "_mp_suspect"  # BOOLEAN: its text must be checked: it may not be UTF-8, or contain more than one value
PROBLEM = "_mp_problem"  # STRING: why it cannot be read at all
HEADER = "_mp_header"  # INT: the number of the CSV header that names its fields


def table_ddl(schema: pa.Schema | Schema) -> str:
    """`name type, ...` of a schema whose types are all known."""
    arrow = schema.arrow() if isinstance(schema, Schema) else schema
    return ", ".join(f"{quoted(field.name)} {type_ddl(field.type)}" for field in arrow)


def type_ddl(type_: pa.DataType) -> str:
    """A type in SQL; unlike `type_name` it quotes the names of fields."""
    if pa.types.is_struct(type_):
        return f"STRUCT<{', '.join(f'{quoted(f.name)}: {type_ddl(f.type)}' for f in type_)}>"
    if pa.types.is_map(type_):
        return f"MAP<{type_ddl(type_.key_type)}, {type_ddl(type_.item_type)}>"
    if pa.types.is_list(type_) or pa.types.is_large_list(type_):
        return f"ARRAY<{type_ddl(type_.value_type)}>"
    return type_name(type_)


def quoted(name: str) -> str:
    """A name in backticks."""
    return "`" + name.replace("`", "``") + "`"
