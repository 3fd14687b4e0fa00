"""Statements to a plan: names bound, options owned, flows ordered, and every mistake of the file told."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pyarrow as pa

from millpond.contracts.table import TableSpec
from millpond.errors import MillpondError, Place
from millpond.plan.catalog import Catalog, Declaration, Relation, RelationKind
from millpond.plan.changes import plan_insert, plan_select, plan_update
from millpond.plan.context import Context, Planned
from millpond.plan.findings import Findings
from millpond.plan.flows import make_flows, ordered
from millpond.plan.model import Plan, TableKind, TablePlan
from millpond.plan.one_shots import make_one_shots
from millpond.plan.sinks import Sinks
from millpond.plan.sources import Discover, Sources, Surroundings
from millpond.plan.streams import define_stream
from millpond.plan.tables import define_table
from millpond.schema import TIMESTAMP, Column, Schema
from millpond.settings import Settings
from millpond.sql.parser import Script
from millpond.sql.statements import (
    CreateIndex,
    CreateStream,
    CreateTable,
    Delete,
    Drop,
    Insert,
    Select,
    SetOption,
    Statement,
    Update,
    Upsert,
)

DEAD_LETTERS = Schema.of(
    [
        Column("at", TIMESTAMP),
        Column("flow", pa.string()),
        Column("source", pa.string()),
        Column("partition", pa.string()),
        Column("position", pa.string()),
        Column("code", pa.string()),
        Column("reason", pa.string()),
        Column("raw", pa.binary()),
    ]
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
    surroundings = Surroundings(base, environment, discover)
    context = Context(settings, findings, Sources(surroundings, findings), Sinks(surroundings, findings))
    context.positions = {id(s): n for n, s in enumerate(script.statements)}
    declarations = _declarations(script.statements, findings)
    system = _dead_letters(script.source.file)
    context.tables[system.name] = system
    given = {system.name: Relation(system.name, RelationKind.TABLE, DEAD_LETTERS)}
    context.catalog = Catalog(declarations, given, lambda d: _define(d, context), findings)
    for declaration in declarations.values():
        context.catalog.find(declaration.name.text)
    for statement in script.statements:
        planned = _plan_statement(statement, context)
        if planned is not None:
            context.planned.append(planned)
    return _assemble(name, context, declarations)


def _dead_letters(file: str) -> TablePlan:
    spec = TableSpec("dead_letters", DEAD_LETTERS)
    return TablePlan("dead_letters", TableKind.SYSTEM, spec, Place(file, 1, 1), "system")


def _with_sets(statements: tuple[Statement, ...], settings: Settings, findings: Findings) -> Settings:
    for statement in statements:
        if isinstance(statement, SetOption):
            try:
                settings = settings.with_set(statement.name.text, statement.value, statement.name.place)
            except MillpondError as error:
                findings.catch(error, statement.name.place)
    return settings


def _declarations(statements: tuple[Statement, ...], findings: Findings) -> dict[str, Declaration]:
    """Streams and tables by name; a name that is taken is a finding unless the file says what to do then."""
    found: dict[str, Declaration] = {}
    for statement in statements:
        if isinstance(statement, Drop):
            found.pop(statement.name.key, None)
        if not isinstance(statement, CreateStream | CreateTable):
            continue
        earlier = found.get(statement.name.key)
        if earlier is None or statement.or_replace:
            found[statement.name.key] = statement
        elif not statement.if_not_exists:
            message = f"'{statement.name}' is declared already, in line {earlier.name.place.line}."
            findings.error("MP205", message, statement.name.place, "Give one of them another name.")
    return found


def _define(declaration: Declaration, context: Context) -> Relation:
    if isinstance(declaration, CreateStream):
        return define_stream(declaration, context)
    return define_table(declaration, context)


def _plan_statement(statement: Statement, context: Context) -> Planned | None:
    match statement:
        case Insert() | Upsert():
            return plan_insert(statement, context)
        case Update() | Delete():
            return plan_update(statement, context)
        case Select():
            return plan_select(statement, context)
        case Drop() | CreateIndex():
            return Planned(statement, context.index(statement))
        case _:
            return None


def _assemble(name: str, context: Context, declarations: Mapping[str, Declaration]) -> Plan:
    planned = sorted(context.planned, key=lambda p: p.index)
    flows = ordered(make_flows(planned, context), context.tables)
    created = {key: context.index(d) for key, d in declarations.items()}
    one_shots = make_one_shots(planned, {}, created, context)
    plan = Plan(
        name,
        context.settings,
        context.sources.plans(),
        tuple(context.streams.values()),
        (*context.hidden.values(), *context.tables.values()),
        flows,
        one_shots,
        context.sinks.plans(),
    )
    return replace(plan, problems=context.findings.sorted())
