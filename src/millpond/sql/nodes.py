"""The nodes that Millpond adds to sqlglot's trees, and how to read what hangs on them."""

from __future__ import annotations

from typing import Any

from sqlglot import exp

from millpond.sql.statements import NO_OPTIONS, OptionGroup


class Uri(exp.Expression):
    """A URI where a relation is named: stands as `this` of an exp.Table, whose alias is the relation's alias."""

    arg_types = {"this": True}

    @property
    def text_(self) -> str:
        """The URI as written, variables put in, quotes of a quoted one removed."""
        return str(self.this)


class Changes(exp.Expression):
    """CHANGES(table): a table's changes as a stream; stands as `this` of an exp.Table, its own `this` an Identifier."""

    arg_types = {"this": True}


class Window(exp.Expression):
    """TUMBLING | SLIDING | SESSION: one member of GROUP BY, in either spelling; `column` is None in the clause form."""

    arg_types = {"kind": True, "column": False, "size_us": True, "slide_us": False}


class Default(exp.Expression):
    """The word DEFAULT where a value is written."""


class Path(exp.Expression):
    """A wildcard path such as `positions.*.shares` or `orders[*].amount`: parsed, not runnable yet."""

    arg_types = {"this": True, "steps": True}


def relation_options(table: exp.Expression) -> OptionGroup:
    """The WITH (...) right after a relation of FROM or JOIN."""
    return _group(table.args.get("mp_options"))


def join_options(join: exp.Expression) -> OptionGroup:
    """The WITH (...) right after the ON or USING of a join."""
    return _group(join.args.get("mp_options"))


def _group(found: Any) -> OptionGroup:
    return found if isinstance(found, OptionGroup) else NO_OPTIONS
