"""Which statements of a flow change a table together, event by event."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from sqlglot import exp

from millpond.plan.actions import action_of, reads_itself
from millpond.plan.change_model import ChangeGroup, Writer
from millpond.plan.model import FlowPlan, Step, StepKind, TableKind, TablePlan
from millpond.plan.row_parts import NotByKey, mentions, reads_table
from millpond.plan.stream_order import carry_order
from millpond.schema import Schema
from millpond.sql.conditions import all_of
from millpond.sql.statements import Delete, Update

CHANGING = (StepKind.INSERT, StepKind.UPSERT, StepKind.UPDATE, StepKind.DELETE, StepKind.MERGE)


def groups_of(flow: FlowPlan, tables: Mapping[str, TablePlan]) -> tuple[ChangeGroup, ...]:
    """The groups of a flow. A statement alone needs none unless it reads its own target, as MERGE and ON CONFLICT
    always do: it is exact as it is."""
    found = (group for part in _together(flow, tables) for group in _group(part, tables))
    return tuple(sorted(found, key=lambda group: group.writers[0].index))


def _together(flow: FlowPlan, tables: Mapping[str, TablePlan]) -> Iterator[list[Step]]:
    """The statements of each table, apart where one between them takes the batch as a whole."""
    parts: dict[str, list[Step]] = {}
    for step in flow.steps:
        name = step.target.lower()
        plan = tables.get(name)
        if step.kind not in CHANGING or plan is None or plan.kind is not TableKind.DECLARED:
            continue
        if not plan.spec.schema.known or not _is_whole(step, plan.spec.schema):
            continue
        if takes_batches(step):
            yield parts.pop(name, [])
        elif plan.spec.schema.key:
            parts.setdefault(name, []).append(step)
        else:
            yield [step]
    yield from parts.values()


def _is_whole(step: Step, schema: Schema) -> bool:
    """Whether each value of a statement has its column: one that has not is reported elsewhere."""
    outputs = step.query.expressions if isinstance(step.query, exp.Select) else ()
    if step.kind in (StepKind.INSERT, StepKind.UPSERT, StepKind.UPDATE) and len(outputs) not in (0, len(step.columns)):
        return False
    return all(name in schema for name in step.columns)


def takes_batches(step: Step) -> bool:
    """Whether a statement's rows come of a batch, not of events: groups, ORDER BY, LIMIT."""
    return step.aggregate is not None or carry_order(step.query) is None


def _group(steps: list[Step], tables: Mapping[str, TablePlan]) -> Iterator[ChangeGroup]:
    writers = [_writer(step, tables[step.target.lower()].spec.schema) for step in steps]
    schema = tables[steps[0].target.lower()].spec.schema if steps else Schema(())
    # A row that breaks a constraint must not hide behind a later event that repairs it.
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
        # What one event has changed or added, the next one matches.
        alone = refusal.reads_itself or step.kind is StepKind.MERGE
        return Writer(step.index, None, str(refusal), alone, _events(step))


def _events(step: Step) -> exp.Query | None:
    """The query of the places of the events that may matter to a statement that does not go by key; None for all."""
    select = step.query.copy()
    if not isinstance(select, exp.Select):
        return None
    statement = step.statement
    of_change = isinstance(statement, Update | Delete)
    own = [j for j in select.args.get("joins") or () if j.this.name.lower() == step.target.lower()]
    aliases = [j.this.alias_or_name for j in own]
    for join in own:
        select.args["joins"].remove(join)
    left = [e for part in ("from_", "joins", "laterals") for e in _listed(select.args.get(part))]
    if (own and not of_change) or any(mentions(e, a) for e in left for a in aliases):
        return None
    where = select.args.pop("where", None)
    conditions = all_of(where.this if where is not None else None)
    plain = [c for c in conditions if not reads_table(c, step.target) and not any(mentions(c, a) for a in aliases)]
    select.set("expressions", [])
    return carry_order(select.where(*plain) if plain else select)


def _listed(found: exp.Expr | list[exp.Expr] | None) -> list[exp.Expr]:
    return found if isinstance(found, list) else [found] if found is not None else []
