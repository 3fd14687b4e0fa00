"""Binding of queries: resolves every name to a column or relation, expands stars, and names every output."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import pyarrow as pa
from sqlglot import exp

from millpond.errors import Place
from millpond.plan.bound import QUALIFIED, BoundQuery, BoundSelect, Joined, Output, Reference, Scope, Spot
from millpond.plan.catalog import Relation, RelationKind
from millpond.plan.columns import Names, Relations, bind_expression, expand_value
from millpond.plan.expression_types import type_of, with_type
from millpond.plan.findings import Findings
from millpond.plan.from_clause import bind_from, bind_generators
from millpond.plan.function_names import has_aggregate
from millpond.plan.outputs import as_projection, expand_star, is_star, output_of
from millpond.schema import Schema
from millpond.sql import nodes
from millpond.sql.dialect import OF_BYTES

# Marks nodes whose error was reported, so that checks do not repeat it.
WRONG = "mp_wrong"

SET_OPERATIONS = {exp.Union: "UNION", exp.Intersect: "INTERSECT", exp.Except: "EXCEPT"}


@dataclass(frozen=True)
class Position:
    """The position of a query: its spot, the visible CTEs, and whether an aggregate counts its rows."""

    spot: Spot = Spot.FROM
    counted: bool = False
    inner: bool = False
    outer: Scope | None = None
    ctes: Mapping[str, Relation] = field(default_factory=dict)


class Binder:
    """Binds the query of one statement, in place; collects what it reads and each SELECT with its scope. `stream` is
    the name of the stream that the query defines, if any."""

    def __init__(self, findings: Findings, relations: Relations, stream: str = "") -> None:
        self.findings = findings
        self._stream = stream
        self.relations = relations
        self.references: list[Reference] = []
        self.selects: list[BoundSelect] = []
        self._ctes: Mapping[str, Relation] = {}

    def bind(self, query: exp.Query) -> BoundQuery:
        """Bind a statement's own query."""
        bound = self.bind_query(query, Position())
        return replace(bound, references=tuple(self.references), selects=tuple(self.selects))

    def bind_subquery(self, query: exp.Query, scope: Scope) -> BoundQuery:
        """Bind a query inside an expression, which sees the outer scope."""
        at = Position(Spot.SUBQUERY, inner=True, outer=scope, ctes=self._ctes)
        bound = self.bind_query(query, at)
        if bound.outputs is not None and len(bound.outputs) == 1:
            with_type(query, bound.outputs[0].type)
        return bound

    def bind_query(self, query: exp.Query, at: Position) -> BoundQuery:
        at = self._with_ctes(query, at)
        if isinstance(query, exp.Subquery):
            bound = self.bind_query(query.this, at)
            self._modifiers(query, bound)
            return replace(bound, query=query)
        if isinstance(query, exp.SetOperation):
            return self._set_operation(query, at)
        if isinstance(query, exp.Select):
            return self._select(query, at)
        return BoundQuery(query, None, ())

    def _with_ctes(self, query: exp.Query, at: Position) -> Position:
        with_ = query.args.get("with_")
        if with_ is None:
            return at
        ctes, kept = dict(at.ctes), []
        for n, cte in enumerate(with_.expressions):
            if cte.alias.lower() in {earlier.alias.lower() for earlier in with_.expressions[:n]}:
                self.findings.error("MP205", f"WITH defines '{cte.alias}' twice.", cte, "Rename one of them.")
            bound = self.bind_query(cte.this, replace(at, ctes=ctes, inner=True))
            names = [i.name for i in cte.args["alias"].args.get("columns") or ()]
            if bound.drivers:
                ctes[cte.alias.lower()] = _put_in(cte.alias, bound, names)
                continue
            kept.append(cte)
            columns = _renamed(bound.schema, names)
            ctes[cte.alias.lower()] = Relation(cte.alias, RelationKind.TABLE, columns, local=True)
        with_.set("expressions", kept)
        if not kept:
            query.set("with_", None)
        return replace(at, ctes=ctes)

    def _set_operation(self, query: exp.SetOperation, at: Position) -> BoundQuery:
        inside, place = replace(at, inner=True), self.findings.place(query.right)
        left, right = self.bind_query(query.left, inside), self.bind_query(query.right, inside)
        word = next(w for kind, w in SET_OPERATIONS.items() if isinstance(query, kind))
        self._check_sides(place, left, right, word)
        drivers = tuple(dict.fromkeys([*left.drivers, *right.drivers]))
        bound = BoundQuery(query, left.outputs, drivers, known=left.known)
        self._modifiers(query, bound)
        return bound

    def _check_sides(self, place: Place | None, left: BoundQuery, right: BoundQuery, word: str) -> None:
        if left.outputs is not None and right.outputs is not None and len(left.outputs) != len(right.outputs):
            message = f"The two sides of {word} have {len(left.outputs)} and {len(right.outputs)} columns."
            self.findings.error("MP207", message, place, "Select the same columns in the same order on both sides.")
        if left.drivers and right.drivers and set(left.drivers) != set(right.drivers):
            message = f"{word} combines two streams, but each stream has a flow of its own."
            hint = "Write two INSERT statements into the same target, one per stream."
            self.findings.error("MP218", message, place, hint)

    def _select(self, select: exp.Select, at: Position) -> BoundQuery:
        scope = Scope(at.outer)
        group = select.args.get("group")
        grouped = group is not None or _aggregates(select)
        self._ctes, before = at.ctes, self._ctes
        bind_from(self, select, scope, replace(at, counted=at.counted or grouped))
        if (where := select.args.get("where")) is not None:
            later = frozenset(e.alias.lower() for e in select.expressions if isinstance(e, exp.Alias))
            where.set("this", self._bind(where.this, Names(scope, self.findings, self.relations, later=later)))
        bind_generators(self, select, scope)
        outputs = self._outputs(select, scope, at)
        groups = self._groups(select, scope, outputs)
        self._after(select, scope, outputs, groups)
        known = [o for o in outputs if not is_star(o.expr)]
        loose = len(known) < len(outputs)
        if not loose:
            select.set("expressions", [as_projection(o) for o in known])
        streams = tuple(i for i in scope.items if i.drivers)
        if select.args.get("qualify") is not None and not streams and not loose:
            _filter_by_windows(select)
        yields = None if loose else tuple(known)
        made = BoundSelect(select, scope, at.spot, yields, tuple(groups), grouped, streams, at.inner)
        self.selects.append(made)
        self._ctes = before
        joined = self._joined(made)
        if joined is not None:
            select.replace(joined.query)
            return BoundQuery(joined.query, yields, (joined.driver,), known=tuple(known), watermark=joined.watermark)
        passed_on = made.passed_on()
        watermark = passed_on[1] if passed_on is not None else None
        return BoundQuery(select, yields, made.drivers, known=tuple(known), watermark=watermark)

    def _joined(self, select: BoundSelect) -> Joined | None:
        """A join of streams in a subquery or derived stream, which drives a separate flow."""
        if len(select.streams) < 2 or select.spot is Spot.SUBQUERY or not (select.inner or self._stream):
            return None
        return self.relations.joined(select, "" if select.inner else self._stream)

    def _outputs(self, select: exp.Select, scope: Scope, at: Position) -> list[Output]:
        outputs: list[Output] = []
        aliases: dict[str, exp.Expr] = {}
        windowed = any(isinstance(g, nodes.Window) for g in _group_list(select))
        names = Names(scope, self.findings, self.relations, aliases, windowed=windowed)
        for projection in select.expressions:
            if is_star(projection) and (values := expand_value(projection, names)) is not None:
                outputs += [output_of(value) for value in values]
                continue
            if is_star(projection):
                outputs += [_star_output(e) for e in expand_star(projection, scope, self.findings)]
                continue
            bound = self._bind(projection, names)
            output = output_of(bound)
            outputs.append(output)
            if isinstance(bound, exp.Alias):
                aliases.setdefault(output.name.lower(), output.expr)
        return outputs

    def _groups(self, select: exp.Select, scope: Scope, outputs: list[Output]) -> list[exp.Expr]:
        """The expressions of GROUP BY, with ordinals and aliases resolved."""
        group = select.args.get("group")
        if group is None:
            return []
        if group.args.get("all"):
            group.set("all", None)
            plain = [o.expr for o in outputs if not is_star(o.expr) and not has_aggregate(o.expr)]
            group.set("expressions", [e.copy() for e in plain])
            return list(group.expressions)
        aliases = {o.name.lower(): o.expr for o in outputs if not is_star(o.expr)}
        names = Names(scope, self.findings, self.relations, aliases, put_in=True)
        group.set("expressions", [self._group(g, names, outputs) for g in group.expressions])
        return [leaf for g in group.expressions for leaf in _leaves(g)]

    def _group(self, node: exp.Expr, names: Names, outputs: list[Output]) -> exp.Expr:
        if isinstance(node, exp.Literal) and node.is_int:
            position = int(node.this)
            if 1 <= position <= len(outputs):
                return outputs[position - 1].expr.copy()
            message = f"GROUP BY {position} is out of range: the SELECT list ends at {len(outputs)}."
            self.findings.error("MP210", message, node, "Positions start at 1.")
            node.meta[WRONG] = True
            return node
        return self._bind(node, names)

    def _after(self, select: exp.Select, scope: Scope, outputs: list[Output], groups: list[exp.Expr]) -> None:
        """The clauses that see the SELECT list: HAVING, ORDER BY and the rest."""
        aliases = {o.name.lower(): o.expr for o in outputs if not is_star(o.expr)}
        windowed = any(isinstance(g, nodes.Window) for g in groups)
        names = Names(scope, self.findings, self.relations, aliases, True, True, windowed)
        if (having := select.args.get("having")) is not None:
            having.set("this", self._bind(having.this, names))
        if (qualify := select.args.get("qualify")) is not None:
            qualify.set("this", self._bind(qualify.this, names))
        for window in select.args.get("windows") or ():
            self._bind(window, names)
        self._ordering(select, replace(names, put_in=False))

    def _ordering(self, query: exp.Query, names: Names) -> None:
        for clause in ("order", "sort", "cluster", "distribute"):
            if (node := query.args.get(clause)) is not None:
                self._bind(node, names)
        for clause in ("limit", "offset"):
            if (node := query.args.get(clause)) is not None:
                self._bind(node, replace(names, scope=Scope(), aliases={}))

    def _modifiers(self, query: exp.Query, bound: BoundQuery) -> None:
        """ORDER BY and LIMIT of a UNION or of a query in brackets see only its outputs."""
        if bound.outputs is None:
            return
        aliases = {o.name.lower(): o.expr for o in bound.outputs}
        self._ordering(query, Names(Scope(), self.findings, self.relations, aliases, alias_first=True))

    def bind_inside(self, expr: exp.Expr, scope: Scope) -> exp.Expr:
        """Bind an expression that sees only the scope; returns the root, which may be a new node."""
        return self._bind(expr, Names(scope, self.findings, self.relations))

    def _bind(self, expr: exp.Expr, names: Names) -> exp.Expr:
        for node in list(expr.walk(bfs=False, prune=lambda n: isinstance(n, exp.Query))):
            if isinstance(node, exp.Query):
                self.bind_subquery(node, names.scope)
        bound = bind_expression(expr, names)
        for cast in bound.find_all(exp.Cast):
            of = type_of(cast.this) if cast.to.is_type(*exp.DataType.TEXT_TYPES) else None
            if of is not None and pa.types.is_binary(of):
                cast.meta[OF_BYTES] = True
        return bound


