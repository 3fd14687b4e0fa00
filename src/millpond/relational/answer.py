"""A SELECT over Arrow relations: FROM, WHERE, GROUP BY, HAVING, outputs, DISTINCT, ORDER BY, LIMIT, in that order."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import pyarrow as pa
from sqlglot import exp

from millpond.errors import TableError
from millpond.expressions.failures import NotCompilable, SeveralRows
from millpond.relational import subqueries
from millpond.relational.codes import Values, group_codes
from millpond.relational.grouping import Groups, group, is_grouped
from millpond.relational.joins import as_mask, joined, relations_of, taken_apart
from millpond.relational.memory import SUBQUERY, Memory
from millpond.relational.ordering import cut, in_order
from millpond.relational.rows import Rows, known_as
from millpond.relational.sources import Relations, Source
from millpond.sql.conditions import all_of

# What a SELECT may consist of to be answered here.
PARTS = {
    "expressions", "from_", "joins", "where", "group", "having", "distinct", "order", "limit", "offset", "kind", "hint",
    "with_",
}  # fmt: skip
INNER = ("", "INNER", "CROSS")


def answered(query: exp.Query, relations: Relations, memory: Memory) -> pa.Table | None:
    """The rows of a bound query over these relations, columns by position, or None when it is Spark's work: because
    of what it asks, or because a row makes it fail and Spark shall say how."""
    memory.several = ""
    try:
        return Answer(relations, memory).query(query)
    except (NotCompilable, TableError) as refusal:
        memory.several = refusal.for_ if isinstance(refusal, SeveralRows) else ""
        return None


class Answer:
    """One query being answered; relations are known by their names in lower case."""

    def __init__(self, relations: Relations, memory: Memory) -> None:
        self._relations = relations
        self._memory = memory
        # Numbers for columns: the same query always numbers them alike, so that what was compiled is found again.
        self.numbers = itertools.count()

    def query(self, query: exp.Expr) -> pa.Table:
        """The rows of a query that looks at nothing around it."""
        query = query.unnest()
        if isinstance(query, exp.Union) and not query.args.get("distinct"):
            return self._union(query)
        return self._outputs(checked(query))

    def _union(self, union: exp.Union) -> pa.Table:
        if any(union.args.get(part) for part in ("order", "limit", "offset", "with_", "by_name")):
            raise NotCompilable("a UNION with more to it")
        first, second = self.query(union.this), self.query(union.expression)
        if first.schema.types != second.schema.types:
            raise NotCompilable("a UNION of different types")
        renamed = second.rename_columns(first.column_names)
        return pa.concat_tables([first, renamed.cast(first.schema)])

    def _outputs(self, select: exp.Select) -> pa.Table:
        rows = self.rows(select, None)
        groups: Groups | None = None
        if is_grouped(select):
            groups = group(select, rows, self.value, self._memory)
            rows = groups.rows
        outputs = groups.outputs if groups is not None else [e.unalias() for e in select.expressions]
        columns = [self.value(e, rows) for e in outputs]
        table = pa.Table.from_arrays(
            [_chunked(c) for c in columns], names=[e.alias_or_name for e in select.expressions]
        )
        distinct = select.args.get("distinct")
        if distinct is not None:
            if distinct.args.get("on") is not None or select.args.get("order") is not None:
                raise NotCompilable("DISTINCT with more to it")
            table = table.take(pa.array(group_codes(table.columns, table.num_rows)[1]))
        table = in_order(table, select, groups.order if groups is not None else None, rows, self.value)
        return cut(table, select)

    def rows(self, select: exp.Select, around: Rows | None) -> Rows:
        """The rows of FROM and WHERE; with `around` each beside the row of the query around it that it belongs to."""
        self._with_named(select)
        sources = [self._source(r, select) for r in _relations(select)]
        joins = select.args.get("joins") or []
        conditions = list(all_of(_where(select)))
        leading = next((n for n, j in enumerate(joins) if _kind(j) != "INNER"), len(joins))
        if around is not None and leading < len(joins):
            raise NotCompilable("an outer join inside a correlated subquery")
        inner = [c for j in joins[:leading] for c in all_of(j.args.get("on"))]
        if leading == len(joins):
            return self._together(sources, inner + conditions, around)
        rows = self._together(sources[: leading + 1], inner, None)
        for join, source in zip(joins[leading:], sources[leading + 1 :], strict=True):
            on = taken_apart(list(all_of(join.args.get("on"))), source.alias.lower(), set(rows.names))
            rows = joined(rows, source, on, _kind(join), self.value)
        return self._filtered(rows, conditions)

    def _together(self, sources: list[Source], conditions: list[exp.Expr], around: Rows | None) -> Rows:
        """An inner join of relations, each tied to those before it; the batch comes first, wherever it was written."""
        waiting = sorted(sources, key=lambda s: not isinstance(s.relation, pa.Table))
        rows = around
        if rows is None:
            rows, conditions = self._first(waiting.pop(0), conditions)
        while waiting:
            # A name that is still to come means the relation here, not one of that name around.
            unknown = {s.alias.lower() for s in waiting}
            source = self._next(waiting, conditions, set(rows.names) - unknown)
            waiting.remove(source)
            alias = source.alias.lower()
            known = set(rows.names) - unknown
            usable = [c for c in conditions if self._is_ready(c, known | {alias}, unknown - {alias})]
            conditions = [c for c in conditions if c not in usable]
            rows = joined(rows, source, taken_apart(usable, alias, known), "INNER", self.value)
        return self._filtered(rows, conditions)

    def _first(self, source: Source, conditions: list[exp.Expr]) -> tuple[Rows, list[exp.Expr]]:
        """The rows to begin with, and the conditions that are left: a table is asked for what its own let through."""
        if isinstance(source.relation, pa.Table):
            return source.whole(), conditions
        own = [c for c in conditions if self._is_ready(c, {source.alias.lower()}, set()) and _is_plain(c)]
        if not own:
            return source.whole(), conditions
        asked = self._memory.once("own", own[0], lambda: exp.and_(*(c.copy() for c in own)))
        return source.where(asked), [c for c in conditions if c not in own]

    def _next(self, waiting: list[Source], conditions: list[exp.Expr], known: set[str]) -> Source:
        for source in waiting:
            if taken_apart(conditions, source.alias.lower(), known).ours:
                return source
        return waiting[0]

    def _is_ready(self, condition: exp.Expr, known: set[str], unknown: set[str]) -> bool:
        """Whether a condition can be judged: subqueries wait for the end, when all that they may mention is there."""
        return not condition.find(exp.Query) and relations_of(condition) <= known - unknown

    def _filtered(self, rows: Rows, conditions: Sequence[exp.Expr]) -> Rows:
        for condition in conditions:
            rows = rows.filter(pa.array(as_mask(self.value(condition, rows))))
        return rows

    def value(self, expression: exp.Expr, rows: Rows) -> Values:
        """An expression for every row, its subqueries answered first."""
        flat = self._memory.flat(expression)
        for number, part in enumerate(flat.parts):
            found = subqueries.value(self, part, rows)
            rows = rows.with_column(SUBQUERY, f"s{number}", found, f"_{next(self.numbers)}")
        return self._memory.compiled(flat.expression, rows).evaluate(rows.table)

    def _with_named(self, select: exp.Select) -> None:
        named = select.args.get("with_")
        if named is None:
            return
        if named.args.get("recursive"):
            raise NotCompilable("a recursive WITH")
        for cte in named.expressions:
            self._relations = {**self._relations, cte.alias.lower(): self.query(cte.this)}

    def _source(self, relation: exp.Expr, select: exp.Select) -> Source:
        alias = relation.alias_or_name
        given = relation.args.get("alias")
        if given is not None and given.args.get("columns"):
            raise NotCompilable("renamed columns")
        wanted = self._memory.once(f"wanted {alias}", select, lambda: _mentioned(select, alias))
        if isinstance(relation, exp.Subquery):
            return Source(alias, self.query(relation.this), wanted, self.numbers)
        if not isinstance(relation, exp.Table) or not isinstance(relation.this, exp.Identifier):
            raise NotCompilable("a relation of another kind")
        if any(v for k, v in relation.args.items() if v and k not in ("this", "alias")):
            raise NotCompilable("a relation with more to it")
        found = self._relations.get(relation.name.lower())
        if found is None:
            raise NotCompilable(f"'{relation.name}' is read by Spark")
        return Source(alias, found, wanted, self.numbers)

    def named(self, relation: str, columns: dict[str, Values]) -> Rows:
        """Columns as rows of a relation of their own."""
        return known_as(relation, columns, self.numbers)

    @property
    def memory(self) -> Memory:
        return self._memory


def checked(query: exp.Expr) -> exp.Select:
    if not isinstance(query, exp.Select) or any(v for k, v in query.args.items() if v and k not in PARTS):
        raise NotCompilable("a query with more to it")
    if query.args.get("from_") is None or query.find(exp.Placeholder, exp.Window) is not None:
        raise NotCompilable("a query with more to it")
    if any(not isinstance(star.parent, exp.Count) for star in query.find_all(exp.Star)):
        raise NotCompilable("columns that are not known")
    return query


def _is_plain(condition: exp.Expr) -> bool:
    """Whether it mentions columns, none of them a part of another."""
    columns = list(condition.find_all(exp.Column))
    return bool(columns) and all(len(column.parts) == 2 for column in columns)


def _relations(select: exp.Select) -> list[exp.Expr]:
    return [select.args["from_"].this, *(j.this for j in select.args.get("joins") or [])]


def _where(select: exp.Select) -> exp.Expr | None:
    where = select.args.get("where")
    return where.this if where is not None else None


def _kind(join: exp.Join) -> str:
    side, kind = (join.side or "").upper(), (join.kind or "").upper()
    if join.args.get("using") or (join.args.get("method") or "") or join.args.get("options"):
        raise NotCompilable("a join with more to it")
    if kind in ("SEMI", "ANTI"):
        return kind
    if side == "LEFT" and kind in ("", "OUTER"):
        return "LEFT"
    if not side and kind in INNER:
        return "INNER"
    raise NotCompilable(f"a {side} {kind} join")


def _mentioned(select: exp.Select, alias: str) -> frozenset[str]:
    """The columns of a relation that a SELECT mentions anywhere."""
    name = alias.lower()
    found = set()
    for column in select.find_all(exp.Column):
        parts = [p.name.lower() for p in column.parts]
        if len(parts) > 1 and parts[0] == name:
            found.add(parts[1])
        elif len(parts) == 1:
            found.add(parts[0])
    return frozenset(found)


def _chunked(values: Values) -> pa.ChunkedArray:
    return values if isinstance(values, pa.ChunkedArray) else pa.chunked_array([values])
