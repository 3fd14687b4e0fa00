"""Planning of INSERT, UPSERT, UPDATE, DELETE and bare SELECT: binds them, and resolves their target."""

from __future__ import annotations

from dataclasses import dataclass, replace

from sqlglot import exp

from millpond.errors import did_you_mean, nearest
from millpond.plan.aggregate_model import AggregatePlan
from millpond.plan.aggregates import as_distinct, plan_aggregate
from millpond.plan.binder import Binder
from millpond.plan.bound import BoundQuery, Item, Scope
from millpond.plan.catalog import Relation
from millpond.plan.conflicts import bind_conflict, check_groups
from millpond.plan.context import Context, Planned
from millpond.plan.declarations import request_of
from millpond.plan.definition import meaning, plain_text
from millpond.plan.expression_types import as_expression
from millpond.plan.model import GROUPED, SinkPlan, StepKind, TableKind
from millpond.plan.outputs import counted, name_outputs, rename_outputs
from millpond.plan.statement_relations import StatementRelations, written_in
from millpond.plan.with_clauses import Clauses, read_clauses
from millpond.redact import redact
from millpond.schema import Schema
from millpond.sql.statements import Assignment, CreateStream, Delete, Insert, Name, Select, SourceRef, Update, Upsert


@dataclass(frozen=True)
class Target:
    """The target of a change: a table's name with its columns (None if unknown), or a sink; `broken`: already
    reported."""

    name: str
    columns: Schema | None = None
    sink: SinkPlan | None = None
    broken: bool = False


def plan_select(statement: Select, context: Context) -> Planned:
    """A bare SELECT, which prints its rows."""
    tree = as_distinct(written_in(statement.query.copy(), context), context.catalog)
    clauses = read_clauses(statement, tree, context.catalog, context.findings)
    bound = rename_outputs(_bind(tree, clauses, context))
    sink = context.sinks.terminal(statement.place)
    return Planned(
        statement,
        context.index(statement),
        StepKind.SINK,
        sink.id if sink else "",
        bound,
        aggregate=_aggregate(statement, bound, clauses, context),
        options=context.options_for(bound.drivers, clauses.statement),
    )


def _aggregate(
    statement: Insert | Upsert | Select, bound: BoundQuery, clauses: Clauses, context: Context
) -> AggregatePlan | None:
    name = _groups_name(statement, bound, context)
    return plan_aggregate(bound, bound.top, name, clauses.statement.get("state.ttl"))


def _groups_name(statement: Insert | Upsert | Select, bound: BoundQuery, context: Context) -> str:
    """The name of the state of a statement's groups: by its meaning, and by a number among equal statements."""
    number = sum(1 for p in context.planned if plain_text(p.statement) == plain_text(statement))
    name = meaning(statement, statement.query, bound, context) if statement.query is not None else ""
    return f"{GROUPED}{name}" + (f"_{number + 1}" if number else "")


def plan_insert(statement: Insert | Upsert, context: Context) -> Planned:
    """INSERT or UPSERT, of rows or of a query."""
    tree = _source_query(statement)
    tree = as_distinct(written_in(tree, context), context.catalog) if tree is not None else None
    clauses = read_clauses(statement, tree, context.catalog, context.findings)
    target = _target(statement.target, clauses, context)
    columns = _columns(statement, target, context)
    if target.sink is not None and tree is None:
        tree = _rows_as_query(statement, columns)
    kind = StepKind.UPSERT if isinstance(statement, Upsert) else StepKind.INSERT
    planned = Planned(
        statement, context.index(statement), StepKind.SINK if target.sink else kind, target.name, columns=columns
    )
    conflict = statement.conflict if isinstance(statement, Insert) else None
    if conflict is not None and target.sink is not None:
        message = f"ON CONFLICT is only for tables, but '{statement.target}' is a stream, which stores no rows."
        context.findings.error("MP215", message, conflict.place, "Leave it out, or insert into a table.")
    elif conflict is not None and target.columns is not None:
        planned = replace(planned, conflict=bind_conflict(conflict, target.name, target.columns, clauses, context))
    if tree is None:
        rows = tuple(tuple(_value(v, clauses, context) for v in row) for row in statement.rows or ())
        return replace(planned, rows=rows, options=dict(clauses.statement))
    bound = _bind(tree, clauses, context)
    if target.sink is not None and columns:
        bound = _by_position(bound, columns, statement, context)
    if target.sink is not None:
        bound = name_outputs(bound, f"sink {target.sink.spec.shown}", context.findings)
    else:
        # A table is filled by position: the names do not matter, but they must differ.
        bound = rename_outputs(bound)
    aggregate = _aggregate(statement, bound, clauses, context)
    if conflict is not None:
        check_groups(conflict, bound, aggregate is not None, context)
    options = context.options_for(bound.drivers, clauses.statement)
    planned = replace(planned, bound=bound, aggregate=aggregate, options=options)
    if isinstance(statement, Upsert) and statement.on is not None:
        planned = replace(planned, condition=_upsert_condition(statement.on, bound, target, clauses, context))
    return planned


