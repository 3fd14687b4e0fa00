"""Builds the plan of a script: binds names, assigns options, orders flows, and reports every mistake of the file."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from millpond.errors import MillpondError, Place, Severity
from millpond.plan.assembly import assemble, explained
from millpond.plan.catalog import Catalog, Declaration, Relation, RelationKind, broken
from millpond.plan.change_plans import plan_insert, plan_select, plan_update
from millpond.plan.checks import run_checks
from millpond.plan.context import Context, Planned
from millpond.plan.findings import Findings
from millpond.plan.hidden_tables import dead_letters_table
from millpond.plan.history import require_history
from millpond.plan.merges import plan_merge
from millpond.plan.model import Plan
from millpond.plan.sink_catalog import Sinks
from millpond.plan.source_catalog import Discover, Sources, Surroundings
from millpond.plan.stream_plans import define_stream, define_view
from millpond.plan.stream_unions import named_like, statements_of
from millpond.plan.table_options import with_files
from millpond.plan.table_plans import define_table
from millpond.plan.unsupported import not_yet
from millpond.settings import BEFORE_THE_FILE, Settings
from millpond.sql.parser import Script
from millpond.sql.statements import (
    CreateIndex,
    CreateStream,
    CreateTable,
    CreateView,
    Delete,
    Describe,
    Drop,
    Explain,
    Insert,
    Merge,
    Select,
    SetOption,
    Show,
    Statement,
    Update,
    Upsert,
)


def build_plan(
    script: Script,
    *,
    name: str,
    base: Path,
    settings: Settings,
    environment: Mapping[str, str],
    discover: Discover,
) -> Plan:
    """The plan of a script. Never raises for a user's mistake: all of them are in `Plan.problems`, by place."""
    findings = Findings(script.source)
    findings.extend(script.problems)
    settings = _with_sets(script.statements, settings, findings)
    surroundings = Surroundings(base, environment, discover, settings)
    context = Context(settings, findings, Sources(surroundings, findings), Sinks(surroundings, findings))
    context.positions = {id(s): n for n, whole in enumerate(script.statements) for s in _with_inner(whole)}
    _define_all(script, context)
    for statement in script.statements:
        _plan_sides(statement, context)
    plan, subject = assemble(name, script.statements, context)
    plan = replace(plan, tables=tuple(with_files(t, base, name) for t in plan.tables))
    findings.extend(run_checks(subject))
    # What is not supported yet is reported only if there are no other errors.
    wrong = {
        problem.place.line for problem in findings.sorted() if problem.severity is Severity.ERROR and problem.place
    }
    findings.extend(p for p in not_yet(plan) if p.place is None or p.place.line not in wrong)
    return replace(plan, problems=findings.sorted())


def _with_inner(statement: Statement) -> tuple[Statement, ...]:
    return (statement, *_with_inner(statement.statement)) if isinstance(statement, Explain) else (statement,)


def _with_sets(statements: tuple[Statement, ...], settings: Settings, findings: Findings) -> Settings:
    for statement in statements:
        if isinstance(statement, SetOption):
            settings = _with_set(statement, settings, findings)
    return settings


def _with_set(statement: SetOption, settings: Settings, findings: Findings) -> Settings:
    name = statement.name
    if name.key in BEFORE_THE_FILE:
        findings.error("MP303", f"A file cannot set '{name.key}'.", name.place, BEFORE_THE_FILE[name.key])
        return settings
    try:
        return settings.with_set(name.text, statement.value, name.place)
    except MillpondError as error:
        findings.catch(error, name.place)
        return settings


def _define_all(script: Script, context: Context) -> None:
    """Define every stream and table of the file, each when it is first needed."""
    declarations = _declarations(script.statements, context.findings)
    system = dead_letters_table(Place(script.source.file, 1, 1))
    given: dict[str, Relation] = {}
    if system.name not in declarations:
        context.tables[system.name] = system
        given[system.name] = Relation(system.name, RelationKind.TABLE, system.spec.schema)
    for kind, name in script.unread:
        if name.lower() not in declarations:
            given[name.lower()] = broken(name, RelationKind.STREAM if kind == "STREAM" else RelationKind.TABLE)
    context.catalog = Catalog(declarations, given, lambda d: _define(d, context), context.findings)
    for declaration in declarations.values():
        context.catalog.find(declaration.name.text)


def _declarations(statements: tuple[Statement, ...], findings: Findings) -> dict[str, Declaration]:
    """Streams and tables by name; a duplicate name is a finding, unless the statement has IF NOT EXISTS or OR
    REPLACE."""
    found: dict[str, Declaration] = {}
    for statement in statements:
        if not isinstance(statement, CreateStream | CreateTable | CreateView):
            continue
        earlier = found.get(statement.name.key)
        if statement.name.key == "dead_letters":
            message = "'dead_letters' is reserved for the table of rejected records."
            findings.error("MP205", message, statement.name.place, "Choose another name.")
        elif earlier is None or statement.or_replace:
            found[statement.name.key] = statement
        elif not statement.if_not_exists:
            message = f"'{statement.name}' is already declared in line {earlier.name.place.line}."
            findings.error("MP205", message, statement.name.place, "Rename one of them.")
    return found


def _define(declaration: Declaration, context: Context) -> Relation:
    if isinstance(declaration, CreateStream):
        return define_stream(declaration, context)
    if isinstance(declaration, CreateView):
        return define_view(declaration, context)
    return define_table(declaration, context)


def _plan_sides(statement: Statement, context: Context) -> None:
    """Plan a statement; UNION ALL of several streams is planned as one statement for each."""
    first: Planned | None = None
    for side in statements_of(statement, context):
        own = side if first is None else named_like(side, first)
        context.positions = {**context.positions, id(own): context.index(statement)}
        planned = _plan_statement(own, context)
        if planned is not None:
            context.planned.append(planned)
            first = first or planned


def _plan_statement(statement: Statement, context: Context) -> Planned | None:
    match statement:
        case Insert() | Upsert():
            return plan_insert(statement, context)
        case Update() | Delete():
            return plan_update(statement, context)
        case Merge():
            return plan_merge(statement, context)
        case Select():
            return plan_select(statement, context)
        case Explain():
            own = explained(statement.statement, context, _plan_or_define)
            return replace(_asking(statement, context), explained=own)
        case Show() | Describe():
            return _asking(statement, context)
        case Drop() | CreateIndex():
            return Planned(statement, context.index(statement))
        case _:
            return None


def _plan_or_define(statement: Statement, context: Context) -> Planned | None:
    """The same for a statement inside EXPLAIN; a declaration is defined here, because no other statement reads it."""
    if isinstance(statement, CreateStream | CreateTable):
        _define(statement, context)
        return None
    return _plan_statement(statement, context)


def _asking(statement: Statement, context: Context) -> Planned:
    """SHOW, DESCRIBE and EXPLAIN, which print their rows."""
    if isinstance(statement, Show) and statement.kind == "CHANGES":
        require_history(statement, context)
    sink = context.sinks.terminal(statement.place)
    return Planned(statement, context.index(statement), target=sink.id if sink else "")
