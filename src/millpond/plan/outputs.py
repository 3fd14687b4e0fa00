"""The outputs of a SELECT: expands stars, and names every output."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

from sqlglot import exp

from millpond.errors import did_you_mean
from millpond.plan.bound import BoundQuery, Item, Output, Scope
from millpond.plan.columns import column_of
from millpond.plan.expression_types import NAME, type_of
from millpond.plan.findings import Findings
from millpond.plan.function_names import function_name
from millpond.sql.dialect import MILLPOND
from millpond.sql.function_calls import NAME_KEY


def is_star(node: exp.Expr) -> bool:
    """`*` or `t.*`."""
    return isinstance(node, exp.Star) or (isinstance(node, exp.Column) and isinstance(node.this, exp.Star))


def expand_star(star: exp.Expr, scope: Scope, findings: Findings) -> list[exp.Expr]:
    """The columns of a star; the star itself, qualified, for relations whose columns are unknown."""
    qualifier = star.table if isinstance(star, exp.Column) else ""
    items = [i for i in scope.items if i.shown]
    if qualifier:
        items = [i for i in scope.items if i.alias.lower() == qualifier.lower()]
        if not items:
            if not scope.loose_items:
                _report_star(star, qualifier, scope, findings)
            return [star]
    elif not items:
        findings.error("MP202", "'*' requires a FROM.", star, "Add FROM, or list the columns.")
        return [star]
    dropped = _excepted(star, findings, items)
    merged = {} if qualifier else scope.merged
    if any(i.loose for i in items):
        return [star]
    columns = [_renamed(e.copy(), n) for n, e in merged.items()] if merged else []
    written = next((n for n in star.walk() if isinstance(n, exp.Expr) and "start" in n.meta), None)
    columns += [c for i in items for c in _columns(i, i.merged if not qualifier else set(), written)]
    return [c for c in columns if c.alias_or_name.lower() not in dropped]


def _renamed(expr: exp.Expr, name: str) -> exp.Expr:
    if isinstance(expr, exp.Column):
        return expr
    return exp.alias_(expr, name, quoted=True, copy=False)


def _columns(item: Item, skip: set[str], star: exp.Expr | None) -> Iterator[exp.Expr]:
    assert item.columns is not None
    return (column_of(item, c.name, c.type, star) for c in item.columns if c.name.lower() not in skip)


def _excepted(star: exp.Expr, findings: Findings, items: list[Item]) -> set[str]:
    inner = star.this if isinstance(star, exp.Column) else star
    names = list(inner.args.get("except_") or ())
    known = [c.name for i in items if i.columns is not None for c in i.columns]
    for node in names:
        if not any(i.loose for i in items) and node.name.lower() not in {k.lower() for k in known}:
            findings.error(
                "MP202", f"EXCEPT refers to '{node.name}', which is not a column.", node, did_you_mean(node.name, known)
            )
    return {n.name.lower() for n in names}


def _report_star(star: exp.Expr, qualifier: str, scope: Scope, findings: Findings) -> None:
    aliases = [i.alias for i in scope.items if not i.alias.startswith("_")]
    hint = did_you_mean(qualifier, aliases) or (
        f"FROM contains: {', '.join(aliases)}." if aliases else "There is no FROM."
    )
    findings.error("MP202", f"'{qualifier}.*' cannot be resolved, because '{qualifier}' is not in FROM.", star, hint)


def output_of(expr: exp.Expr) -> Output:
    """One projection as an output, with its name: the alias, the column's name, or a generated one like Spark's."""
    if isinstance(expr, exp.Alias):
        return Output(expr.alias, expr.this, type_of(expr.this))
    if isinstance(expr, exp.Column):
        return Output(expr.name, expr, type_of(expr), qualifier=expr.table)
    if isinstance(expr, exp.Dot) or expr.meta_get(NAME):
        return Output(expr.meta_get(NAME) or expr.name, expr, type_of(expr))
    return Output(expression_name(expr), expr, type_of(expr), written=False)


def as_projection(output: Output) -> exp.Expr:
    """The output as a named item of the SELECT list."""
    if isinstance(output.expr, exp.Subquery):
        # sqlglot would make the name an alias of the subquery, which would then differ from the same one in GROUP BY.
        return exp.Alias(this=output.expr, alias=exp.to_identifier(output.name, quoted=True))
    return exp.alias_(output.expr, output.name, quoted=True, copy=False)


def with_distinct_names(outputs: list[Output]) -> list[Output]:
    """The outputs with distinct names: a duplicate becomes `u.user_id`, with a number if that exists too."""
    seen: set[str] = set()
    result = []
    for output in outputs:
        name = output.name
        if name.lower() in seen and output.qualifier and not output.qualifier.startswith("_"):
            name = f"{output.qualifier}.{name}"
        number = 2
        while name.lower() in seen:
            name, number = f"{output.name}_{number}", number + 1
        seen.add(name.lower())
        result.append(replace(output, name=name))
    return result


def expression_name(expr: exp.Expr) -> str:
    """Spark's name of an expression without alias, for the common kinds."""
    for kind, name in _NAMES.items():
        if isinstance(expr, kind):
            return name(expr)
    if isinstance(expr, exp.Binary):
        operator = _OPERATORS.get(type(expr))
        if operator:
            return f"({expression_name(expr.this)} {operator} {expression_name(expr.expression)})"
    if isinstance(expr, exp.Func) and not isinstance(expr, exp.Case | exp.If):
        arguments = [expression_name(e) for e in expr.iter_expressions()]
        written = expr.meta.get(NAME_KEY) if isinstance(expr, exp.AggFunc) else None
        return f"{written or function_name(expr)}({', '.join(arguments)})"
    return _plain(expr)


