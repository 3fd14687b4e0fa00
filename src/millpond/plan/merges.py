"""Planning of MERGE INTO: bound as a query over the source and the table, with conditions and values as outputs."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace

from sqlglot import exp

from millpond.errors import Place, did_you_mean
from millpond.plan.binder import Binder
from millpond.plan.bound import BoundQuery, Item, Scope
from millpond.plan.catalog import Relation
from millpond.plan.change_model import MergeBranch
from millpond.plan.change_plans import changeable_table, identifier
from millpond.plan.context import Context, Planned
from millpond.plan.model import StepKind
from millpond.plan.outputs import counted
from millpond.plan.statement_relations import StatementRelations, written_in
from millpond.plan.with_clauses import read_clauses
from millpond.schema import Schema
from millpond.sql.conditions import all_of
from millpond.sql.statements import Merge, Name, When, WhenClause


def plan_merge(statement: Merge, context: Context) -> Planned:
    """Bind the statement; for an invalid target, only that is reported."""
    tree = written_in(_joined(statement), context)
    clauses = read_clauses(statement, tree, context.catalog, context.findings)
    planned = Planned(statement, context.index(statement), StepKind.MERGE, statement.table.text)
    relation = changeable_table(statement.table, "MERGE", context)
    if relation is None:
        return planned
    _check_reachable(statement, context)
    binder = Binder(context.findings, StatementRelations(context, clauses))
    bound = binder.bind(tree)
    branches = _Branches(statement, relation, binder, bound, context).made()
    bound = replace(bound, references=tuple(binder.references), selects=tuple(binder.selects))
    options = context.options_for(bound.drivers, clauses.statement)
    condition = bound.query.args["where"].this
    _check_by_source(statement, bound, context)
    return replace(planned, target=relation.name, bound=bound, branches=branches, condition=condition, options=options)


def _joined(statement: Merge) -> exp.Select:
    """SELECT FROM source, table WHERE on."""
    table = exp.Table(this=identifier(statement.table))
    if statement.alias is not None:
        table.set("alias", exp.TableAlias(this=identifier(statement.alias)))
    select = statement.source.copy()
    select.set("expressions", [exp.Literal.number(1)])
    select.append("joins", exp.Join(this=table, kind="CROSS"))
    select.set("where", exp.Where(this=statement.on.copy()))
    return select


@dataclass
class _Branches:
    """Binds the WHEN clauses of a MERGE, each in the scope of the rows that it applies to."""

    statement: Merge
    relation: Relation
    binder: Binder
    bound: BoundQuery
    context: Context
    outputs: list[exp.Expr] = field(default_factory=list)

    def made(self) -> tuple[MergeBranch, ...]:
        branches = tuple(self._branch(clause) for clause in self.statement.clauses)
        self.bound.query.set("expressions", self.outputs or [exp.Literal.number(1)])
        return branches

    def _branch(self, clause: WhenClause) -> MergeBranch:
        scope = self._scope(clause.when)
        if self._sees_absent(clause, scope):
            return MergeBranch(clause.when, None, ())
        condition = None if clause.condition is None else self._output(clause.condition, scope)
        values = tuple((name, self._output(value, scope)) for name, value in self._values(clause))
        return MergeBranch(clause.when, condition, values)

    def _sees_absent(self, clause: WhenClause, scope: Scope) -> bool:
        """Whether a branch reads the side that has no row, which is MP202."""
        values = (*clause.values, *(a.value for a in clause.assignments))
        expressions = [clause.condition, *values] if clause.condition is not None else list(values)
        absent = {i.alias.lower() for i in self._items} - {i.alias.lower() for i in scope.items}
        found = [c for e in expressions for c in e.find_all(exp.Column) if c.table.lower() in absent]
        for column in found:
            message = f"'{column.sql()}' cannot be resolved: WHEN {clause.when} has no row of '{column.table}'."
            side = "the source" if clause.when is When.NOT_MATCHED else f"table '{self.statement.table}'"
            self.context.findings.error("MP202", message, column, f"Only columns of {side} are allowed here.")
        return bool(found)

    @property
    def _items(self) -> list[Item]:
        top = self.bound.top
        return top.scope.items if top is not None else []

    def _output(self, value: exp.Expr, scope: Scope) -> int:
        bound = self.binder.bind_inside(value.copy(), scope)
        self.outputs.append(exp.alias_(bound, f"m{len(self.outputs)}"))
        return len(self.outputs) - 1

    def _scope(self, when: When) -> Scope:
        """The scope of a branch: the sides that have a row."""
        items = self._items
        kept = {When.MATCHED: items, When.NOT_MATCHED: items[:-1], When.BY_SOURCE: items[-1:]}
        return Scope(items=list(kept[when]))

    def _values(self, clause: WhenClause) -> Iterable[tuple[str, exp.Expr]]:
        columns = self.relation.columns
        if clause.star is not None:
            return self._same_names(clause, clause.star)
        if clause.assignments:
            names = self._known([a.column for a in clause.assignments], columns)
            return zip(names, (a.value for a in clause.assignments), strict=True)
        if clause.deletes:
            return ()
        named = self._known(clause.columns, columns) if clause.columns is not None else None
        if named is None:
            if columns is None:
                return ()
            named = list(columns.names)
        if len(named) != len(clause.values):
            given = counted(len(clause.values), "value", "is")
            message = f"Expected {counted(len(named), 'value')}, but {given} given."
            hint = f"Write a value for each of: {', '.join(named)}."
            self.context.findings.error("MP207", message, clause.place, hint)
            return ()
        return zip(named, clause.values, strict=True)

    def _known(self, names: Iterable[Name], columns: Schema | None) -> list[str]:
        """The columns in the case of the table; an unknown or duplicate one is a finding."""
        found: list[str] = []
        for name in names:
            column = columns.get(name.text) if columns is not None else None
            if column is None and columns is not None:
                hint = did_you_mean(name.text, columns.names) or f"Its columns are: {', '.join(columns.names)}."
                message = f"Table '{self.statement.table}' has no column '{name}'."
                self.context.findings.error("MP202", message, name.place, hint)
            text = column.name if column is not None else name.text
            if text.lower() in (n.lower() for n in found):
                message = f"Column '{name}' is listed twice."
                self.context.findings.error("MP205", message, name.place, "Remove one of them.")
            found.append(text)
        return found

    def _same_names(self, clause: WhenClause, star: exp.Star) -> list[tuple[str, exp.Expr]]:
        """Each column from the source's column of the same name; columns that ON compares need not be set."""
        if self.relation.columns is None or not self._items:
            return []
        source = self._items[0]
        equal = _equal_columns(self.bound.query, self._alias) if clause.when is When.MATCHED else set()
        names = [n for n in self.relation.columns.names if n.lower() not in equal]
        missing = [n for n in names if source.columns is not None and n not in source.columns]
        if missing:
            message = (
                f"* requires a column of the source for each column of '{self.statement.table}'; these are missing: "
            )
            hint = "List the columns: UPDATE SET a = s.a, INSERT (a) VALUES (s.a)."
            self.context.findings.error("MP202", f"{message}{', '.join(missing)}.", star, hint)
            return []
        return [(name, _source_column(source.alias, name, star)) for name in names]

    @property
    def _alias(self) -> str:
        return (self.statement.alias or self.statement.table).text


