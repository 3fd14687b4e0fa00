"""Groups of statements of a flow that change a table together, event by event, and the order of events."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from sqlglot import exp

from millpond.contracts.source import ORDER_MAJOR, ORDER_MINOR
from millpond.plan.actions import action_of, reads_itself
from millpond.plan.change_model import ChangeGroup, Writer
from millpond.plan.model import BATCH, FlowPlan, Step, StepKind, TableKind, TablePlan
from millpond.plan.row_parts import NotByKey, mentions, reads_table
from millpond.schema import Schema
from millpond.sql.conditions import all_of
from millpond.sql.statements import Delete, Update

ORDER = (ORDER_MAJOR, ORDER_MINOR)
ASCENDING = [(name, "ascending") for name in ORDER]


def carry_order(query: exp.Query) -> exp.Query | None:
    """The query with the stream order as two more columns, or None if the result has its own order or none (aggregates,
    DISTINCT, ORDER BY, LIMIT, set operations other than UNION ALL)."""
    copy = query.copy()
    return copy if _carry(copy) else None


def _carry(query: exp.Expr) -> bool:
    if isinstance(query, exp.Union):
        keeps = not query.args.get("distinct") and not query.args.get("order") and not query.args.get("limit")
        return keeps and _carry(query.this) and _carry(query.expression)
    if not isinstance(query, exp.Select) or _has_own_order(query):
        return False
    alias = _driving_alias(query)
    if alias is None:
        return False
    for name in ORDER:
        query.append("expressions", exp.column(name, table=alias, quoted=True))
    return True


def _has_own_order(query: exp.Select) -> bool:
    if any(query.args.get(part) for part in ("group", "having", "distinct", "order", "limit", "offset", "windows")):
        return True
    return any(e.find(exp.AggFunc) and not e.find(exp.Subquery) for e in query.expressions)


def _driving_alias(query: exp.Select) -> str | None:
    """The alias of the relation that contains the batch, directly or in a derived stream."""
    relations = [query.args.get("from_") or query.args.get("from")]
    found = [r.this for r in relations if r is not None] + [j.this for j in query.args.get("joins") or []]
    outer = {"RIGHT", "FULL"}
    if any((j.side or "").upper() in outer for j in query.args.get("joins") or []):
        return None
    for relation in found:
        if isinstance(relation, exp.Table) and relation.name.lower() == BATCH:
            return relation.alias_or_name
        if isinstance(relation, exp.Subquery) and _reads_batch(relation) and _carry(relation.this):
            return relation.alias_or_name
    return None


def _reads_batch(relation: exp.Expr) -> bool:
    return any(t.name.lower() == BATCH for t in relation.find_all(exp.Table))


CHANGING = (StepKind.INSERT, StepKind.UPSERT, StepKind.UPDATE, StepKind.DELETE, StepKind.MERGE)


def groups_of(flow: FlowPlan, tables: Mapping[str, TablePlan]) -> tuple[ChangeGroup, ...]:
    """The groups of a flow. A single statement needs no group, unless it reads its own target, as MERGE and ON CONFLICT
    always do."""
    found = (group for part in _together(flow, tables) for group in _group(part, tables))
    return tuple(sorted(found, key=lambda group: group.writers[0].index))


def _together(flow: FlowPlan, tables: Mapping[str, TablePlan]) -> Iterator[list[Step]]:
    """The statements of each table, split where one between them processes the batch as a whole."""
    parts: dict[str, list[Step]] = {}
    for step in flow.steps:
        name = step.target.lower()
        plan = tables.get(name)
        if step.kind not in CHANGING or plan is None or plan.kind is not TableKind.DECLARED:
            continue
        if not plan.spec.schema.known or not _is_whole(step, plan.spec.schema):
            continue
        if takes_batches(step):
            yield from _dependent(parts.pop(name, []), plan.spec.schema)
        else:
            parts.setdefault(name, []).append(step)
    for name, part in parts.items():
        yield from _dependent(part, tables[name].spec.schema)


def _dependent(part: list[Step], schema: Schema) -> Iterator[list[Step]]:
    """Statements of one table whose order matters: not that of INSERTs into a table without key."""
    if schema.key or any(step.kind is not StepKind.INSERT for step in part):
        yield part
    else:
        yield from ([step] for step in part)


def _is_whole(step: Step, schema: Schema) -> bool:
    """Whether each value of a statement has a column; otherwise an error was reported elsewhere."""
    outputs = step.query.expressions if isinstance(step.query, exp.Select) else ()
    if step.kind in (StepKind.INSERT, StepKind.UPSERT, StepKind.UPDATE) and len(outputs) not in (0, len(step.columns)):
        return False
    return all(name in schema for name in step.columns)


def takes_batches(step: Step) -> bool:
    """Whether a statement's rows depend on the whole batch, not on single events: groups, ORDER BY, LIMIT."""
    return step.aggregate is not None or carry_order(step.query) is None


