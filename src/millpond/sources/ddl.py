"""Arrow types as Spark writes them in SQL, with every name quoted."""

from __future__ import annotations

import pyarrow as pa

from millpond.schema import Schema, type_name


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