def _source_column(alias: str, name: str, star: exp.Star) -> exp.Column:
    column = exp.Identifier(this=name, quoted=True)
    column.meta.update(star.meta)
    return exp.Column(this=column, table=exp.Identifier(this=alias, quoted=True))


def _equal_columns(query: exp.Query, alias: str) -> set[str]:
    """The columns that ON compares with the source's column of the same name, in lower case."""
    found = set()
    for part in all_of(query.args["where"].this):
        sides = (part.this, part.expression) if isinstance(part, exp.EQ) else ()
        if sides and all(isinstance(side, exp.Column) for side in sides):
            tables = [side.table.lower() == alias.lower() for side in sides]
            if tables.count(True) == 1 and sides[0].name.lower() == sides[1].name.lower():
                found.add(sides[0].name.lower())
    return found


def _check_reachable(statement: Merge, context: Context) -> None:
    """Report a branch after one of the same kind without a condition, which is never reached."""
    last: dict[When, Place] = {}
    for clause in statement.clauses:
        if clause.when in last:
            message = (
                f"This WHEN {clause.when} is never reached: the one in line {last[clause.when].line} has no condition."
            )
            hint = "Add a condition to that one: WHEN ... AND condition THEN; or write it last."
            context.findings.error("MP223", message, clause.place, hint)
        elif clause.condition is None:
            last[clause.when] = clause.place


def _check_by_source(statement: Merge, bound: BoundQuery, context: Context) -> None:
    clause = next((c for c in statement.clauses if c.when is When.BY_SOURCE), None)
    if clause is not None and bound.drivers:
        message = "WHEN NOT MATCHED BY SOURCE requires a table or query as source, because a stream never ends."
        hint = "Use a table or a query over tables as source, or delete rows by events with DELETE FROM ... USING."
        context.findings.error("MP215", message, clause.place, hint)