# Names that no user writes.
QUALIFIES, ORDERED_BY = "_qualifies", "_ordered_by_"


def _filter_by_windows(select: exp.Select) -> None:
    """QUALIFY over tables as a condition on a subquery, because Spark does not support the clause; in place."""
    later = {clause: select.args.get(clause) for clause in ("order", "limit", "offset")}
    names = [projection.alias_or_name for projection in select.expressions]
    condition = select.args["qualify"].this
    extra = [exp.alias_(condition, QUALIFIES, quoted=True, copy=False)]
    order = later["order"]
    for n, key in enumerate(order.expressions if order is not None else ()):
        if isinstance(key.this, exp.Column) and not key.this.table:
            continue
        extra.append(exp.alias_(key.this, f"{ORDERED_BY}{n}", quoted=True, copy=False))
        key.set("this", exp.column(f"{ORDERED_BY}{n}", table=QUALIFIED, quoted=True))
    rows = exp.Select(**{k: v for k, v in select.args.items() if k not in (*later, "qualify")})
    rows.set("expressions", [*rows.expressions, *extra])
    for clause in list(select.args):
        select.set(clause, later.get(clause))
    columns = [exp.column(name, table=QUALIFIED, quoted=True) for name in names]
    select.set("expressions", [exp.alias_(c, n, quoted=True) for c, n in zip(columns, names, strict=True)])
    alias = exp.TableAlias(this=exp.to_identifier(QUALIFIED, quoted=True))
    select.set("from_", exp.From(this=exp.Subquery(this=rows, alias=alias)))
    select.set("where", exp.Where(this=exp.column(QUALIFIES, table=QUALIFIED, quoted=True)))


