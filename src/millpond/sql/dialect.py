"""Millpond's dialect of Spark SQL: tokenizer, grammar, and the generator of the SQL that Spark runs."""

from __future__ import annotations

import re
from typing import Any, ClassVar

from sqlglot import exp
from sqlglot.dialects.spark import Spark
from sqlglot.generators.spark import SparkGenerator
from sqlglot.tokenizer_core import TokenType

from millpond.sql import nodes
from millpond.sql.function_calls import NAME_KEY
from millpond.sql.grammar import Grammar
from millpond.sql.string_literals import encode
from millpond.sql.words import KEYWORDS, OPERATORS

_PLAIN_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\Z")

# Marks a cast of bytes to text.
OF_BYTES = "mp_of_bytes"

# sqlglot rewrites these for older versions of Spark; ours supports them, and a rewrite could change the result.
_REWRITTEN = (exp.Select, exp.Table, exp.WithinGroup)


class SparkText(SparkGenerator):
    """Overrides hooks of sqlglot, hence the method names."""

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
        # -128Y is a valid TINYINT; as a cast, 128 would overflow before the minus is applied.
        if suffix:
            return f"{expression.this.name}{suffix}"
        # Spark accepts any bytes as text; a table with text that is not UTF-8 could not be read by anyone.
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


class Millpond(Spark):
    """Spark SQL with Millpond's words; not registered by name: use MILLPOND."""

    class Tokenizer(Spark.Tokenizer):
        KEYWORDS = {
            word: kind for word, kind in Spark.Tokenizer.KEYWORDS.items() if word in KEYWORDS or word in OPERATORS
        }
        # sqlglot treats what follows SHOW or EXPLAIN as one text; ours is parsed into statements.
        COMMANDS: ClassVar[set[TokenType]] = set()

    ORIGINAL_NAME_META_KEY = NAME_KEY
    Parser = Grammar
    Generator = SparkText


MILLPOND = Millpond()
