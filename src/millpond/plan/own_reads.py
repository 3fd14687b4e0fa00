"""Actions of INSERT and UPSERT that read the row they write: by a join, EXISTS, IN or a subquery on its key."""

from __future__ import annotations

from sqlglot import exp

from millpond.plan.change_model import EVENT, Action
from millpond.plan.model import Step
from millpond.plan.row_parts import (
    NotByKey,
    Parts,
    all_true,
    exists,
    inserting,
    items_of,
    key_values,
    mentions,
    of_row,
    reads_table,
)
from millpond.schema import Schema
from millpond.sql.conditions import all_of

NOT_BY_KEY = "it reads its own target, but not by the key of the row that it writes"
# A subquery with one of these clauses does not return the row of a key.
OF_GROUPS = ("group", "having", "qualify", "joins", "laterals", "windows", "offset")


def reading_insert(step: Step, schema: Schema) -> Action:
    """The action of an INSERT or UPSERT that reads its target by the key that it writes; raises NotByKey."""
    select = step.query.copy()
    if not isinstance(select, exp.Select):
        raise NotByKey(NOT_BY_KEY, reads_itself=True)
    outputs = dict(zip((schema[n].name for n in step.columns), (e.unalias() for e in select.expressions), strict=True))
    if any(name not in outputs or reads_table(outputs[name], step.target) for name in schema.key):
        raise NotByKey(NOT_BY_KEY, reads_itself=True)
    where = select.args.pop("where", None)
    conditions = list(all_of(where.this if where is not None else None))
    reader = _Reader(step.target, schema, {name: outputs[name] for name in schema.key})
    alias, more = reader.joined(select, conditions)
    parts = Parts(step.target, alias, reader.keys, reader.own_query)
    if reads_table(select.args["from_"], step.target) or any(mentions(v, alias) for v in reader.keys.values()):
        raise NotByKey(NOT_BY_KEY, reads_itself=True)
    reads = [c for c in conditions if mentions(c, alias) or reads_table(c, step.target)]
    condition = all_true([*more, *(parts.over_row(c) for c in reads)])
    reading = {n: v for n, v in outputs.items() if mentions(v, alias) or reads_table(v, step.target)}
    plain = {n: v for n, v in outputs.items() if n not in reading}
    values = {n: parts.over_row(v) if n in reading else _given(n) for n, v in outputs.items()}
    items = items_of(select, plain, parts, [c for c in conditions if c not in reads])
    if reads_table(items, step.target):
        raise NotByKey(NOT_BY_KEY, reads_itself=True)
    return Action(items, tuple(plain), tuple(parts.extra), inserting(step, schema, values, condition))


def _given(name: str) -> exp.Expr:
    return exp.column(name, table=EVENT, quoted=True)


class _Reader:
    """Reads of the target by the key that a statement writes."""

    def __init__(self, target: str, schema: Schema, keys: dict[str, exp.Expr]) -> None:
        self._target, self._schema = target, schema
        self.keys = keys

    def joined(self, select: exp.Select, conditions: list[exp.Expr]) -> tuple[str, list[exp.Expr]]:
        """Removes the join with the target from a query, and the comparison of the key from its conditions. Returns the
        target's alias, "" without such a join, and the remaining conditions on the row."""
        joins = select.args.get("joins") or []
        own = [j for j in joins if isinstance(j.this, exp.Table) and j.this.name.lower() == self._target.lower()]
        if not own:
            return "", []
        join, alias = own[0], own[0].this.alias_or_name
        joins.remove(join)
        outer = (join.side or "").upper() == "LEFT"
        inner = not join.side and (join.kind or "").upper() in ("", "INNER", "CROSS")
        others = [j.args["on"] for j in joins if j.args.get("on") is not None]
        if (
            len(own) > 1
            or not (outer or inner)
            or join.args.get("mp_options")
            or any(mentions(o, alias) for o in others)
        ):
            raise NotByKey(NOT_BY_KEY, reads_itself=True)
        on = list(all_of(join.args.get("on")))
        rest = self._more(on if outer else on + conditions, alias)
        if outer:
            if rest:
                raise NotByKey(NOT_BY_KEY, reads_itself=True)
            return alias, []
        conditions[:] = rest
        return alias, [exists()]

    def own_query(self, node: exp.Expr, parts: Parts) -> exp.Expr:
        """EXISTS, IN and subqueries over the row of the key."""
        if isinstance(node, exp.Exists):
            return exp.paren(self._holds(node.this, parts)[0])
        if isinstance(node, exp.Subquery) and isinstance(node.this, exp.Select) and len(node.this.expressions) == 1:
            holds, alias = self._holds(node.this, parts)
            value = node.this.expressions[0].unalias()
            if value.find(exp.AggFunc) is None:
                return exp.case().when(holds, self._over_row(value, alias, parts))
        if isinstance(node, exp.In) and node.args.get("query") is not None:
            return self._among(node, parts)
        raise NotByKey(NOT_BY_KEY, reads_itself=True)

    def _among(self, node: exp.In, parts: Parts) -> exp.Expr:
        """`x IN (SELECT key FROM target)`, NULL where x is."""
        select = node.args["query"].unnest()
        key = next(iter(self.keys))
        names = [e.unalias().name.lower() for e in select.expressions if isinstance(e.unalias(), exp.Column)]
        if len(self.keys) > 1 or names != [key.lower()] or node.this != self.keys[key]:
            raise NotByKey(NOT_BY_KEY, reads_itself=True)
        column = select.expressions[0].unalias()
        made = select.copy().where(exp.EQ(this=column.copy(), expression=node.this.copy()), copy=False)
        return exp.case().when(exp.Not(this=parts.event(node.this).is_(exp.null())), self._holds(made, parts)[0])

    def _holds(self, select: exp.Expr, parts: Parts) -> tuple[exp.Expr, str]:
        """The condition for a subquery to find the row of the key, and the row's alias in the subquery."""
        source = select.args.get("from_")
        plain = isinstance(select, exp.Select) and not any(select.args.get(part) for part in OF_GROUPS)
        if not plain or source is None or not isinstance(source.this, exp.Table):
            raise NotByKey(NOT_BY_KEY, reads_itself=True)
        if source.this.name.lower() != self._target.lower() or any(e.find(exp.AggFunc) for e in select.expressions):
            raise NotByKey(NOT_BY_KEY, reads_itself=True)
        where = select.args.get("where")
        alias = source.this.alias_or_name
        rest = self._more(list(all_of(where.this if where is not None else None)), alias)
        found: exp.Expr = exists()
        for condition in rest:
            found = exp.and_(found, exp.func("coalesce", self._over_row(condition, alias, parts), exp.false()))
        return found, alias

    def _more(self, conditions: list[exp.Expr], alias: str) -> list[exp.Expr]:
        try:
            return key_values(conditions, alias, self._schema, self.keys)[1]
        except NotByKey as error:
            raise NotByKey(NOT_BY_KEY, reads_itself=True) from error

    def _over_row(self, expression: exp.Expr, alias: str, parts: Parts) -> exp.Expr:
        """An expression of a subquery over ROW and EVENT: its relation is the row, outer columns are the event's."""
        if expression.find(exp.Select) is not None:
            raise NotByKey(NOT_BY_KEY, reads_itself=True)

        def placed(node: exp.Expr) -> exp.Expr:
            if not isinstance(node, exp.Column):
                return node
            if alias.lower() == node.table.lower() or parts.alias.lower() == node.table.lower():
                return of_row(node)
            return parts.event(node)

        return exp.paren(expression.copy().transform(placed))