def _put_in(name: str, bound: BoundQuery, names: list[str]) -> Relation:
    """A WITH over a stream: like a derived stream it is replaced by its query, so that the order of events is kept."""
    columns = _renamed(bound.schema, names)
    renamed = columns is not None and bool(names) and columns.names == tuple(names)
    if renamed:
        first = bound.query
        while isinstance(first, exp.SetOperation | exp.Subquery):
            first = first.this
        first.set("expressions", [exp.alias_(e.unalias(), n) for e, n in zip(first.expressions, names, strict=True)])
    watermark = None if renamed else bound.watermark
    query = bound.query
    return Relation(name, RelationKind.STREAM, columns, (), bound.drivers, query, watermark, local=True)


def _renamed(columns: Schema | None, names: list[str]) -> Schema | None:
    if columns is None or not names or len(names) != len(columns):
        return columns
    return replace(columns, columns=tuple(replace(c, name=n) for c, n in zip(columns, names, strict=True)))


def _leaves(group: exp.Expr) -> list[exp.Expr]:
    """An item of GROUP BY, or the items of its ROLLUP, CUBE or GROUPING SETS."""
    if isinstance(group, exp.Rollup | exp.Cube | exp.GroupingSets | exp.Tuple):
        return [leaf for inner in group.expressions for leaf in _leaves(inner)]
    return [group.this] if isinstance(group, exp.Paren) else [group]


def _star_output(expr: exp.Expr) -> Output:
    return Output("*", expr, None) if is_star(expr) else output_of(expr)


def _group_list(select: exp.Select) -> list[exp.Expr]:
    group = select.args.get("group")
    return list(group.expressions) if group is not None else []


def _aggregates(select: exp.Select) -> bool:
    having = select.args.get("having")
    return any(has_aggregate(e) for e in select.expressions) or (having is not None and has_aggregate(having))
