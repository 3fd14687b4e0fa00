"""Millpond's dialect of Spark SQL: its words, its grammar, and how its trees are written for Spark."""

from __future__ import annotations

from typing import ClassVar

from sqlglot.dialects.spark import Spark
from sqlglot.tokenizer_core import TokenType

from millpond.sql.functions import NAME_KEY
from millpond.sql.generator import SparkText
from millpond.sql.grammar import Grammar
from millpond.sql.words import KEYWORDS, OPERATORS


class Millpond(Spark):
    """Spark SQL with Millpond's words; not registered by name: use MILLPOND."""

    class Tokenizer(Spark.Tokenizer):
        KEYWORDS = {
            word: kind for word, kind in Spark.Tokenizer.KEYWORDS.items() if word in KEYWORDS or word in OPERATORS
        }
        # sqlglot reads what follows SHOW or EXPLAIN as one piece of text; we read it ourselves.
        COMMANDS: ClassVar[set[TokenType]] = set()

    ORIGINAL_NAME_META_KEY = NAME_KEY
    Parser = Grammar
    Generator = SparkText


MILLPOND = Millpond()
