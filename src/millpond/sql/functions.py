"""Functions: which of sqlglot's readings are kept, and which calls stay exactly as written."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from sqlglot.parsers.spark import SparkParser

FUNCTIONS: dict[str, Callable[..., Any]] = dict(SparkParser.FUNCTIONS)
FUNCTION_PARSERS: dict[str, Callable[..., Any]] = dict(SparkParser.FUNCTION_PARSERS)
NO_PAREN_FUNCTION_PARSERS: dict[str, Callable[..., Any]] = dict(SparkParser.NO_PAREN_FUNCTION_PARSERS)
