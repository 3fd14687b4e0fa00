"""MERGE and INSERT ... ON CONFLICT driven by a stream: what each event does to the row of its key."""

from __future__ import annotations

from sqlglot import exp

from millpond.plan.change_model import EVENT, Action, Branch, Effect
from millpond.plan.merge_model import EXCLUDED, MergeBranch, OnConflict
from millpond.plan.model import Step
from millpond.plan.row_parts import NotByKey, Parts, default_of, items_of, key_values, of_row, put, reads_table
from millpond.plan.typed import type_of, with_type
from millpond.schema import Schema
from millpond.sql.conditions import all_of
from millpond.sql.nodes import Default
from millpond.sql.statements import Merge, When


def merging(step: Step, schema: Schema) -> Action:
    """A MERGE whose ON says what the key is equal to, and nothing else: whether a row matches is whether it exists."""
    statement = step.statement
    assert isinstance(statement, Merge)
    assert isinstance(step.query, exp.Select)
    select = step.query.copy()
    alias = (statement.alias or statement.table).text
    own = next(j for j in select.args["joins"] if j.this.alias_or_name.lower() == alias.lower())
    select.args["joins"].remove(own)
    keys, rest = key_values(all_of(select.args.pop("where").this), alias, schema)
    if rest:
        raise NotByKey("ON says more than what the key is equal to", reads_itself=True)
    if reads_table(select, step.target):
        raise NotByKey("it reads its own target in a subquery or in USING", reads_itself=True)
    parts = Parts(step.target, alias, keys, _refuse)
    outputs = [e.unalias() for e in select.expressions]
    branches = tuple(_branch(branch, outputs, schema, parts) for branch in step.branches)
    return Action(items_of(select, keys, parts, []), schema.key, tuple(parts.extra), branches)


def _refuse(node: exp.Expr, parts: Parts) -> exp.Expr:
    raise NotByKey("it reads its own target in a subquery", reads_itself=True)


def _branch(branch: MergeBranch, outputs: list[exp.Expr], schema: Schema, parts: Parts) -> Branch:
    condition = None if branch.condition is None else parts.over_row(outputs[branch.condition])
    given = {schema[name].name: outputs[number] for name, number in branch.values}
    in_key = [name for name in schema.key if name in given]
    if branch.when is When.NOT_MATCHED:
        if any(given.get(name) != value for name, value in parts.keys.items()):
            raise NotByKey("it inserts another key than the one that ON compares", reads_itself=True)
        values = {name: _value(schema, name, value, parts) for name, value in given.items()}
        return put(schema, values | {name: _of_event(schema, name) for name in in_key}, False, condition)
    if in_key:
        raise NotByKey("it sets a column of the key", reads_itself=True)
    if not branch.values:
        return Branch(Effect.DELETE, True, condition)
    return Branch(Effect.SET, True, condition, {n: _value(schema, n, v, parts) for n, v in given.items()})


def _value(schema: Schema, name: str, value: exp.Expr, parts: Parts) -> exp.Expr:
    return default_of(schema, name) if isinstance(value, Default) else parts.over_row(value)


def _of_event(schema: Schema, name: str) -> exp.Expr:
    return with_type(exp.column(name, table=EVENT, quoted=True), schema[name].type)


def conflicting(step: Step, schema: Schema, conflict: OnConflict) -> Action:
    """INSERT ... ON CONFLICT: a row that is there is changed or left, another one is put."""
    if reads_table(step.query, step.target):
        raise NotByKey("it reads its own target", reads_itself=True)
    names = tuple(schema[name].name for name in step.columns)
    values = {name: _of_event(schema, name) for name in names}

    def placed(node: exp.Expr) -> exp.Expr:
        if not isinstance(node, exp.Column):
            return node
        if node.table.lower() != EXCLUDED:
            return of_row(node)
        name = schema[node.name].name
        return with_type(values.get(name) or default_of(schema, name), type_of(node)).copy()

    sets = {
        name: default_of(schema, name) if isinstance(value, Default) else value.copy().transform(placed)
        for name, value in conflict.assignments
    }
    where = None if conflict.where is None else conflict.where.copy().transform(placed)
    changes = (Branch(Effect.SET, True, where, sets),) if sets else ()
    always = all(c.nullable or c.name in values or c.default is not None for c in schema)
    return Action(step.query, names, (), (*changes, put(schema, values, False, None)), always)
