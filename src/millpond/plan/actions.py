"""Actions: what a statement that changes a table does to the row of a key, and which actions cannot fail."""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa
from sqlglot import exp

from millpond.plan.change_model import EVENT, EXCLUDED, Action, Branch, Effect, MergeBranch, OnConflict
from millpond.plan.expression_types import type_of, with_type
from millpond.plan.model import Step, StepKind
from millpond.plan.own_reads import NOT_BY_KEY, reading_insert
from millpond.plan.row_parts import (
    QUERIES,
    NotByKey,
    Parts,
    all_true,
    compared,
    default_of,
    inserting,
    items_of,
    key_values,
    matches_by_key,
    mentions,
    of_row,
    put,
    reads_table,
)
from millpond.schema import Schema
from millpond.sql.conditions import all_of
from millpond.sql.nodes import Default
from millpond.sql.statements import Delete, Merge, Update, When

# Nodes that return a value for all operands of their types, and never fail.
HARMLESS = (
    exp.Column,
    exp.Identifier,
    exp.Literal,
    exp.Null,
    exp.Boolean,
    exp.And,
    exp.Or,
    exp.Not,
    exp.Paren,
    exp.Is,
)
# The same if both sides have one type or are numbers; otherwise one of them is cast, which may fail.
COMPARING = (exp.EQ, exp.NEQ, exp.GT, exp.GTE, exp.LT, exp.LTE, exp.NullSafeEQ)


def cannot_fail(action: Action, schema: Schema) -> bool:
    """Whether every item of an action can be applied, for any row and event."""
    return not schema.checks and all(_is_safe(branch, action, schema) for branch in action.branches)


def _is_safe(branch: Branch, action: Action, schema: Schema) -> bool:
    if branch.condition is not None and not _is_harmless(branch.condition):
        return False
    if branch.effect is Effect.DELETE:
        return True
    return all(_fits(name, value, action, schema) for name, value in branch.values.items())


def _fits(name: str, value: exp.Expr, action: Action, schema: Schema) -> bool:
    """Whether a value can always be stored in the column."""
    given = isinstance(value, exp.Column) and value.table == EVENT and value.name in action.columns
    needed = name in schema.key or not schema[name].nullable
    if needed and not action.always:
        return False
    plain = value.this if isinstance(value, exp.Cast) else value
    return given or isinstance(plain, exp.Literal | exp.Null)


def _is_harmless(expression: exp.Expr) -> bool:
    return all(isinstance(node, HARMLESS) or _compares_alike(node) for node in expression.walk())


def _compares_alike(node: exp.Expr) -> bool:
    if not isinstance(node, COMPARING):
        return False
    types = [type_of(node.this), type_of(node.expression)]
    return None not in types and (types[0] == types[1] or all(_is_number(t) for t in types if t is not None))


def _is_number(type_: pa.DataType) -> bool:
    return bool(pa.types.is_integer(type_) or pa.types.is_decimal(type_) or pa.types.is_floating(type_))


def merging(step: Step, schema: Schema) -> Action:
    """A MERGE whose ON compares the key and nothing else, so that a row matches if it exists."""
    statement = step.statement
    assert isinstance(statement, Merge)
    assert isinstance(step.query, exp.Select)
    select = step.query.copy()
    alias = (statement.alias or statement.table).text
    own = next(j for j in select.args["joins"] if j.this.alias_or_name.lower() == alias.lower())
    select.args["joins"].remove(own)
    keys, rest = key_values(all_of(select.args.pop("where").this), alias, schema)
    if rest:
        raise NotByKey("ON compares more than the key", reads_itself=True)
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
            raise NotByKey("it inserts a key other than the one that ON compares", reads_itself=True)
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
    """INSERT ... ON CONFLICT: an existing row is changed or kept, a missing one is inserted."""
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


def action_of(step: Step, schema: Schema) -> Action:
    """The action of a statement on the row of a key; raises NotByKey."""
    return BUILDERS[step.kind](step, schema)


def _change(step: Step, schema: Schema) -> Action:
    """UPDATE and DELETE."""
    statement = step.statement
    assert isinstance(statement, Update | Delete)
    assert isinstance(step.query, exp.Select)
    select = step.query.copy()
    alias = (statement.alias or statement.table).text
    own = next(j for j in select.args["joins"] if j.this.alias_or_name.lower() == alias.lower())
    select.args["joins"].remove(own)
    reason = reads_itself(step, schema)
    if reason:
        raise NotByKey(reason, reads_itself=True)
    where = select.args.pop("where", None)
    conditions = list(all_of(where.this if where is not None else None))
    keys, rest = key_values(conditions, alias, schema)
    parts = Parts(step.target, alias, keys, _refuse)
    moving = [c for c in rest if mentions(c, alias)]
    condition = all_true([parts.over_row(c) for c in moving])
    branch = Branch(Effect.DELETE, True, condition)
    if isinstance(statement, Update):
        outputs = [e.unalias() for e in select.expressions]
        values = dict(zip((schema[name].name for name in step.columns), outputs, strict=True))
        branch = Branch(Effect.SET, True, condition, {n: _assigned(schema, n, v, parts) for n, v in values.items()})
    items = items_of(select, keys, parts, [c for c in rest if c not in moving])
    return Action(items, schema.key, tuple(parts.extra), (branch,))


def reads_itself(step: Step, schema: Schema) -> str:
    """Why the result of an event depends on what earlier events did to other rows, or to what a subquery reads of the
    same row; "" if it does not."""
    statement, query = step.statement, step.query
    of_change = isinstance(statement, Update | Delete)
    if sum(1 for t in query.find_all(exp.Table) if t.name.lower() == step.target.lower()) > of_change:
        return "it reads its own target in a subquery or a join" if of_change else NOT_BY_KEY
    if not isinstance(statement, Update):
        return ""
    if any(schema[name].name in schema.key for name in step.columns):
        return "it sets a column of the key"
    alias = (statement.alias or statement.table).key
    changed = {name.lower() for name in step.columns}
    for node in query.find_all(*QUERIES):
        read = {c.name.lower() for c in compared(node).find_all(exp.Column) if c.table.lower() == alias}
        if node.find(exp.Select) is not None and read & changed:
            return f"a subquery reads {alias}.{min(read & changed)}, which it sets"
    return ""


def _assigned(schema: Schema, name: str, value: exp.Expr, parts: Parts) -> exp.Expr:
    return default_of(schema, name) if isinstance(value, Default) else parts.over_row(value)


def _insert(step: Step, schema: Schema) -> Action:
    """INSERT, and UPSERT by key."""
    if step.conflict is not None:
        return conflicting(step, schema, step.conflict)
    by_key = step.condition is None or matches_by_key(step.query, step.condition, step.columns, step.target, schema)
    if not by_key:
        raise NotByKey("ON does not compare the key", reads_itself=reads_table(step.query, step.target))
    if reads_table(step.query, step.target):
        return reading_insert(step, schema)
    names = tuple(schema[name].name for name in step.columns)
    values = {name: exp.column(name, table=EVENT, quoted=True) for name in names}
    always = all(c.nullable or c.name in values or c.default is not None for c in schema)
    return Action(step.query, names, (), inserting(step, schema, values, None), always)


# The function for each kind of statement.
BUILDERS: dict[StepKind, Callable[[Step, Schema], Action]] = {
    StepKind.INSERT: _insert,
    StepKind.UPSERT: _insert,
    StepKind.UPDATE: _change,
    StepKind.DELETE: _change,
    StepKind.MERGE: merging,
}
