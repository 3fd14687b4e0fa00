"""Trees to Spark SQL: what was read is written back as it was, with names in backquotes where they need them."""

from __future__ import annotations

import re
from typing import Any

from sqlglot import exp
from sqlglot.generators.spark import SparkGenerator

from millpond.sql import nodes
from millpond.sql.literals import encode
from millpond.sql.words import KEYWORDS

_PLAIN_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\Z")

# Marks a cast of bytes to text.
OF_BYTES = "mp_of_bytes"

# sqlglot changes these on the way out, for Sparks that could not do what Spark can now.
_REWRITTEN = (exp.Select, exp.Table, exp.WithinGroup)


class SparkText(SparkGenerator):
    """The hooks are sqlglot's own, so their names are."""

    TRANSFORMS = {
        **{kind: write for kind, write in SparkGenerator.TRANSFORMS.items() if kind not in _REWRITTEN},
        exp.NullSafeEQ: lambda self, node: self.binary(node, "<=>"),
        nodes.Uri: lambda self, node: encode(node.text_),
        nodes.Changes: lambda self, node: f"CHANGES({self.sql(node, 'this')})",
        nodes.Default: lambda self, node: "DEFAULT",
        nodes.Window: lambda self, node: _window(self, node),
        nodes.Path: lambda self, node: _path(self, node),
    }

    def literal_sql(self, expression: exp.Literal) -> str:
        return encode(expression.name) if expression.is_string else expression.name

    def identifier_sql(self, expression: exp.Identifier) -> str:
        name = expression.name
        if not expression.quoted and _PLAIN_NAME.match(name) and name.upper() not in KEYWORDS:
            return name
        return "`" + name.replace("`", "``") + "`"

    def cast_sql(self, expression: exp.Cast, safe_prefix: str | None = None) -> str:
        suffix = expression.meta.get("suffix")
        # 128Y with a minus before it is a number; as a cast it would overflow before the minus came.
        if suffix:
            return f"{expression.this.name}{suffix}"
        # Spark takes any bytes for text; nobody could read a table that holds such a text.
        text = super().cast_sql(expression, safe_prefix)
        return f"make_valid_utf8({text})" if expression.meta.get(OF_BYTES) else text


def _window(generator: SparkText, node: nodes.Window) -> str:
    lengths = [f"INTERVAL '{us}' MICROSECOND" for us in (node.args["size_us"], node.args.get("slide_us")) if us]
    column = [generator.sql(node, "column")] if node.args.get("column") else []
    return f"{node.args['kind']}({', '.join([*column, *lengths])})"


def _path(generator: SparkText, node: nodes.Path) -> str:
    steps: list[Any] = node.args["steps"]
    texts = [generator.sql(step) for step in steps]
    return generator.sql(node, "this") + "".join(text if text.startswith("[") else f".{text}" for text in texts)
