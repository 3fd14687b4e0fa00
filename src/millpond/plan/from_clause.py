"""Binding of the FROM of a SELECT: relations, joins, lateral views and generators become the items of its scope."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import pyarrow as pa
from sqlglot import exp

from millpond.plan.as_of import constant_rows, history_of, is_constant, moment_condition
from millpond.plan.bound import Item, Reference, Scope, Spot
from millpond.plan.catalog import Relation, RelationKind
from millpond.plan.columns import column_of, sentence
from millpond.plan.expression_types import NAME, type_of, with_type
from millpond.plan.function_names import function_name
from millpond.plan.model import BATCH, VERSIONS
from millpond.redact import redact
from millpond.schema import Column, Schema
from millpond.sql import nodes

if TYPE_CHECKING:
    from millpond.plan.binder import Binder, Position


EXPLODING = ("explode", "explode_outer", "posexplode", "posexplode_outer")
INLINING = ("inline", "inline_outer")


def generated(call: exp.Expr, names: Sequence[str] = ()) -> Schema | None:
    """The columns of a generator, with their own names or the given ones; None if only Spark can determine them."""
    known = _columns(call)
    if not names:
        return Schema.of(known) if known else None
    types = [c.type for c in known] if len(known) == len(names) else [None] * len(names)
    return Schema.of(Column(name, type_) for name, type_ in zip(names, types, strict=True))


def _columns(call: exp.Expr) -> list[Column]:
    name, of = function_name(call), _type_of_argument(call)
    if name in INLINING and of is not None and pa.types.is_list(of) and pa.types.is_struct(of.value_type):
        return [Column(f.name, f.type) for f in of.value_type]
    if name not in EXPLODING or of is None:
        return []
    position = [Column("pos", pa.int32())] if name.startswith("pos") else []
    if pa.types.is_list(of):
        return [*position, Column("col", of.value_type)]
    return [*position, Column("key", of.key_type), Column("value", of.item_type)] if pa.types.is_map(of) else []


def _type_of_argument(call: exp.Expr) -> pa.DataType | None:
    argument = next(iter(call.iter_expressions()), None)
    return type_of(argument) if argument is not None else None


def is_generator(projection: exp.Expr) -> bool:
    """Whether an item of the SELECT list is a generator that may return several columns."""
    return isinstance(projection, exp.Aliases) or function_name(projection) in (*EXPLODING, *INLINING)


def as_view(projection: exp.Expr, names: Sequence[str], alias: str) -> exp.Lateral:
    """A generator of the SELECT list as a lateral view."""
    columns = [exp.to_identifier(name, quoted=True) for name in names]
    named = exp.TableAlias(this=exp.to_identifier(alias, quoted=True), columns=columns)
    call = projection.this if isinstance(projection, exp.Aliases) else projection
    return exp.Lateral(this=call, view=True, outer=False, alias=named)


def names_in_list(projection: exp.Expr) -> tuple[str, ...]:
    """The columns of a bound item of the SELECT list if it is a generator of several, else none."""
    if isinstance(projection, exp.Aliases):
        return tuple(i.name for i in projection.expressions)
    found = _columns(projection)
    return tuple(c.name for c in found) if len(found) > 1 or function_name(projection) in INLINING else ()


ONE_SIDED = ("SEMI", "ANTI")


def bind_from(binder: Binder, select: exp.Select, scope: Scope, at: Position) -> None:
    """Fill the scope from FROM, joins and lateral views, in their order."""
    from_ = select.args.get("from_")
    if from_ is not None:
        for item in _add(binder, from_.this, scope, at):
            condition = _moment(binder, item, scope)
            if condition is not None:
                select.where(condition, copy=False)
    for join in select.args.get("joins") or ():
        _join(binder, join, scope, at)
    for lateral in select.args.get("laterals") or ():
        scope.items.append(_lateral(binder, lateral, scope))


def _add(binder: Binder, node: exp.Expr, scope: Scope, at: Position) -> list[Item]:
    """Add the items of one relation of FROM; a join in brackets adds several."""
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
        hint = f"Use an alias for one of them: {item.alias} AS {item.alias}2."
        binder.findings.error("MP205", f"FROM contains '{item.alias}' twice.", item.at, hint)
    scope.items.append(item)


def _table(binder: Binder, table: exp.Table, at: Position, number: int) -> Item:
    relation = _relation(binder, table, at)
    named = isinstance(table.this, exp.Identifier)
    alias = table.alias or (relation.name if named else f"_{number + 1}")
    label, version = _label(relation, table), table.args.get("version")
    past = history_of(binder, relation, version, label) if version is not None else None
    table.set("version", None)
    relation = past or relation
    item = Item(
        alias,
        label,
        _renamed(binder, table, relation.columns),
        table,
        binder.findings.place(table) if relation.query is not None else None,
        _hidden(relation),
        relation.drivers,
        relation,
        relation.watermark,
    )
    if table.args.get("pivots"):
        item.columns = None
    item.moment = version if past is not None else None
    if not relation.local:
        binder.references.append(Reference(relation, item, at.spot))
    if relation.columns is None and relation.unseen:
        message = f"The columns of {item.label} cannot be verified: {relation.unseen}."
        binder.findings.note("MP221", message, item.at, once=("MP221", relation.name))
    _put(table, relation, item)
    return item


def _hidden(relation: Relation) -> tuple[Column, ...]:
    """The hidden columns of a relation; events of a source also have the versions of the tables that they see."""
    is_source = relation.is_stream and relation.query is None and not relation.local and not relation.tables
    return (*relation.hidden, VERSIONS) if is_source else relation.hidden


def _moment(binder: Binder, item: Item, scope: Scope) -> exp.Expr | None:
    """The condition of an item that is read as of a time of the event; a constant one becomes its subquery."""
    version, item.moment = item.moment, None
    if version is None:
        return None
    if is_constant(version):
        constant_rows(binder, item, version)
        return None
    return moment_condition(binder, item, version, scope)


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
    message = f"Stream '{relation.name}' is not allowed in a subquery, which can only read tables."
    hint = f"Store it in a table: CREATE TABLE {relation.name}_stored AS SELECT ... FROM {relation.name};"
    if at.outer is not None and any(item.drivers for item in at.outer.items):
        hint = "Write EXISTS (SELECT 1 FROM one stream WHERE an equality and a time bound) as a condition of WHERE."
    binder.findings.error("MP215", message, table, hint)


def _renamed(binder: Binder, table: exp.Expr, columns: Schema | None) -> Schema | None:
    """`t AS x(a, b)`: the columns under their new names."""
    alias = table.args.get("alias")
    names = [i.name for i in alias.args.get("columns") or ()] if isinstance(alias, exp.TableAlias) else []
    if not names or columns is None:
        return columns
    if len(names) != len(columns):
        message = f"The alias has {len(names)} columns, but the relation has {len(columns)}."
        binder.findings.error("MP207", message, alias)
        return None
    return Schema.of(replace(c, name=n) for c, n in zip(columns, names, strict=True))


def _put(table: exp.Table, relation: Relation, item: Item) -> None:
    """Replace the user's name by the relation's own name, the batch, or a derived stream's query. Its WITH is removed,
    because it was read already, and the engine expects a plain name."""
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
    """A quoted name with its place in the text."""
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
    """The common type of a column of VALUES, if there is one; NULL has any type."""
    types = {type_of(value) for value in values}
    known = types - {pa.null()} if len(types) > 1 else types
    return known.pop() if len(known) == 1 else None


def _lateral(binder: Binder, node: exp.Lateral, scope: Scope) -> Item:
    """LATERAL VIEW explode(...) t AS a, b; LATERAL (SELECT ...), which see the items before them."""
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
    """Generators of several columns in the SELECT list become lateral views, which are visible only in the list."""
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
    for item in right:
        _add_moment(binder, join, item, scope)
    if str(join.args.get("kind") or "").upper() in ONE_SIDED:
        for item in right:
            item.shown = False


def _add_moment(binder: Binder, join: exp.Join, item: Item, scope: Scope) -> None:
    """The time of FOR SYSTEM_TIME AS OF as a part of the join's condition."""
    written = item.moment
    condition = _moment(binder, item, scope)
    if condition is None:
        return
    if (join.side or "").upper() in ("RIGHT", "FULL"):
        message = f"{join.side.upper()} JOIN of {item.label} as of a time would return every old row without an event."
        binder.findings.error("MP216", message, written, "Write JOIN or LEFT JOIN.")
        return
    on = join.args.get("on")
    if on is None:
        join.set("kind", None)
    join.set("on", condition if on is None else exp.and_(on, condition, copy=False))


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
    """USING (k) becomes ON l.k = r.k, and `k` is merged into one column."""
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
        hint = "Write ON with qualified columns instead."
        binder.findings.error("MP204", f"Column '{name.name}' of USING is ambiguous: it is in {where}.", name, hint)
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
    hint = "USING requires a column of both sides; otherwise write ON a.x = b.y."
    binder.findings.error("MP202", f"{sentence(labels)} has no column '{name.name}'.", name, hint)