def _source_query(statement: Insert | Upsert) -> exp.Query | None:
    return statement.query.copy() if statement.query is not None else None


def _rows_as_query(statement: Insert | Upsert, columns: tuple[str, ...]) -> exp.Query:
    """VALUES for a sink as a query, with the names of the columns if there are any."""
    rows = [exp.Tuple(expressions=[v.copy() for v in row]) for row in statement.rows or ()]
    width = len(rows[0].expressions) if rows else 0
    names = columns if len(columns) == width else ()
    alias = exp.TableAlias(
        this=exp.to_identifier("_values"), columns=[exp.to_identifier(n, quoted=True) for n in names]
    )
    return exp.Select(expressions=[exp.Star()]).from_(exp.Values(expressions=rows, alias=alias), copy=False)


def _by_position(
    bound: BoundQuery, columns: tuple[str, ...], statement: Insert | Upsert, context: Context
) -> BoundQuery:
    """The outputs under the names of the columns that they fill."""
    if bound.outputs is None:
        return bound
    if len(bound.outputs) != len(columns):
        message = f"Expected {counted(len(columns), 'value')}, but {counted(len(bound.outputs), 'value', 'is')} given."
        hint = f"Write a value for each of: {', '.join(columns)}."
        context.findings.error("MP207", message, statement.target.place, hint)
        return bound
    return replace(bound, outputs=tuple(replace(o, name=n) for o, n in zip(bound.outputs, columns, strict=True)))


def _bind(tree: exp.Query, clauses: Clauses, context: Context) -> BoundQuery:
    return Binder(context.findings, StatementRelations(context, clauses)).bind(tree)


def _value(expr: exp.Expr, clauses: Clauses, context: Context) -> exp.Expression:
    binder = Binder(context.findings, StatementRelations(context, clauses))
    return as_expression(binder.bind_inside(expr.copy(), Scope()))


def _upsert_condition(
    on: exp.Expr, bound: BoundQuery, target: Target, clauses: Clauses, context: Context
) -> exp.Expression:
    """The ON of an UPSERT, which sees the table and what the query reads."""
    binder = Binder(context.findings, StatementRelations(context, clauses))
    items = [Item(target.name, f"Table '{target.name}'", target.columns, on)]
    top = bound.top
    items += top.scope.items if top is not None else []
    return as_expression(binder.bind_inside(on.copy(), Scope(items=items)))


def _target(target: Name | SourceRef, clauses: Clauses, context: Context) -> Target:
    if isinstance(target, SourceRef):
        sink = context.sinks.open(target.uri, target.place, clauses.sink)
        return Target(sink.id, sink=sink) if sink else Target(redact(target.uri), broken=True)
    relation = context.catalog.find(target.text)
    if relation is None:
        _report_unknown(target, context)
        return Target(target.text, broken=True)
    if relation.wrong and context.catalog.declaration(target.text) is None:
        return Target(relation.name, broken=True)
    if relation.is_stream:
        return _stream_target(target, context)
    if _report_view(target, relation, context):
        return Target(relation.name, broken=True)
    _check_changeable(target, context, adding=True)
    return Target(relation.name, relation.columns)


def _stream_target(target: Name, context: Context) -> Target:
    """INSERT INTO a declared stream writes to its source."""
    declaration = context.catalog.declaration(target.text)
    request = request_of(declaration, context) if isinstance(declaration, CreateStream) else None
    if request is None:
        message = f"Stream '{target}' is defined by a query and cannot be written."
        hint = "Insert into the stream or table that it reads, or into a URI."
        context.findings.error("MP215", message, target.place, hint)
        return Target(target.text, broken=True)
    sink = context.sinks.open(request.uri, target.place, request.entries)
    return Target(sink.id, request.columns, sink) if sink else Target(target.text, broken=True)


def _report_unknown(target: Name, context: Context) -> None:
    near = nearest(target.text, context.catalog)
    hint = f"Did you mean '{near}'?" if near else f"Declare it: CREATE TABLE {target} (...); or use a URI."
    context.findings.error("MP201", f"There is no stream, table or view '{target}'.", target.place, hint)


def _check_changeable(target: Name, context: Context, *, adding: bool = False) -> None:
    plan = context.tables.get(target.key)
    if plan is None or plan.kind is TableKind.DECLARED:
        return
    if plan.kind is TableKind.SYSTEM:
        if adding:
            message = f"Table '{plan.name}' is filled by Millpond, and statements cannot insert into it."
            context.findings.error("MP214", message, target.place, "UPDATE and DELETE are allowed.")
        return
    message = f"Table '{plan.name}' is defined AS SELECT, so other statements cannot change it."
    hint = f"Change the tables or streams that it reads, or declare it with columns: CREATE TABLE {plan.name} (...);"
    context.findings.error("MP214", message, target.place, hint)


