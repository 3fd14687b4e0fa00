"""FROM and WHERE: the order of joins, lateral views, and the conditions on their rows."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
from sqlglot import exp

from millpond.expressions.coercion import common
from millpond.expressions.compile import compile_expression
from millpond.expressions.failures import NotCompilable
from millpond.relational.codes import Values, in_type, whole
from millpond.relational.compiled import checked
from millpond.relational.evaluation import Evaluation
from millpond.relational.generators import exploded
from millpond.relational.inputs import Bracket, FromItem, Rows, Source, known_as, whole_table
from millpond.relational.joins import as_mask, joined, relations_of, split_condition, unmatched
from millpond.schema import Schema
from millpond.sql.conditions import all_of

INNER = ("", "INNER", "CROSS")
# The relation with the number of the outer row while a lateral subquery is evaluated.
OWNER = "__owner"


def rows(evaluation: Evaluation, select: exp.Select, around: Rows | None) -> Rows:
    """Return the rows of FROM and WHERE; with `around`, each joined to the row of the outer query that it belongs
    to."""
    laterals = select.args.get("laterals") or []
    made = {lateral.alias_or_name.lower() for lateral in laterals}
    conditions = list(all_of(_where(select)))
    # Conditions on columns of a lateral view, and subqueries, which may mention them, follow the lateral views.
    late = [c for c in conditions if made and (c.find(exp.Query) or relations_of(c) & made)]
    early = [c for c in conditions if c not in late]
    found = _from(evaluation, select, early, around)
    for lateral in laterals:
        found = exploded(evaluation, lateral, found)
    return _filtered(evaluation, found, late)


def _from(evaluation: Evaluation, select: exp.Select, conditions: list[exp.Expr], around: Rows | None) -> Rows:
    first = select.args.get("from_")
    if first is None:
        one = around or Rows(pa.table({"_one": pa.nulls(1, pa.int8())}), {})
        return _filtered(evaluation, one, conditions)
    joins = select.args.get("joins") or []
    leading = next((n for n, j in enumerate(joins) if not _is_inner(j)), len(joins))
    inner = [c for j in joins[:leading] for c in all_of(j.args.get("on"))]
    if leading == len(joins):
        items = [_item(evaluation, r, select) for r in (first.this, *(j.this for j in joins))]
        return _together(evaluation, items, inner + conditions, around)
    found = _in_turn(evaluation, select, inner, leading)
    if around is None:
        return _filtered(evaluation, found, conditions)
    return _tied(evaluation, found, conditions, around)


def _in_turn(evaluation: Evaluation, select: exp.Select, inner: list[exp.Expr], leading: int) -> Rows:
    """Join with outer joins: the leading inner joins together, which may be reordered, then the others as written."""
    first, joins = select.args["from_"].this, select.args["joins"]
    items = [_item(evaluation, r, select) for r in (first, *(j.this for j in joins[:leading]))]
    rest = joins[leading:]
    found: Rows | None = None
    if leading == 0 and _kind(rest[0]) == "RIGHT" and not isinstance(rest[0].this, exp.Lateral):
        # With the sides exchanged it is a LEFT join, which looks up only the rows it needs.
        right = _item(evaluation, rest[0].this, select)
        found = _joined(evaluation, right.whole(), items[0], rest[0], "LEFT")
        rest = rest[1:]
    if found is None:
        found = _together(evaluation, items, inner, None)
    for join in rest:
        if isinstance(join.this, exp.Lateral):
            found = _lateral(evaluation, join, found)
        else:
            found = _joined(evaluation, found, _item(evaluation, join.this, select), join, _kind(join))
    return found


def _joined(evaluation: Evaluation, found: Rows, item: FromItem, join: exp.Join, kind: str) -> Rows:
    on = split_condition(list(all_of(join.args.get("on"))), item.aliases, set(found.names))
    return joined(found, item, on, kind, evaluation.value)


def _tied(evaluation: Evaluation, found: Rows, conditions: list[exp.Expr], around: Rows) -> Rows:
    """Return the rows of a correlated subquery whose joins are not correlated."""
    own = frozenset(found.names)
    usable = [c for c in conditions if not c.find(exp.Query)]
    on = split_condition(usable, own, set(around.names) - own)
    both = joined(around, Bracket(found, evaluation.limits), on, "INNER", evaluation.value)
    return _filtered(evaluation, both, [c for c in conditions if c not in usable])


def _together(evaluation: Evaluation, items: list[FromItem], conditions: list[exp.Expr], around: Rows | None) -> Rows:
    """Join relations by inner joins. The batch comes first, wherever it was written, because its values then select the
    rows of the tables by key."""
    waiting = sorted(items, key=lambda item: item.is_table)
    found = around
    if found is None:
        found, conditions = _first(evaluation, waiting.pop(0), conditions)
    while waiting:
        # A relation that is not joined yet hides a relation of the same name in the outer query.
        unknown = {name for item in waiting for name in item.aliases}
        item = _next(waiting, conditions, set(found.names) - unknown)
        waiting.remove(item)
        known = set(found.names) - unknown
        usable = [c for c in conditions if _is_ready(c, known | item.aliases, unknown - item.aliases)]
        conditions = [c for c in conditions if c not in usable]
        found = joined(found, item, split_condition(usable, item.aliases, known), "INNER", evaluation.value)
    return _filtered(evaluation, found, conditions)


def _first(evaluation: Evaluation, item: FromItem, conditions: list[exp.Expr]) -> tuple[Rows, list[exp.Expr]]:
    """Return the rows of the first relation and the remaining conditions; a table applies the conditions on it
    alone."""
    if not isinstance(item, Source) or not item.is_table:
        return item.whole(), conditions
    own = [c for c in conditions if _is_ready(c, set(item.aliases), set()) and _is_plain(c)]
    if not own:
        return item.whole(), conditions
    asked = evaluation.cache.once("own", own[0], lambda: exp.and_(*(c.copy() for c in own)))
    return item.where(asked), [c for c in conditions if c not in own]


def _next(waiting: list[FromItem], conditions: list[exp.Expr], known: set[str]) -> FromItem:
    for item in waiting:
        if split_condition(conditions, item.aliases, known).ours:
            return item
    return waiting[0]


def _is_ready(condition: exp.Expr, known: set[str] | frozenset[str], unknown: set[str]) -> bool:
    """Whether a condition can be evaluated. Subqueries are evaluated last, when all relations they may mention are
    joined."""
    return not condition.find(exp.Query, exp.Window) and relations_of(condition) <= set(known) - unknown


def _filtered(evaluation: Evaluation, found: Rows, conditions: Sequence[exp.Expr]) -> Rows:
    for condition in conditions:
        found = found.filter(pa.array(as_mask(evaluation.value(condition, found))))
    return found


def _item(evaluation: Evaluation, relation: exp.Expr, select: exp.Select) -> FromItem:
    """Return a relation of FROM: a table or the batch, a query, VALUES, or a join in parentheses."""
    if relation.args.get("pivots") or relation.args.get("sample"):
        raise NotCompilable("a clause of a relation in FROM that only Spark supports")
    if (isinstance(relation, exp.Subquery) and isinstance(relation.this, exp.Table)) or _has_joins(relation):
        return _bracket(evaluation, relation, select)
    alias = relation.alias_or_name
    wanted = evaluation.cache.once(f"wanted {alias}", select, lambda: _mentioned(select, alias))
    given = relation.args.get("alias")
    names = [i.name for i in given.args.get("columns") or ()] if given is not None else []
    if isinstance(relation, exp.Subquery):
        return Source(alias, _renamed(evaluation.query(relation), names), wanted, evaluation.numbers, evaluation.limits)
    if isinstance(relation, exp.Values):
        return Source(alias, _renamed(_values(relation), names), wanted, evaluation.numbers, evaluation.limits)
    if not isinstance(relation, exp.Table) or not isinstance(relation.this, exp.Identifier):
        raise NotCompilable("a relation in FROM that only Spark reads")
    if any(v for k, v in relation.args.items() if v and k not in ("this", "alias")):
        raise NotCompilable("a clause of a relation in FROM that only Spark supports")
    found = evaluation.relation(relation.name.lower())
    if found is None:
        raise NotCompilable(f"'{relation.name}', which Spark reads")
    if names:
        renamed = _renamed(whole_table(found, evaluation.limits), names)
        return Source(alias, renamed, wanted, evaluation.numbers, evaluation.limits)
    return Source(alias, found, wanted, evaluation.numbers, evaluation.limits)


def _has_joins(relation: exp.Expr) -> bool:
    return isinstance(relation, exp.Table) and bool(relation.args.get("joins"))


def _bracket(evaluation: Evaluation, relation: exp.Expr, select: exp.Select) -> Bracket:
    """Evaluate `(a JOIN b ON ...)` before the joins around it."""
    table = relation.this if isinstance(relation, exp.Subquery) else relation
    if isinstance(relation, exp.Subquery) and relation.alias:
        raise NotCompilable("a join in parentheses with an alias")
    inside = evaluation.cache.once("bracket", table, lambda: _as_select(table, select))
    return Bracket(evaluation.rows(inside, None), evaluation.limits)


def _as_select(table: exp.Expr, select: exp.Select) -> exp.Select:
    """Return a query of the same joins that selects every column of the outer query."""
    alone = table.copy()
    joins, laterals = alone.args.pop("joins", None), alone.args.pop("laterals", None)
    columns = [column.copy() for column in select.find_all(exp.Column)]
    made = exp.Select(expressions=columns).from_(alone, copy=False)
    made.set("joins", joins)
    made.set("laterals", laterals)
    return made


def _renamed(table: pa.Table, names: Sequence[str]) -> pa.Table:
    if names and len(names) != table.num_columns:
        raise NotCompilable("a column list of another length than its query")
    return table.rename_columns(list(names)) if names else table


def _values(node: exp.Values) -> pa.Table:
    """Evaluate `VALUES (...), (...)`; a column has the common type of its values."""
    rows_ = [r.expressions if isinstance(r, exp.Tuple) else [r] for r in node.expressions]
    if len({len(row) for row in rows_}) != 1:
        raise NotCompilable("VALUES with rows of different lengths")
    one = pa.table({"_one": pa.nulls(1, pa.int8())})
    columns: dict[str, Values] = {}
    for number, written in enumerate(zip(*rows_, strict=True), 1):
        parts = [whole(compile_expression(e, Schema.from_arrow(one.schema)).evaluate(one)) for e in written]
        type_ = common([part.type for part in parts])
        if type_ is None or pa.types.is_null(type_):
            raise NotCompilable("VALUES without a common type")
        columns[f"col{number}"] = pa.concat_arrays([in_type(part, type_) for part in parts])
    return pa.table(columns)


def _lateral(evaluation: Evaluation, join: exp.Join, found: Rows) -> Rows:
    """Evaluate `JOIN LATERAL (SELECT ...)`: each row with its rows of the subquery; LEFT keeps rows that have none."""
    lateral, kind = join.this, _kind(join)
    select = checked(lateral.this.unnest())
    parts = ("group", "having", "distinct", "order", "limit", "offset", "with_")
    grouped = any(select.args.get(part) for part in parts) or select.find(exp.AggFunc, exp.Window)
    if kind not in ("INNER", "LEFT") or grouped or lateral.args.get("view"):
        raise NotCompilable("a lateral subquery with groups, order or a limit")
    own = f"_{next(evaluation.numbers)}"
    numbered = found.with_column(OWNER, "n", pa.array(np.arange(len(found))), own)
    pairs = evaluation.rows(select, numbered)
    alias = lateral.args.get("alias")
    names = [i.name for i in alias.args.get("columns") or ()] if alias is not None else []
    outputs = {n: evaluation.value(e.unalias(), pairs) for n, e in _named(select, names)}
    made = known_as(lateral.alias_or_name, outputs, evaluation.numbers)
    owners = pairs.table.column(own).to_numpy()
    both = found.take(owners).beside(made)
    kept = np.ones(len(owners), bool)
    for condition in all_of(join.args.get("on")):
        kept &= as_mask(evaluation.value(condition, both))
    places = np.flatnonzero(kept)
    return unmatched(found, made, owners[places], places) if kind == "LEFT" else both.take(places)


def _named(select: exp.Select, names: Sequence[str]) -> list[tuple[str, exp.Expr]]:
    own = [e.alias_or_name for e in select.expressions]
    if names and len(names) != len(own):
        raise NotCompilable("a column list of another length than its query")
    return list(zip(names or own, select.expressions, strict=True))


def _where(select: exp.Select) -> exp.Expr | None:
    where = select.args.get("where")
    return where.this if where is not None else None


def _is_plain(condition: exp.Expr) -> bool:
    """Whether a condition uses columns but no fields of structs."""
    columns = list(condition.find_all(exp.Column))
    return bool(columns) and all(len(column.parts) == 2 for column in columns)


def _is_inner(join: exp.Join) -> bool:
    return _kind(join) == "INNER" and not isinstance(join.this, exp.Lateral)


def _kind(join: exp.Join) -> str:
    side, kind = (join.side or "").upper(), (join.kind or "").upper()
    if join.args.get("using") or (join.args.get("method") or "") or join.args.get("options"):
        raise NotCompilable("a join with USING, NATURAL or a hint")
    if kind in ("SEMI", "ANTI") and side in ("", "LEFT"):
        return kind
    if side in ("LEFT", "RIGHT", "FULL") and kind in ("", "OUTER"):
        return side
    if not side and kind in INNER:
        return "INNER"
    raise NotCompilable(f"a {side} {kind} join")


def _mentioned(select: exp.Select, alias: str) -> frozenset[str]:
    """Return the columns of a relation that a SELECT mentions anywhere."""
    name = alias.lower()
    found = set()
    for column in select.find_all(exp.Column):
        parts = [p.name.lower() for p in column.parts]
        if len(parts) > 1 and parts[0] == name:
            found.add(parts[1])
        elif len(parts) == 1:
            found.add(parts[0])
    return frozenset(found)
