"""Options and CHECK constraints of a table: resolves file paths, checks combinations of options, binds conditions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
from sqlglot import exp

from millpond import registry
from millpond.contracts.table import TableSpec
from millpond.errors import MillpondError, Place
from millpond.options import FILE, FOLDER, Option
from millpond.plan import paths
from millpond.plan.binder import Binder
from millpond.plan.bound import Item, Scope
from millpond.plan.context import Context
from millpond.plan.expression_types import as_expression, type_of
from millpond.plan.findings import Findings
from millpond.plan.function_names import has_aggregate
from millpond.plan.model import TablePlan
from millpond.plan.option_owners import Shares
from millpond.plan.statement_relations import StatementRelations
from millpond.plan.with_clauses import Clauses
from millpond.schema import Check, Schema, type_name
from millpond.sql import nodes
from millpond.sql.dialect import MILLPOND
from millpond.sql.statements import CheckDef, CreateTable, OptionEntry


def with_files(table: TablePlan, base: Path, app: str) -> TablePlan:
    """The table with absolute paths of its backend's files, and with the prefix of its keys; without a path, the
    backend chooses one."""
    values = dict(table.spec.values)
    if "prefix" in values and values["prefix"] is None:
        values["prefix"] = f"{app}:{table.name}"
    for option in _files(table.spec.backend):
        given = values.get(option.name)
        if given and not isinstance(given, bool) and not str(given).startswith(("s3://", "s3a://")):
            values[option.name] = str(base / str(given).removeprefix("file://").removeprefix("file:"))
    return replace(table, spec=replace(table.spec, values=values))


def _files(backend: str) -> list[Option]:
    try:
        return [o for o in registry.find("backend", backend).options if o.kind in (FILE, FOLDER)]
    except MillpondError:
        # An unknown backend was reported elsewhere.
        return []


# Passed to the store with the options of the backend: the cache is in front of any backend.
READ_THROUGH = ("cache.max_size", "cache.ttl")
_SIZES = ("max_size", "cache.max_size")


def check_options(spec: TableSpec, entries: Sequence[OptionEntry], findings: Findings) -> None:
    """MP302, MP303 and MP305 for values that are invalid or have no effect."""
    for entry in entries:
        if entry.name in _SIZES and spec.values.get(entry.name) == 0:
            message = f"Invalid value '{entry.value}' for option '{entry.name}': no row would be stored."
            findings.error("MP302", message, entry.value_place, "Expected a whole number of rows, at least 1.")
        elif entry.name == "spill" and spec.values.get("spill") and spec.values.get("max_memory") is None:
            message = f"Option 'spill' of table '{spec.name}' requires 'max_memory'."
            findings.error("MP305", message, entry.place, "Add the memory limit: 'max_memory' = '512MB'.")
        elif entry.name in READ_THROUGH:
            _check_cache(spec, entry, findings)
        elif entry.name in ("poll.interval", "cdc") and not spec.values.get("shared"):
            message = f"Option '{entry.name}' of table '{spec.name}' is for a table that others write to."
            findings.error("MP303", message, entry.place, "Add 'shared' = 'true', or remove it.")


def check_backend(spec: TableSpec, entries: Sequence[OptionEntry], place: Place, findings: Findings) -> None:
    """MP302 and MP305 for options that the backend cannot use together, or lacks."""
    try:
        plugin = registry.find("backend", spec.backend)
    except MillpondError:
        # An unknown backend was reported elsewhere.
        return
    wrong = plugin.validate(spec) if plugin.validate is not None else None
    if wrong is None:
        return
    place_name = "url" if any(option.name == "url" for option in plugin.options) else "path"
    given = next((entry for entry in entries if entry.name == place_name), None)
    example = next((option.help.partition(": ")[2] for option in plugin.options if option.name == "url"), "")
    if given is None:
        hint = f"Write WITH ('backend' = '{spec.backend}', 'url' = '{example[:-1]}')." if example else ""
        findings.error("MP305", wrong, place, hint or "Remove the option, or write a 'path' to which it belongs.")
    else:
        findings.error("MP302", wrong, given.value_place, f"Such as {example}" if example else "")


def check_shared(spec: TableSpec, entries: Sequence[OptionEntry], findings: Findings, *, is_declared: bool) -> None:
    """MP303 for a table that others write to although its rows are those of a query."""
    given = next((entry for entry in entries if entry.name == "shared"), None)
    if given is not None and spec.values.get("shared") and not is_declared:
        message = f"The rows of '{spec.name}' are those of its query: others cannot write to it."
        findings.error("MP303", message, given.place, "Remove 'shared', or declare the columns of the table.")
    elif given is not None and spec.values.get("shared") and not spec.schema.key:
        message = f"'shared' requires a PRIMARY KEY, which '{spec.name}' does not have."
        findings.error("MP303", message, given.place, "Declare a PRIMARY KEY, or remove the option.")


def _check_cache(spec: TableSpec, entry: OptionEntry, findings: Findings) -> None:
    if spec.backend == "cache":
        message = f"'{entry.name}' is for a cache in front of a table, but '{spec.name}' is a cache itself."
        hint = f"Write '{entry.name.removeprefix('cache.')}', the table's own option."
        findings.error("MP303", message, entry.place, hint)
    elif spec.values.get("shared"):
        message = (
            f"'{entry.name}' keeps rows of '{spec.name}' in this process, but every read of a shared table goes to "
        )
        findings.error("MP303", f"{message}the server.", entry.place, "Remove one of them.")
    elif spec.schema.columns and not spec.schema.key:
        message = f"'{entry.name}' requires a PRIMARY KEY, which '{spec.name}' does not have."
        findings.error("MP303", message, entry.place, "Declare a PRIMARY KEY, or remove the option.")


def bind_checks(
    statement: CreateTable, columns: Schema, context: Context
) -> tuple[tuple[Check, ...], exp.Expression | None]:
    """The constraints of a table, and their conjunction as a bound condition, for checks of expressions."""
    checks: list[Check] = []
    bound: list[exp.Expression] = []
    for check in statement.checks:
        condition = _bound(check, statement, columns, context)
        if condition is None:
            continue
        name = _name(check, statement, {c.name.lower() for c in checks}, context)
        has_path = check.condition.find(nodes.Path) is not None
        written = as_expression(check.condition.copy().transform(_path_as_written)) if has_path else None
        text = written.sql(dialect=MILLPOND) if written is not None else ""
        checks.append(Check(name, _unqualified(condition).sql(dialect=MILLPOND), text))
        bound.append(condition)
    whole = as_expression(exp.and_(*bound)) if len(bound) > 1 else bound[0] if bound else None
    return tuple(checks), whole


def _bound(check: CheckDef, statement: CreateTable, columns: Schema, context: Context) -> exp.Expression | None:
    """The bound condition over the table's columns; None, with a finding, if it is invalid."""
    findings, condition = context.findings, check.condition
    if condition.find(exp.Query) is not None:
        message = "A subquery is not allowed in CHECK, which is evaluated for one row."
        findings.error("MP225", message, check.place, "Compare columns of the row with each other or with constants.")
        return None
    if has_aggregate(condition) or condition.find(exp.Window, exp.Placeholder) is not None:
        message = "An aggregate, window function or parameter is not allowed in CHECK, which is evaluated for one row."
        findings.error("MP225", message, check.place, "Compare columns of the row with each other or with constants.")
        return None
    item = Item(statement.name.text, f"Table '{statement.name}'", columns, condition)
    binder = Binder(findings, StatementRelations(context, Clauses(Shares(), {})))
    before = findings.errors
    bound = as_expression(binder.bind_inside(condition.copy(), Scope(items=[item])))
    found = type_of(bound)
    if found is not None and not pa.types.is_boolean(found) and not pa.types.is_null(found):
        message = f"CHECK requires a condition, but this is {type_name(found)}."
        findings.error("MP225", message, check.place, "Write a comparison: CHECK (quantity >= 0).")
        return None
    return bound if findings.errors == before else None


def _name(check: CheckDef, statement: CreateTable, taken: set[str], context: Context) -> str:
    """The name as written, or generated from the table and the column."""
    if check.name is not None:
        if check.name.key in taken:
            message = f"Two constraints of table '{statement.name}' have the name '{check.name}'."
            context.findings.error("MP205", message, check.name.place, "Rename one of them.")
        return check.name.text
    base = "_".join([statement.name.text, *([check.column.text] if check.column is not None else []), "check"])
    number, name = 1, base
    while name.lower() in taken:
        number, name = number + 1, f"{base}_{number + 1}"
    return name


def _path_as_written(node: exp.Expression) -> exp.Expression:
    return exp.Var(this=paths.written(node)) if isinstance(node, nodes.Path) else node


def _unqualified(condition: exp.Expression) -> exp.Expression:
    """`t.quantity` as `quantity`."""

    def strip(node: exp.Expression) -> exp.Expression:
        if isinstance(node, exp.Column):
            return exp.column(exp.to_identifier(node.name))
        return node

    return as_expression(condition.copy().transform(strip))