def _columns(statement: Insert | Upsert, target: Target, context: Context) -> tuple[str, ...]:
    """The target's columns that the values fill, by position."""
    if statement.columns is None:
        return target.columns.names if target.columns is not None else ()
    names: list[str] = []
    for name in statement.columns:
        column = target.columns.get(name.text) if target.columns is not None else None
        if column is None and target.columns is not None and not target.broken:
            hint = (
                did_you_mean(name.text, target.columns.names) or f"Its columns are: {', '.join(target.columns.names)}."
            )
            context.findings.error("MP202", f"Table '{target.name}' has no column '{name}'.", name.place, hint)
        text = column.name if column else name.text
        if text.lower() in (n.lower() for n in names):
            context.findings.error("MP205", f"Column '{name}' is listed twice.", name.place, "Remove one of them.")
        names.append(text)
    return tuple(names)


def plan_update(statement: Update | Delete, context: Context) -> Planned:
    """UPDATE and DELETE: the table joined with the source of the change, if there is one."""
    tree = written_in(_change_query(statement), context)
    clauses = read_clauses(statement, tree, context.catalog, context.findings)
    kind = StepKind.UPDATE if isinstance(statement, Update) else StepKind.DELETE
    planned = Planned(statement, context.index(statement), kind, statement.table.text)
    relation = changeable_table(statement.table, type(statement).__name__.upper(), context)
    if relation is None:
        return planned
    bound = _bind(tree, clauses, context)
    assignments = _assignments(statement, bound, relation.columns, context)
    where = bound.query.args.get("where")
    return replace(
        planned,
        target=relation.name,
        bound=bound,
        columns=tuple(n for n, _ in assignments),
        assignments=assignments,
        condition=where.this if where is not None else None,
        options=context.options_for(bound.drivers, clauses.statement),
    )


def changeable_table(table: Name, word: str, context: Context) -> Relation | None:
    """The table that a statement changes; None if there is none, which was reported."""
    relation = context.catalog.find(table.text)
    if relation is None:
        _report_unknown(table, context)
        return None
    if relation.is_stream:
        message = f"{word} requires a table, but '{table}' is a stream, whose events cannot be changed."
        hint = f"Store it in a table first: CREATE TABLE {table}_stored AS SELECT * FROM {table};"
        context.findings.error("MP215", message, table.place, hint)
        return None
    if _report_view(table, relation, context):
        return None
    _check_changeable(table, context, adding=word == "MERGE")
    return relation


def _report_view(target: Name, relation: Relation, context: Context) -> bool:
    """MP214 for a view, which stores no rows."""
    if relation.query is None:
        return False
    message = f"'{target}' is a view and cannot be written."
    context.findings.error("MP214", message, target.place, "Change the tables that it reads.")
    return True


def _change_query(statement: Update | Delete) -> exp.Select:
    """The change as a SELECT: values FROM source, table WHERE condition. Binding it binds the statement."""
    table = exp.Table(this=identifier(statement.table))
    if statement.alias is not None:
        table.set("alias", exp.TableAlias(this=identifier(statement.alias)))
    select = statement.source.copy() if statement.source is not None else exp.Select()
    values = statement.assignments if isinstance(statement, Update) else ()
    select.set("expressions", [_assigned(a) for a in values] or [exp.Literal.number(1)])
    if statement.source is None:
        select.set("from_", exp.From(this=table))
    else:
        select.append("joins", exp.Join(this=table, kind="CROSS"))
    if statement.where is not None:
        select.set("where", exp.Where(this=statement.where.copy()))
    return select


def _assigned(assignment: Assignment) -> exp.Expr:
    return exp.alias_(assignment.value.copy(), assignment.column.text, quoted=True, copy=False)


def identifier(name: Name) -> exp.Identifier:
    """A name as an identifier of a query."""
    return exp.Identifier(this=name.text, quoted=name.quoted)


def _assignments(
    statement: Update | Delete, bound: BoundQuery, columns: Schema | None, context: Context
) -> tuple[tuple[str, exp.Expression], ...]:
    if isinstance(statement, Delete) or bound.outputs is None:
        return ()
    result: list[tuple[str, exp.Expression]] = []
    for assignment, output in zip(statement.assignments, bound.outputs, strict=True):
        name = assignment.column
        column = columns.get(name.text) if columns is not None else None
        if column is None and columns is not None:
            hint = did_you_mean(name.text, columns.names) or f"Its columns are: {', '.join(columns.names)}."
            context.findings.error("MP202", f"Table '{statement.table}' has no column '{name}'.", name.place, hint)
        if name.key in (n.lower() for n, _ in result):
            context.findings.error("MP205", f"SET assigns column '{name}' twice.", name.place, "Remove one of them.")
        result.append((column.name if column else name.text, as_expression(output.expr)))
    return tuple(result)
