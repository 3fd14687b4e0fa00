"""The FROM of a SELECT: relations, joins and lateral views become the items of its scope."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pyarrow as pa
from sqlglot import exp

from millpond.plan.bound import Reading, Spot
from millpond.plan.catalog import Relation, RelationKind
from millpond.plan.columns import column_of, sentence
from millpond.plan.generators import as_view, generated, is_generator, names_in_list
from millpond.plan.model import BATCH
from millpond.plan.runnable import cannot_run
from millpond.plan.scope import Item, Scope
from millpond.plan.typed import NAME, type_of, with_type
from millpond.redact import redact
from millpond.schema import Column, Schema
from millpond.sql import nodes

if TYPE_CHECKING:
    from millpond.plan.binder import Binder, Position

ONE_SIDED = ("SEMI", "ANTI")


def bind_from(binder: Binder, select: exp.Select, scope: Scope, at: Position) -> None:
    """Fill the scope from FROM, joins and lateral views, in their order."""
    from_ = select.args.get("from_")
    if from_ is not None:
        _add(binder, from_.this, scope, at)
    for join in select.args.get("joins") or ():
        _join(binder, join, scope, at)
    for lateral in select.args.get("laterals") or ():
        scope.items.append(_lateral(binder, lateral, scope))


def _add(binder: Binder, node: exp.Expr, scope: Scope, at: Position) -> list[Item]:
    """The items that one relation of FROM brings; a bracket around a join brings several."""
    before = len(scope.items)
    if isinstance(node, exp.Table):
        _append(binder, scope, _table(binder, node, at, len(scope.items)))
        _nested(binder, node, scope, at)
    elif isinstance(node, exp.Subquery) and isinstance(node.this, exp.Table):
        _add(binder, node.this, scope, at)
    elif isinstance(node, exp.Subquery):
        _append(binder, scope, _derived(binder, node, scope, at))
    elif isinstance(node, exp.Values):
        _append(binder, scope, _values(binder, node, scope))
    elif isinstance(node, exp.Lateral):
        _append(binder, scope, _lateral(binder, node, scope))
    else:
        _append(binder, scope, Item(node.alias or "_", "the relation", None, node))
    return scope.items[before:]


def _nested(binder: Binder, table: exp.Table, scope: Scope, at: Position) -> None:
    for join in table.args.get("joins") or ():
        _join(binder, join, scope, at)
    for lateral in table.args.get("laterals") or ():
        scope.items.append(_lateral(binder, lateral, scope))


def _append(binder: Binder, scope: Scope, item: Item) -> None:
    if scope.item(item.alias) is not None and not item.alias.startswith("_"):
        hint = f"Give one of them another name: {item.alias} AS {item.alias}2."
        binder.findings.error("MP205", f"FROM has '{item.alias}' twice.", item.at, hint)
    scope.items.append(item)


def _table(binder: Binder, table: exp.Table, at: Position, number: int) -> Item:
    relation = _relation(binder, table, at)
    named = isinstance(table.this, exp.Identifier)
    alias = table.alias or (relation.name if named else f"_{number + 1}")
    item = Item(
        alias,
        _label(relation, table),
        _renamed(binder, table, relation.columns),
        table,
        binder.findings.place(table) if relation.query is not None else None,
        relation.hidden,
        relation.drivers,
        relation,
        relation.watermark,
    )
    if table.args.get("pivots"):
        item.columns = None
    if (version := table.args.get("version")) is not None:
        _report_version(binder, version, item)
    if not relation.local:
        binder.readings.append(Reading(relation, item, at.spot))
    if relation.columns is None and relation.unseen:
        message = f"The columns of {item.label} could not be verified: {relation.unseen}."
        binder.findings.note("MP221", message, item.at, once=("MP221", relation.name))
    _put(table, relation, item)
    return item


def _report_version(binder: Binder, version: exp.Expr, item: Item) -> None:
    """FOR SYSTEM_TIME, TIMESTAMP and VERSION AS OF."""
    message = cannot_run(f"Reading {item.label} as of a time or version")
    hint = "Without it the table is read as it is when the batch or query begins."
    binder.findings.error("MP901", message, version if binder.findings.place(version) else item.at, hint)


def _label(relation: Relation, table: exp.Table) -> str:
    if isinstance(table.this, exp.Identifier):
        return f"{relation.kind} '{relation.name}'"
    return f"'{redact(table.this.text_)}'" if isinstance(table.this, nodes.Uri) else f"'{relation.name}'"


def _relation(binder: Binder, table: exp.Table, at: Position) -> Relation:
    inner = table.this
    if isinstance(inner, nodes.Uri | nodes.Changes):
        return binder.relations.of_node(table, at.spot, at.counted)
    if not isinstance(inner, exp.Identifier):
        binder.bind_inside(inner, Scope())
        return Relation(table.alias or inner.name, RelationKind.TABLE, local=True)
    cte = at.ctes.get(inner.name.lower())
    if cte is not None and not table.args.get("db"):
        _check_spot(binder, cte, table, at)
        return cte
    found = binder.relations.of_node(table, at.spot, at.counted)
    _check_spot(binder, found, table, at)
    return found


def _check_spot(binder: Binder, relation: Relation, table: exp.Table, at: Position) -> None:
    if not relation.is_stream or at.spot is not Spot.SUBQUERY:
        return
    message = f"Stream '{relation.name}' stands in a subquery, where only tables can."
    hint = f"Keep what you need of it in a table: CREATE TABLE {relation.name}_kept AS SELECT ... FROM {relation.name};"
    binder.findings.error("MP215", message, table, hint)


def _renamed(binder: Binder, table: exp.Expr, columns: Schema | None) -> Schema | None:
    """`t AS x(a, b)`: the columns under their new names."""
    alias = table.args.get("alias")
    names = [i.name for i in alias.args.get("columns") or ()] if isinstance(alias, exp.TableAlias) else []
    if not names or columns is None:
        return columns
    if len(names) != len(columns):
        message = f"The alias names {len(names)} columns, but there are {len(columns)}."
        binder.findings.error("MP207", message, alias)
        return None
    return Schema.of(replace(c, name=n) for c, n in zip(columns, names, strict=True))


def _put(table: exp.Table, relation: Relation, item: Item) -> None:
    """Write the relation's own name, the batch, or a derived stream's query where the user's name stood. Its WITH has
    been read: left there, the relation would look like more than a name to whoever runs the query."""
    table.set("mp_options", None)
    if isinstance(table.this, nodes.Uri | nodes.Changes | exp.Identifier) and relation.query is None:
        name = BATCH if relation.is_stream and not relation.local else relation.name
        table.set("this", _quoted(name, table.this))
    if relation.query is None:
        _set_alias(table, item.alias)
    else:
        derived = exp.Subquery(this=relation.query.copy())
        derived.set("alias", table.args.get("alias"))
        table.replace(derived)
        item.node = derived
        _set_alias(derived, item.alias)


def _quoted(name: str, like: exp.Expr | None = None) -> exp.Identifier:
    """A quoted name that remembers where it was written."""
    made = exp.Identifier(this=name, quoted=True)
    if like is not None and like.meta:
        made.meta.update(like.meta)
    return made


def _set_alias(node: exp.Expr, alias: str) -> None:
    held = node.args.get("alias")
    if isinstance(held, exp.TableAlias):
        held.set("this", _quoted(alias, held.this))
    else:
        node.set("alias", exp.TableAlias(this=_quoted(alias)))


def _derived(binder: Binder, node: exp.Subquery, scope: Scope, at: Position) -> Item:
    place = binder.findings.place(node)
    bound = binder.bind_query(node.this, replace(at, outer=None, inner=True))
    alias = node.alias or f"_{len(scope.items) + 1}"
    _set_alias(node, alias)
    label = "the subquery" if alias.startswith("_") else f"'{alias}'"
    schema = bound.schema
    columns = _renamed(binder, node, schema)
    watermark = bound.watermark if columns is schema else None
    return Item(alias, label, columns, node, place, drivers=bound.drivers, watermark=watermark)


def _values(binder: Binder, node: exp.Values, scope: Scope) -> Item:
    rows = [r.expressions if isinstance(r, exp.Tuple) else [r] for r in node.expressions]
    for row in rows:
        for value in row:
            binder.bind_inside(value, Scope())
    columns = Schema.of(Column(f"col{n}", _common([*values])) for n, values in enumerate(zip(*rows, strict=False), 1))
    alias = node.alias or f"_{len(scope.items) + 1}"
    _set_alias(node, alias)
    return Item(alias, f"'{node.alias or 'VALUES'}'", _renamed(binder, node, columns), node)


def _common(values: list[exp.Expr]) -> pa.DataType | None:
    """The type of a column of VALUES, where its values agree on one; a NULL fits each."""
    types = {type_of(value) for value in values}
    known = types - {pa.null()} if len(types) > 1 else types
    return known.pop() if len(known) == 1 else None


def _lateral(binder: Binder, node: exp.Lateral, scope: Scope) -> Item:
    """LATERAL VIEW explode(...) t AS a, b; LATERAL (SELECT ...): sees the items before it."""
    alias = node.args.get("alias")
    name = alias.name if alias is not None and alias.name else f"_{len(scope.items) + 1}"
    if isinstance(node.this, exp.Query):
        bound = binder.bind_subquery(node.this, scope)
        return Item(name, f"'{name}'", _renamed(binder, node, bound.schema), node)
    node.set("this", binder.bind_inside(node.this, scope))
    _set_alias(node, name)
    names = [i.name for i in alias.args.get("columns") or ()] if alias is not None else []
    return Item(name, f"'{name}'", generated(node.this, names), node)


def bind_generators(binder: Binder, select: exp.Select, scope: Scope) -> None:
    """Generators of several columns in the SELECT list become lateral views, which only the list sees."""
    for projection in list(select.expressions):
        if is_generator(projection):
            binder.bind_inside(projection, scope)
        names = names_in_list(projection)
        if not names:
            continue
        view = as_view(projection, names, f"_{len(scope.items) + 1}")
        item = _lateral(binder, view, scope)
        item.shown = False
        scope.items.append(item)
        select.append("laterals", view)
        assert item.columns is not None
        columns = [column_of(item, c.name, c.type, projection) for c in item.columns]
        select.set("expressions", [n for p in select.expressions for n in (columns if p is projection else [p])])


def _join(binder: Binder, join: exp.Join, scope: Scope, at: Position) -> None:
    left = list(scope.items)
    spot = Spot.SUBQUERY if at.spot is Spot.SUBQUERY else Spot.JOIN
    right = _add(binder, join.this, scope, replace(at, spot=spot))
    if join.args.get("method") == "NATURAL":
        _natural(join, left, right)
    if join.args.get("using"):
        _using(binder, join, scope, left, right)
    on = join.args.get("on")
    if on is not None:
        join.set("on", binder.bind_inside(on, scope))
    if str(join.args.get("kind") or "").upper() in ONE_SIDED:
        for item in right:
            item.shown = False


def _natural(join: exp.Join, left: list[Item], right: list[Item]) -> None:
    """NATURAL is USING over the columns that both sides have."""
    if any(i.columns is None for i in [*left, *right]):
        return
    names = {c.name.lower() for i in left for c in i.columns or ()}
    common = [c.name for i in right for c in i.columns or () if c.name.lower() in names]
    join.set("method", None)
    if common:
        join.set("using", [exp.to_identifier(n) for n in common])
    else:
        join.set("kind", "CROSS")


def _using(binder: Binder, join: exp.Join, scope: Scope, left: list[Item], right: list[Item]) -> None:
    """USING (k) becomes ON l.k = r.k, and `k` one column of both."""
    conditions: list[exp.Expr] = []
    merged: dict[str, exp.Expr] = {}
    for name in join.args["using"]:
        sides = _side(binder, name, scope, left), _side(binder, name, scope, right)
        if any(i.loose for i in [*left, *right]):
            merged[name.name.lower()] = exp.Column(this=_quoted(name.name))
        elif sides[0] is None or sides[1] is None:
            _report_using(binder, name, left if sides[0] is None else right)
        else:
            conditions.append(exp.EQ(this=sides[0].copy(), expression=sides[1].copy()))
            merged[name.name.lower()] = _merged(join, sides[0], sides[1])
    for item in [*left, *right]:
        item.merged.update(merged)
    scope.merged = {**merged, **{n: e for n, e in scope.merged.items() if n not in merged}}
    if conditions:
        join.set("using", None)
        join.set("on", exp.and_(*conditions, copy=False))


def _side(binder: Binder, name: exp.Identifier, scope: Scope, items: list[Item]) -> exp.Expr | None:
    before = scope.merged.get(name.name.lower())
    if before is not None and any(name.name.lower() in i.merged for i in items):
        return before
    found = [(i, c) for i in items if (c := i.column(name.name)) is not None]
    if len(found) > 1:
        where = " and ".join(i.label for i, _ in found)
        hint = "Write ON with the column's relation before it."
        binder.findings.error("MP204", f"Column '{name.name}' of USING is in {where}.", name, hint)
    return column_of(found[0][0], found[0][1].name, found[0][1].type, name) if found else None


def _merged(join: exp.Join, left: exp.Expr, right: exp.Expr) -> exp.Expr:
    side = str(join.args.get("side") or "").upper()
    if side == "FULL":
        both = exp.Coalesce(this=left.copy(), expressions=[right.copy()])
        both.meta[NAME] = left.name
        return with_type(both, type_of(left))
    return (right if side == "RIGHT" else left).copy()


def _report_using(binder: Binder, name: exp.Identifier, items: list[Item]) -> None:
    labels = " and ".join(i.label for i in items)
    hint = "USING needs a column that both sides have; write ON a.x = b.y otherwise."
    binder.findings.error("MP202", f"{sentence(labels)} has no column '{name.name}'.", name, hint)
