"""The source or sink of a statement: a URI, bare or quoted, with its WITH."""

from __future__ import annotations

from sqlglot.tokenizer_core import TokenType

from millpond.sql.grammar import Grammar
from millpond.sql.statements import SourceRef
from millpond.sql.tokens import URI
from millpond.sql.with_options import take_options


def sees_uri(grammar: Grammar) -> bool:
    """Whether a URI comes next, or a call such as kafka_topic('x')."""
    return grammar.sees_kind(URI) or grammar.sees_kind(TokenType.STRING) or grammar.sees("KAFKA_TOPIC", "(")


def take_source(grammar: Grammar, what: str) -> SourceRef:
    """Consume a URI and the WITH right after it."""
    if not sees_uri(grammar):
        grammar.refuse_unexpected(what, "A URI looks like kafka://localhost:9092/topic or 'file://./in.csv'.")
    start = grammar.position
    text = grammar.uri()
    return SourceRef(text, grammar.place_since(start), take_options(grammar))
