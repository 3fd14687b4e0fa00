"""Resolution of column names in expressions, and the messages for names that cannot be resolved."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

import pyarrow as pa
from sqlglot import exp

from millpond.errors import did_you_mean
from millpond.expressions.coercion import STRING, plain
from millpond.expressions.result_types import field_type
from millpond.plan.bound import BoundSelect, Item, Joined, Match, Scope, Spot
from millpond.plan.catalog import Relation
from millpond.plan.expression_types import NAME, type_of, with_type
from millpond.plan.findings import Findings
from millpond.plan.function_names import is_aggregate
from millpond.plan.path_uses import star_path, use_paths
from millpond.plan.paths import PathError, expand
from millpond.schema import TIMESTAMP
from millpond.sql import foreign, nodes

WINDOW_COLUMNS = ("window_start", "window_end")
# `INTERVAL 5m`, where 5m is a name.
DURATION = re.compile(r"\d+(ms|[smhd])", re.IGNORECASE)


class Relations(Protocol):
    """Resolves relations: names by the catalog, URIs by their sources."""

    def of_node(self, table: exp.Table, spot: Spot, counted: bool) -> Relation:
        """The relation of a table node at this spot; `counted` under an aggregate. Never raises: an invalid one is
        `broken`."""

    def find(self, name: str) -> Relation | None:
        """The relation of a name, if there is one."""

    def joined(self, select: BoundSelect, name: str) -> Joined | None:
        """A join of streams inside a statement, or as a named stream, whose rows drive a separate flow; None, with a
        finding, if it is not supported."""


@dataclass(frozen=True)
class Names:
    """The names that are visible in one clause. `aliases` are outputs of the SELECT list: `alias_first` if they take
    precedence over columns (ORDER BY, HAVING), `put_in` if the output's expression replaces its name; `later` are names
    of the SELECT list that are not visible, because the clause is evaluated before."""

    scope: Scope
    findings: Findings
    relations: Relations
    aliases: Mapping[str, exp.Expr] = field(default_factory=dict)
    alias_first: bool = False
    put_in: bool = False
    windowed: bool = False
    later: frozenset[str] = frozenset()


def bind_name(node: exp.Column, names: Names) -> exp.Expr:
    """The qualified and typed column of a name; the name itself, with a finding, if it cannot be resolved."""
    parts = [p for p in node.parts if isinstance(p, exp.Identifier)]
    if names.alias_first and (output := _output(parts, names)) is not None and not _inside_aggregate(node):
        return output
    if names.windowed and len(parts) == 1 and parts[0].name.lower() in WINDOW_COLUMNS:
        return with_type(exp.Column(this=_identifier(parts[0].name.lower(), parts[0])), TIMESTAMP)
    for scope in names.scope.chain():
        found = _in_scope(parts, scope)
        if len(found) > 1:
            _report_ambiguous(node, found, names)
            return node
        if found:
            return _bound(parts, found[0], names)
        merged = scope.merged.get(parts[0].name.lower())
        if merged is not None and scope.item(parts[0].name) is None:
            return _fields(merged.copy(), parts[1:], names)
    output = _output(parts, names)
    if output is not None:
        return output
    return _loosely(node, parts, names)


def _inside_aggregate(node: exp.Expr) -> bool:
    parent = node.parent
    while parent is not None and not isinstance(parent, exp.Query):
        if is_aggregate(parent):
            return True
        parent = parent.parent
    return False


def _output(parts: list[exp.Identifier], names: Names) -> exp.Expr | None:
    found = names.aliases.get(parts[0].name.lower()) if len(parts) == 1 else None
    if found is None:
        return None
    if names.put_in:
        return found.copy()
    return with_type(exp.Column(this=_identifier(parts[0].name, parts[0])), type_of(found))


def _in_scope(parts: list[exp.Identifier], scope: Scope) -> list[Match]:
    found = scope.matches(parts)
    name = parts[0].name.lower()
    return [] if len(found) != 1 and name in scope.merged and len(parts) == 1 else found


def _identifier(name: str, like: exp.Expr | None = None) -> exp.Identifier:
    """A quoted name with its place in the text."""
    made = exp.Identifier(this=name, quoted=True)
    if like is not None and like.meta:
        made.meta.update(like.meta)
    return made


def column_of(item: Item, name: str, type_: pa.DataType | None, like: exp.Expr | None = None) -> exp.Expr:
    """A bound column of an item."""
    return with_type(exp.Column(this=_identifier(name, like), table=_identifier(item.alias)), type_)


def _bound(parts: list[exp.Identifier], match: Match, names: Names) -> exp.Expr:
    name = match.column.name if match.column else match.name
    type_ = match.column.type if match.column else None
    written = parts[len(parts) - len(match.fields) - 1]
    return _fields(column_of(match.item, name, type_, written), list(match.fields), names)


def _fields(base: exp.Expr, fields: list[exp.Identifier], names: Names) -> exp.Expr:
    """`base.a.b`: fields of a struct, checked as far as its type is known."""
    for step in fields:
        holder = type_of(base)
        if holder is not None and pa.types.is_map(holder) and plain(holder.key_type) == STRING:
            key = exp.Literal.string(step.name)
            base = with_type(exp.Bracket(this=base, expressions=[key]), plain(holder.item_type))
            base.meta[NAME] = step.name
            continue
        made: exp.Expr = exp.Dot(this=base, expression=_identifier(step.name, step))
        if holder is not None:
            type_ = field_type(holder, step.name)
            if type_ is None:
                _report_field(step, base, holder, names)
            with_type(made, type_)
        base = made
    return base


def _report_field(step: exp.Identifier, base: exp.Expr, holder: pa.DataType, names: Names) -> None:
    inner = holder.value_type if pa.types.is_list(holder) else holder
    what = base.name or "the value"
    if not pa.types.is_struct(inner):
        names.findings.error("MP202", f"'{what}' has no field '{step.name}': it is not a STRUCT.", step)
        return
    fields = [f.name for f in inner]
    hint = did_you_mean(step.name, fields) or f"Its fields are: {', '.join(fields)}."
    names.findings.error("MP202", f"'{what}' has no field '{step.name}'.", step, hint)


def _loosely(node: exp.Column, parts: list[exp.Identifier], names: Names) -> exp.Expr:
    """A name that is not a known column: it may belong to a relation whose columns are unknown, else it is an error."""
    if len(parts) > 1 and _report_qualifier(node, parts, names):
        return node
    if len(parts) > 1 and (item := _visible(parts[0].name, names.scope)) is not None:
        _report_missing(parts[1], [item], names)
        return node
    for scope in names.scope.chain():
        if len(scope.loose_items) == 1:
            return _bound(parts, Match(scope.loose_items[0], None, parts[0].name, tuple(parts[1:])), names)
        if scope.loose_items:
            return node
    if len(parts) == 1 and parts[0].name.lower() in WINDOW_COLUMNS:
        hint = "Add a window to GROUP BY, such as TUMBLING(ts, INTERVAL 1 MINUTE)."
        names.findings.error("MP211", f"'{parts[0].name}' requires a window in GROUP BY.", node, hint)
        return node
    _report_missing(parts[0], [i for s in names.scope.chain() for i in s.items if i.shown], names)
    return node


def _visible(alias: str, scope: Scope) -> Item | None:
    return next((i for s in scope.chain() if (i := s.item(alias)) is not None), None)


def _report_qualifier(node: exp.Column, parts: list[exp.Identifier], names: Names) -> bool:
    """MP202 for `x.column` if x is neither a relation of FROM nor a column; False if it may be one."""
    qualifier = parts[0].name
    if _visible(qualifier, names.scope) is not None or any(s.loose_items for s in names.scope.chain()):
        return False
    aliases = [i.alias for s in names.scope.chain() for i in s.items if not i.alias.startswith("_")]
    message = f"'{'.'.join(p.name for p in parts)}' cannot be resolved, because '{qualifier}' is not in FROM."
    relation = names.relations.find(qualifier)
    renamed = [i.alias for s in names.scope.chain() for i in s.items if i.relation and i.relation == relation]
    near = did_you_mean(qualifier, aliases) if relation is None else ""
    if renamed:
        near = f"Its alias is {renamed[0]}: write {renamed[0]}.{parts[1].name}."
    hint = near or _from_where(relation.name if relation else qualifier, relation, names.scope)
    names.findings.error("MP202", message, node, hint, once=(id(names.scope), qualifier.lower()))
    return True


def _from_where(name: str, relation: Relation | None, scope: Scope) -> str:
    """The clause that would add a relation."""
    if not scope.items:
        return f"Add it: FROM {name}"
    first = scope.items[0]
    own = first.columns.names if first.columns is not None else ()
    theirs = relation.columns if relation is not None else None
    common = [c for c in own if theirs is not None and c in theirs]
    keys = [*(first.columns.key if first.columns is not None else ()), *common, *own, "id"]
    key = next((k for k in keys if k in common), keys[0])
    return f"Add it: FROM {name} WHERE {first.alias}.{key} = {name}.{key}"


def _report_missing(name: exp.Identifier, items: list[Item], names: Names) -> None:
    columns = [c.name for i in items if i.columns is not None for c in (*i.columns, *i.hidden)]
    shown = [c.name for i in items if i.columns is not None for c in i.columns]
    hint = foreign.COLUMNS.get(name.name.lower()) or did_you_mean(name.name, columns)
    if not hint and DURATION.fullmatch(name.name):
        hint = foreign.COLUMNS["interval"]
    if not hint and (name.args.get("quoted") or not items):
        hint = f"Write a text in single quotes: '{name.name}'."
    if name.name.lower() in names.later:
        hint = (
            f"'{name.name}' is an alias of the SELECT list, which is not visible in WHERE: write its expression here."
        )
    if name.name.startswith("_") and not hint:
        shown = [c.name for i in items for c in i.hidden] or shown
    hint = hint or f"The columns are: {', '.join(dict.fromkeys(shown))}."
    message = f"{sentence(_holders(items))} no column '{name.name}'."
    names.findings.error("MP202", message, name, hint, once=(id(names.scope), tuple(map(id, items)), name.name.lower()))


def _holders(items: list[Item]) -> str:
    labels = list(dict.fromkeys(i.label for i in items))
    if not labels:
        return "there is"
    if len(labels) == 1:
        return f"{labels[0]} has"
    return f"{', '.join(labels[:-1])} and {labels[-1]} have"


def sentence(text: str) -> str:
    """The text with its first letter in upper case."""
    return text[:1].upper() + text[1:]


def _report_ambiguous(node: exp.Column, found: list[Match], names: Names) -> None:
    name = found[0].column.name if found[0].column else found[0].name
    where = " and ".join(m.item.label for m in found)
    choices = " or ".join(f"{m.item.alias}.{name}" for m in found if not m.item.alias.startswith("_"))
    hint = f"Write {choices}." if choices else "Use aliases for the relations, and write alias.column."
    names.findings.error("MP204", f"Column '{name}' is ambiguous: it is in {where}.", node, hint)


def bind_expression(expr: exp.Expr, names: Names) -> exp.Expr:
    """Bind every column of the expression, in place; subqueries are left to the caller. Returns the root, which may be
    a new node."""
    holder = exp.Paren(this=expr) if expr.parent is None else None
    root, has_paths = expr, False
    for node in list(expr.walk(bfs=False, prune=_is_end)):
        path = _as_path(node, names)
        if path is not None:
            bound = _bind_path(path, names)
            has_paths = has_paths or bound is not path
        elif isinstance(node, exp.Column) and not isinstance(node.this, exp.Star):
            bound = bind_name(node, names)
        else:
            continue
        if bound is not node:
            node.replace(bound)
        if node is root:
            root = bound
    if holder is not None:
        root.pop()
    return _use_paths(root, names) if has_paths else root


def _as_path(node: exp.Expr, names: Names) -> nodes.Path | None:
    """A wildcard path: also `x.*` where x is not a relation of FROM."""
    if isinstance(node, nodes.Path):
        return node
    if not (isinstance(node, exp.Column) and isinstance(node.this, exp.Star)) or not node.table:
        return None
    if not node.db and _visible(node.table, names.scope) is not None:
        return None
    return star_path(node)


def _bind_path(path: nodes.Path, names: Names) -> exp.Expr:
    """The array of values of a wildcard path; the path itself, with a finding, if its column cannot be resolved."""
    steps = [path.this, *path.args["steps"]]
    count = 2 if _visible(path.this.name, names.scope) and isinstance(steps[1], exp.Identifier) else 1
    own = dict(zip(("this", "table"), [part.copy() for part in reversed(steps[:count])], strict=False))
    column = exp.Column(**own)
    base = bind_name(column, names)
    if base is column:
        return path
    type_ = type_of(base)
    if type_ is None:
        if not any(scope.loose_items for scope in names.scope.chain()):
            message = f"The type of '{base.name}' is not known, which a path with a wildcard requires."
            names.findings.error("MP206", message, path, "Cast it, or declare the columns.")
        return path
    try:
        found = expand(path, base, type_, steps[count:])
    except PathError as error:
        names.findings.error("MP202", error.message, error.step if error.step.meta else path, error.hint)
        return path
    named = [step.name for step in steps if isinstance(step, exp.Identifier)]
    found.meta[NAME] = named[-1]
    return found


def _use_paths(root: exp.Expr, names: Names) -> exp.Expr:
    try:
        return use_paths(root)
    except PathError as error:
        names.findings.error("MP224", error.message, root, error.hint)
        return root


def expand_value(star: exp.Expr, names: Names) -> list[exp.Expr] | None:
    """`x.*` alone in a SELECT list, where x is a value: the fields of a struct, or the values of a map or an array;
    None if x is a relation, or cannot be resolved."""
    path = _as_path(star, names)
    written = star.parts[:-1] if isinstance(star, exp.Column) else []
    parts = [part.copy() for part in written if isinstance(part, exp.Identifier)]
    if path is None or not parts or not any(_in_scope(parts, scope) for scope in names.scope.chain()):
        return None
    keys = ("this", "table", "db", "catalog")
    value = bind_name(exp.Column(**dict(zip(keys, reversed(parts), strict=False))), names)
    type_ = type_of(value)
    if type_ is not None and pa.types.is_struct(type_):
        fields = [(_identifier(field.name), field.type) for field in type_]
        return [with_type(exp.Dot(this=value.copy(), expression=name), of) for name, of in fields]
    return [_bind_path(path, names)]


def _is_end(node: exp.Expr) -> bool:
    return isinstance(node, exp.Column | exp.Query | nodes.Path)
