"""What each statement that changes a table does to the row of a key."""

from __future__ import annotations

from collections.abc import Callable

from sqlglot import exp

from millpond.plan.change_model import EVENT, Action, Branch, Effect
from millpond.plan.merge_actions import conflicting, merging
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
    mentions,
    reads_table,
)
from millpond.plan.upserts import matches_by_key
from millpond.schema import Schema
from millpond.sql.conditions import all_of
from millpond.sql.nodes import Default
from millpond.sql.statements import Delete, Update


def action_of(step: Step, schema: Schema) -> Action:
    """What a statement does to the row of a key; raises NotByKey."""
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
    """Why what an event finds depends on what events before it did to other rows, or to what a subquery reads of the
    same row; "" where it does not."""
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


def _refuse(node: exp.Expr, parts: Parts) -> exp.Expr:
    raise NotByKey("it reads its own target in a subquery", reads_itself=True)


def _insert(step: Step, schema: Schema) -> Action:
    """INSERT, and UPSERT by key."""
    if step.conflict is not None:
        return conflicting(step, schema, step.conflict)
    by_key = step.condition is None or matches_by_key(step.query, step.condition, step.columns, step.target, schema)
    if not by_key:
        raise NotByKey("ON compares something else than the key", reads_itself=reads_table(step.query, step.target))
    if reads_table(step.query, step.target):
        return reading_insert(step, schema)
    names = tuple(schema[name].name for name in step.columns)
    values = {name: exp.column(name, table=EVENT, quoted=True) for name in names}
    always = all(c.nullable or c.name in values or c.default is not None for c in schema)
    return Action(step.query, names, (), inserting(step, schema, values, None), always)


# How the statements of each kind are taken apart.
BUILDERS: dict[StepKind, Callable[[Step, Schema], Action]] = {
    StepKind.INSERT: _insert,
    StepKind.UPSERT: _insert,
    StepKind.UPDATE: _change,
    StepKind.DELETE: _change,
    StepKind.MERGE: merging,
}
