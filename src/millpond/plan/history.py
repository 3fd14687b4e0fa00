"""Tables that keep their old rows ('history'): a hidden table has each row with the times and versions of its life."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from sqlglot import exp

from millpond import registry
from millpond.contracts.table import TableSpec
from millpond.errors import MillpondError, did_you_mean
from millpond.plan.catalog import Relation
from millpond.plan.context import Context
from millpond.plan.history_model import ADDED, FROM, HISTORY, OPEN, VERSION, HistoryPlan
from millpond.plan.model import BESIDE, Access, AccessKind, TableKind, TablePlan
from millpond.plan.source_catalog import short_hash
from millpond.plan.view_refresh import RefreshPlan
from millpond.schema import TIMESTAMP, Schema, type_name
from millpond.sql.statements import OptionEntry, Show

# Options of the memory backend that a table passes on to its history.
_PASSED_ON = ("durable", "compression")


def history_name(table: str) -> str:
    """The name of the hidden table with the old rows of a table."""
    return f"{table}{BESIDE}{HISTORY}"


def add_history(table: TablePlan, entries: Sequence[OptionEntry], context: Context) -> None:
    """Check the options of a table with 'history', and add its hidden table to the plan."""
    given = {entry.name: entry for entry in entries if entry.name.startswith(HISTORY)}
    if not given or (HISTORY in given and table.options.get(HISTORY) is None):
        # An invalid period was reported elsewhere.
        return
    problem = _problem(table, given)
    if problem is not None:
        code, message, entry, hint = problem
        context.findings.error(code, message, entry.place, hint)
        return
    name = history_name(table.name)
    if context.catalog.declaration(name) is not None:
        message = f"'{name}' is the name of the table with the old rows of '{table.name}'."
        context.findings.error("MP205", message, given[HISTORY].place, "Rename the other table.")
        return
    context.tables[name.lower()] = _history_table(table)


def _problem(table: TablePlan, given: dict[str, OptionEntry]) -> tuple[str, str, OptionEntry, str] | None:
    """The code, message, entry and hint of the first mistake in the options."""
    first, schema = next(iter(given.values())), table.spec.schema
    if HISTORY not in given:
        message = f"'history.time' of table '{table.name}' requires 'history'."
        return "MP305", message, first, "Add how long old rows are kept: 'history' = '1h'."
    if not schema.key:
        message = f"'history' requires a PRIMARY KEY, which '{table.name}' does not have."
        return "MP303", message, first, "Declare a PRIMARY KEY, by which old rows are found, or remove the option."
    if _is_changed_elsewhere(table):
        message = f"'history' is not possible for '{table.name}': its rows change or leave without a commit of the app."
        return "MP303", message, first, "Use another backend, such as memory, or remove the option."
    column = given.get("history.time")
    if column is None or not schema.columns:
        return None
    found = schema.get(column.value)
    if found is None:
        hint = did_you_mean(column.value, schema.names) or f"Its columns are: {', '.join(schema.names)}."
        return "MP202", f"'history.time' refers to '{column.value}', which is not a column.", column, hint
    if found.type is not None and found.type != TIMESTAMP:
        message = f"'history.time' requires a TIMESTAMP, but '{found.name}' is {type_name(found.type)}."
        return "MP206", message, column, "Name the column with the time from which a row is valid."
    return None


def _is_changed_elsewhere(table: TablePlan) -> bool:
    try:
        bounded = registry.find("backend", table.spec.backend).capabilities.bounded
    except MillpondError:
        # An unknown backend was reported elsewhere.
        return False
    return bounded or bool(table.spec.values.get("shared"))


def _history_table(table: TablePlan) -> TablePlan:
    """The hidden table, which is refreshed like a view in every transaction that changes the table."""
    schema, time = table.spec.schema, table.options.get("history.time")
    named = schema.get(time) if time and schema.columns else None
    plan = HistoryPlan(table.name, schema.key, named.name if named else time, table.options[HISTORY])
    columns = [replace(column, nullable=True, default=None) for column in schema]
    known = Schema.of((*columns, *ADDED) if columns else (), (*schema.key, FROM, VERSION))
    values = {name: table.spec.values[name] for name in _PASSED_ON if name in table.spec.values}
    indexes = (schema.key, (*schema.key, OPEN))
    spec = TableSpec(history_name(table.name), known, "memory", values, indexes, null_keys=True, hidden=True)
    reason = "old rows are added when it changes"
    return TablePlan(
        spec.name,
        TableKind.VIEW,
        spec,
        table.place,
        short_hash(repr((table.name, [(c.name, str(c.type)) for c in columns], schema.key, plan.time))),
        query=_typed(table),
        reads=(Access(table.name, AccessKind.SNAPSHOT, reason),),
        refresh=f"when {table.name} changes",
        follow=RefreshPlan(why=reason),
        history=plan,
    )


def _typed(table: TablePlan) -> exp.Query:
    """A query with the columns of the history, for their types."""
    names = table.spec.schema.names
    rows = exp.to_table(table.name, dialect=None)
    rows.set("this", exp.to_identifier(table.name, quoted=True))
    rows.set("alias", exp.TableAlias(this=exp.to_identifier(table.name, quoted=True)))
    own: list[exp.Expr] = [exp.column(name, table=table.name, quoted=True) for name in names] or [exp.Star()]
    added = [exp.alias_(exp.cast(exp.null(), type_name(c.type), dialect="spark"), c.name, quoted=True) for c in ADDED]
    return exp.Select(expressions=[*own, *added]).from_(rows, copy=False)


def keeps_no_rows(table: str) -> tuple[str, str]:
    """The message and hint for a table that is read as of a time or version, but has no history."""
    hint = f"Add how long they are kept: CREATE TABLE {table} ... WITH ('history' = '1h');"
    return f"Table '{table}' keeps no old rows.", hint


def require_history(statement: Show, context: Context) -> None:
    """MP201 or MP303 for SHOW CHANGES of something that is not a table with 'history'."""
    name = statement.subject
    assert name is not None
    found = context.catalog.find(name.text)
    if found is None:
        hint = did_you_mean(name.text, list(context.catalog))
        context.findings.error("MP201", f"There is no table '{name}'.", name.place, hint)
    elif found.is_stream or found.query is not None:
        message = f"SHOW CHANGES requires a table, which '{name}' is not."
        context.findings.error("MP215", message, name.place, "Store its rows in a table with 'history'.")
    elif not found.history and not found.wrong:
        context.findings.error("MP303", keeps_no_rows(found.name)[0], name.place, keeps_no_rows(found.name)[1])


def with_history(relation: Relation, context: Context) -> Relation:
    """The relation of a table, with the name of its history if it has one."""
    name = history_name(relation.name)
    return replace(relation, history=name) if name.lower() in context.tables else relation


def described(table: TablePlan) -> str:
    """The history of a table, for `explain`."""
    time = table.options.get("history.time")
    by = f"by the time in '{time}'" if time else "by the time of the commit"
    return f"old rows are kept for {table.options[HISTORY] / 1_000_000:g} s, {by}"
