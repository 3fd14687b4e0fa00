"""CREATE VIEW: a name for a query, written in where it is read; over a stream it is a derived stream."""

from __future__ import annotations

from millpond.plan.binder import Binder
from millpond.plan.catalog import Relation, RelationKind, broken
from millpond.plan.context import Context, Planned
from millpond.plan.model import NamedQuery
from millpond.plan.naming import name_outputs
from millpond.plan.relations import StatementRelations
from millpond.plan.streams import define_stream
from millpond.plan.with_clauses import read_clauses
from millpond.plan.written_views import written_in
from millpond.sql.dialect import MILLPOND
from millpond.sql.statements import CreateStream, CreateView


def define_view(statement: CreateView, context: Context) -> Relation:
    """The relation that a CREATE VIEW declares; a wrong one is broken and binds loosely."""
    name, before = statement.name.text, context.findings.errors
    tree = written_in(statement.query.copy(), context)
    clauses = read_clauses(statement, tree, context.catalog, context.findings)
    bound = Binder(context.findings, StatementRelations(context, clauses), name).bind(tree)
    if bound.drivers:
        return define_stream(_as_stream(statement, context), context)
    bound = name_outputs(bound, f"view '{name}'", context.findings)
    context.planned.append(Planned(statement, context.index(statement), bound=bound))
    if context.findings.errors > before or any(r.relation.wrong for r in bound.readings):
        return broken(name)
    hidden = any(t.lower() in context.hidden for t in bound.tables)
    context.views[statement.name.key] = NamedQuery(
        name, "" if hidden else statement.query.sql(dialect=MILLPOND), bound.schema, bound.tables, statement.name.place
    )
    return Relation(name, RelationKind.TABLE, bound.schema, query=statement.query)


def _as_stream(statement: CreateView, context: Context) -> CreateStream:
    made = CreateStream(
        place=statement.place,
        text=statement.text,
        code=statement.code,
        name=statement.name,
        query=statement.query,
        options=statement.options,
    )
    context.positions = {**context.positions, id(made): context.index(statement)}
    return made