def _group(steps: list[Step], tables: Mapping[str, TablePlan]) -> Iterator[ChangeGroup]:
    writers = [_writer(step, tables[step.target.lower()].spec.schema) for step in steps]
    schema = tables[steps[0].target.lower()].spec.schema if steps else Schema(())
    # A row that violates a constraint must not be hidden by a later event that corrects it.
    alone = bool(schema.checks) or any(step.branches or step.conflict is not None for step in steps)
    alone = alone or any(w.one_by_one or _reads_row_it_writes(w, s) for w, s in zip(writers, steps, strict=True))
    if len(writers) > 1 or (writers and alone):
        yield ChangeGroup(steps[0].target, tuple(writers))


def _reads_row_it_writes(writer: Writer, step: Step) -> bool:
    by_event = step.kind in (StepKind.INSERT, StepKind.UPSERT)
    return writer.action is not None and by_event and not writer.action.always and reads_table(step.query, step.target)


def _writer(step: Step, schema: Schema) -> Writer:
    if not schema.key:
        reason = reads_itself(step, schema)
        checked = bool(schema.checks) and step.kind is not StepKind.INSERT
        alone = bool(reason) or step.kind is StepKind.MERGE or checked
        return Writer(step.index, None, reason or "the table has no key", alone, _events(step))
    try:
        return Writer(step.index, action_of(step, schema))
    except NotByKey as refusal:
        # The next event must match what one event has changed or added.
        inserts = step.kind in (StepKind.INSERT, StepKind.UPSERT)
        alone = refusal.reads_itself or step.kind is StepKind.MERGE
        alone = alone or (inserts and reads_table(step.query, step.target))
        return Writer(step.index, None, str(refusal), alone, _events(step))


def _events(step: Step) -> exp.Query | None:
    """The query of the positions of events that are relevant to a statement that is not by key; None for all."""
    select = step.query.copy()
    if not isinstance(select, exp.Select):
        return None
    statement = step.statement
    of_change = isinstance(statement, Update | Delete)
    own = [j for j in select.args.get("joins") or () if reads_table(j, step.target)]
    aliases = [j.this.alias_or_name for j in own]
    for join in own:
        select.args["joins"].remove(join)
    left = [e for part in ("from_", "joins", "laterals") for e in _listed(select.args.get(part))]
    if (own and not of_change) or any(mentions(e, a) for e in left for a in aliases):
        return None
    if any(reads_table(e, step.target) for e in left):
        return None
    where = select.args.pop("where", None)
    conditions = all_of(where.this if where is not None else None)
    plain = [c for c in conditions if not reads_table(c, step.target) and not any(mentions(c, a) for a in aliases)]
    select.set("expressions", [])
    return carry_order(select.where(*plain) if plain else select)


def _listed(found: exp.Expr | list[exp.Expr] | None) -> list[exp.Expr]:
    return found if isinstance(found, list) else [found] if found is not None else []