def _plain(expr: exp.Expr) -> str:
    """The SQL of an expression without the qualifiers added by binding."""

    def bare(node: exp.Expr) -> exp.Expr:
        return exp.column(node.name) if isinstance(node, exp.Column) and not isinstance(node.this, exp.Star) else node

    return expr.transform(bare).sql(dialect=MILLPOND)


_NAMES: dict[type[exp.Expr], Callable[[exp.Expr], str]] = {
    exp.Column: lambda e: e.name,
    exp.Dot: lambda e: e.name,
    exp.Cast: lambda e: expression_name(e.this),
    exp.Paren: lambda e: expression_name(e.this),
    exp.Alias: lambda e: e.alias,
    exp.Literal: lambda e: str(e.this),
    exp.Null: lambda e: "NULL",
    exp.Boolean: lambda e: "true" if e.this else "false",
    exp.Star: lambda e: "1",
    exp.Neg: lambda e: f"(- {expression_name(e.this)})",
    exp.Not: lambda e: f"(NOT {expression_name(e.this)})",
    exp.Distinct: lambda e: "DISTINCT " + ", ".join(expression_name(x) for x in e.expressions),
    exp.Exists: lambda e: "exists()",
    exp.Subquery: lambda e: "scalarsubquery()",
    exp.Query: lambda e: "scalarsubquery()",
}

_OPERATORS: dict[type[exp.Expr], str] = {
    exp.Add: "+",
    exp.Sub: "-",
    exp.Mul: "*",
    exp.Div: "/",
    exp.Mod: "%",
    exp.EQ: "=",
    exp.NEQ: "<>",
    exp.GT: ">",
    exp.GTE: ">=",
    exp.LT: "<",
    exp.LTE: "<=",
    exp.And: "AND",
    exp.Or: "OR",
    exp.Is: "IS",
}


def name_outputs(bound: BoundQuery, target: str, findings: Findings) -> BoundQuery:
    """The query with distinct output names; MP209 for each duplicate name in a table or sink."""
    seen: set[str] = set()
    for output in bound.outputs or ():
        if output.name.lower() in seen and output.written:
            message = f"Two columns of {target} have the name '{output.name}'."
            hint = f"Rename one of them: {_shown(output)} AS other_name."
            findings.error("MP209", message, output.expr, hint)
        seen.add(output.name.lower())
    return rename_outputs(bound)


def counted(number: int, noun: str, verb: str = "") -> str:
    """`1 column`, `2 columns`; with the verb `is`, `1 value is`, `2 values are`."""
    words = f"{number} {noun}" if number == 1 else f"{number} {noun}s"
    return f"{words} {'is' if number == 1 else 'are'}" if verb else words


def _shown(output: Output) -> str:
    return f"{output.qualifier}.{output.name}" if output.qualifier and output.qualifier[0] != "_" else output.name


def rename_outputs(bound: BoundQuery) -> BoundQuery:
    """The query with distinct output names, for a bare SELECT."""
    if bound.outputs is None:
        return bound
    outputs = with_distinct_names(list(bound.outputs))
    first = _first_select(bound.query)
    if first is not None:
        for projection, output in zip(first.expressions, outputs, strict=True):
            projection.set("alias", exp.Identifier(this=output.name, quoted=True))
    return replace(bound, outputs=tuple(outputs))


def _first_select(query: exp.Expr) -> exp.Select | None:
    """The SELECT that determines the output names of a query: the leftmost of a UNION."""
    while not isinstance(query, exp.Select):
        if not isinstance(query, exp.Query) or not isinstance(query.this, exp.Expr):
            return None
        query = query.this
    return query
