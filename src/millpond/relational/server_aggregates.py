"""Aggregates over one table that is on a server, which evaluates them itself where it returns what Spark returns."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
from sqlglot import exp

from millpond.contracts.evaluator import TableInput
from millpond.contracts.table import AggregateCall, ReadTable
from millpond.relational.evaluation import Evaluation
from millpond.relational.group_by import GROUPS, Groups, finished, grouping_of
from millpond.relational.inputs import Rows, unqualified
from millpond.schema import Schema

# The parts that a SELECT may have: those of the groups are evaluated here.
PARTS = {"expressions", "from_", "where", "having", "order", "limit", "offset", "kind"}
FUNCTIONS: dict[type[exp.Expr], str] = {exp.Count: "COUNT", exp.Sum: "SUM", exp.Min: "MIN", exp.Max: "MAX"}


def server_groups(evaluation: Evaluation, select: exp.Select) -> Groups | None:
    """Return the only group of a SELECT without GROUP BY, if a server evaluates its aggregates; else None."""
    source = select.args["from_"].this if select.args.get("from_") is not None else None
    if not isinstance(source, exp.Table) or {name for name, part in select.args.items() if part} - PARTS:
        return None
    if {name for name, part in source.args.items() if part} - {"this", "alias"}:
        return None
    relation = evaluation.relation(source.name.lower())
    if not isinstance(relation, TableInput):
        return None
    where = select.args.get("where")
    if where is not None and where.find(exp.Query, exp.Window):
        return None
    grouping = grouping_of(select, evaluation.cache)
    calls = [_call(call, source.alias_or_name, relation.table.schema) for call in grouping.calls]
    known = [call for call in calls if call is not None]
    if not calls or len(known) < len(calls):
        return None
    found = _answer(relation.table, known, where, source.alias_or_name)
    if found is None:
        return None
    types = [_type(call, relation.table.schema) for call in known]
    columns = {f"_a{n}": pa.array([value], type_) for n, (value, type_) in enumerate(zip(found, types, strict=True))}
    rows = Rows(pa.table(columns), {GROUPS: {own.removeprefix("_"): own for own in columns}})
    return finished(grouping, rows, evaluation.value)


def _answer(table: ReadTable, calls: list[AggregateCall], where: Any, alias: str) -> list[int | None] | None:
    if where is None:
        return table.aggregated(calls)
    if any(column.table.lower() not in ("", alias.lower()) for column in where.find_all(exp.Column)):
        return None
    return table.aggregated(calls, where.this.transform(unqualified))


def _call(node: exp.Expr, alias: str, schema: Schema) -> AggregateCall | None:
    """Return an aggregate that a server may evaluate."""
    function = FUNCTIONS.get(type(node))
    if function is None or {name for name, part in node.args.items() if part} - {"this", "big_int"}:
        return None
    of = node.this
    if function == "COUNT" and isinstance(of, exp.Star):
        return AggregateCall(function)
    if not isinstance(of, exp.Column) or len(of.parts) > 2 or of.table.lower() not in ("", alias.lower()):
        return None
    if of.name not in schema:
        return None
    column = schema[of.name]
    return AggregateCall(function, column.name) if function == "COUNT" or _is_whole(column.type) else None


def _is_whole(type_: Any) -> bool:
    return bool(pa.types.is_integer(type_))


def _type(call: AggregateCall, schema: Schema) -> Any:
    return schema[call.column].type if call.column is not None and call.function in ("MIN", "MAX") else pa.int64()
