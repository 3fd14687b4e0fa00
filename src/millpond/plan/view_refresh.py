"""Planning of view refreshes: the part of a view that a changed row affects, or why the whole view is recomputed.

A part is all rows of a view with the same values in some of its columns, its *part columns*: groups, or columns that
are selected unchanged. A changed row affects the parts whose values it contains, or whose values are in rows that it
is joined with by equality. Only those parts are recomputed."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

import pyarrow as pa
from sqlglot import exp

from millpond.plan.bound import BoundQuery, BoundSelect, Item
from millpond.plan.expression_types import type_of
from millpond.plan.function_names import function_name, parts
from millpond.sql.conditions import all_of

# Clauses and functions that make a row of the result depend on rows outside of its part.
WHOLE = {
    "limit": "LIMIT",
    "offset": "OFFSET",
    "with_": "WITH",
    "pivots": "PIVOT",
    "sample": "TABLESAMPLE",
}
CLOCK = ("now", "current_timestamp", "current_date", "localtimestamp", "rand", "randn", "random", "uuid")


@dataclass(frozen=True)
class Input:
    """One table of a view's FROM. `optional`: the view has rows without a match in it (LEFT, SEMI and ANTI joins)."""

    alias: str
    table: str
    optional: bool


@dataclass(frozen=True)
class Bond:
    """Two columns that are equal in joined rows. `optional` is the alias of the table of a LEFT, SEMI or ANTI join,
    which may have no matching row."""

    left: tuple[str, str]
    right: tuple[str, str]
    optional: str | None = None

    def across(self, alias: str) -> tuple[str, tuple[str, str]] | None:
        """From the point of view of one table: its column, and the other side."""
        if self.left[0] == alias:
            return self.left[1], self.right
        return (self.right[1], self.left) if self.right[0] == alias else None


@dataclass(frozen=True)
class PartColumn:
    """A column of the view that identifies its parts, and its origin."""

    output: str
    alias: str
    column: str


@dataclass(frozen=True)
class RefreshPlan:
    """`part_columns` is empty if every change affects the whole view, for the reason in `why`; `full` are the tables
    whose changes do, each with its reason. Aliases are in lower case."""

    inputs: tuple[Input, ...] = ()
    bonds: tuple[Bond, ...] = ()
    part_columns: tuple[PartColumn, ...] = ()
    full: Mapping[str, str] = field(default_factory=dict)
    why: str = ""
    grouped: bool = False

    def part_columns_from(self, alias: str) -> tuple[PartColumn, ...]:
        """The part columns of the parts that a changed row of a table affects."""
        reached = reach(self, alias)
        return tuple(column for column in self.part_columns if column.alias in reached)

    def text(self, tables: Iterable[str]) -> str:
        """A description for `explain` and SHOW VIEWS."""
        names = tuple(tables)
        if not names:
            return "once, because it reads no table"
        if not self.part_columns:
            return f"in full, when {_changing(names)}: {self.why}"
        partly = [n for n in names if n.lower() not in self.full]
        word = "groups" if self.grouped else "keys"
        by = ", ".join(column.output for column in self.part_columns)
        partial = f"for the affected {word} ({by}) when {_changing(partly)}"
        fully = [f"; in full when {n} changes: {self.full[n.lower()]}" for n in names if n.lower() in self.full]
        return partial + "".join(fully)


def _changing(names: Iterable[str]) -> str:
    listed = list(names)
    return f"{' or '.join(listed)} {'changes' if len(listed) == 1 else 'change'}"


def reach(plan: RefreshPlan, start: str) -> dict[str, Bond | None]:
    """The aliases that can be reached from a row of `start` by equalities, each with the last bond of the path. Paths
    do not continue through an optional table, because rows without a match in it would be missed."""
    found: dict[str, Bond | None] = {start: None}
    waiting = [start]
    while waiting:
        here = waiting.pop(0)
        for bond in plan.bonds:
            across = bond.across(here)
            if across is not None and across[1][0] not in found and bond.optional in (None, here):
                found[across[1][0]] = bond
                waiting.append(across[1][0])
    return found


def plan_refresh(bound: BoundQuery, key: tuple[str, ...]) -> RefreshPlan:
    """The refresh plan of a view with this query and key."""
    top = bound.top
    why = _why_whole(bound, top)
    if why or top is None:
        return RefreshPlan(why=why or "it is not a single SELECT")
    inputs = tuple(inputs_of(top))
    bonds = tuple(bonds_of(top, inputs))
    part_columns = _part_columns(bound, top, inputs, key)
    if not part_columns and any(windows_of(top)):
        return RefreshPlan(
            why="a window function depends on other rows, and PARTITION BY has no column that is selected"
        )
    if not part_columns:
        what = "no group is a column" if top.grouped else "no column is selected unchanged"
        return RefreshPlan(why=f"{what} from a table that every row requires")
    found = RefreshPlan(inputs, bonds, part_columns, grouped=top.grouped)
    full = _full(bound, found)
    if all(name.lower() in full for name in bound.tables):
        return RefreshPlan(why=next(iter(full.values()), "it reads no table"))
    return RefreshPlan(inputs, bonds, part_columns, full, grouped=top.grouped)


def _why_whole(bound: BoundQuery, top: BoundSelect | None) -> str:
    if top is None or bound.outputs is None:
        return "it is not a single SELECT"
    node = top.rows
    clause = next((word for name, word in WHOLE.items() if node.args.get(name) or top.node.args.get(name)), None)
    if clause is not None:
        return f"{clause} depends on all rows"
    if top.grouped and not top.groups:
        return "it is an aggregate over all rows"
    group = node.args.get("group")
    if group is not None and group.find(exp.Cube, exp.Rollup, exp.GroupingSets):
        return "a row is in several groups"
    if any(function_name(n) in CLOCK for n in node.find_all(exp.Func)):
        return "it uses the current time or a random function"
    if any(isinstance(i.node, exp.Table) and i.node.args.get("joins") for i in top.scope.items):
        return "its joins are nested"
    kinds = [f"{j.args.get('side') or ''} {j.args.get('kind') or ''}".upper() for j in node.args.get("joins") or ()]
    outer = next((word for kind in kinds for word in ("RIGHT", "FULL") if word in kind.split()), None)
    return f"{outer} JOIN keeps rows without a match" if outer else ""


def windows_of(top: BoundSelect) -> Iterator[exp.Window]:
    """The window functions of a SELECT, with those of its QUALIFY."""
    for part in top.rows.expressions:
        yield from (node for node in parts(part) if isinstance(node, exp.Window))


def _partition(window: exp.Expr, select: exp.Select) -> set[tuple[str, str] | None]:
    """The columns in PARTITION BY of a window, which may have a name."""
    alias, own = window.args.get("alias"), window.args.get("partition_by")
    named = {w.this.name.lower(): w for w in select.args.get("windows") or ()}
    base = named.get(alias.name.lower()) if alias is not None and not own else None
    if base is not None:
        return _partition(base, select)
    return {_column_of(key) for key in own or ()} - {None}


def _column_of(expr: exp.Expr) -> tuple[str, str] | None:
    return (expr.table.lower(), expr.name.lower()) if isinstance(expr, exp.Column) else None


def _is_table(item: Item) -> bool:
    return isinstance(item.node, exp.Table) and item.relation is not None and not item.drivers


def inputs_of(top: BoundSelect) -> Iterator[Input]:
    """The tables of a FROM."""
    optional = {id(j.this) for j in top.rows.args.get("joins") or () if _is_optional(j)}
    for item in top.scope.items:
        if _is_table(item) and item.relation is not None:
            yield Input(item.alias.lower(), item.relation.name, id(item.node) in optional)


def _is_optional(join: exp.Join) -> bool:
    words = f"{join.args.get('side') or ''} {join.args.get('kind') or ''}".upper().split()
    return any(word in words for word in ("LEFT", "SEMI", "ANTI"))


def bonds_of(top: BoundSelect, inputs: tuple[Input, ...]) -> Iterator[Bond]:
    """The columns that are equal in joined rows."""
    known = {i.alias for i in inputs}
    where = top.rows.args.get("where")
    yield from (b for c in all_of(where.this if where is not None else None) if (b := _bond(c, known, None)))
    for join in top.rows.args.get("joins") or ():
        optional = join.this.alias_or_name.lower() if _is_optional(join) else None
        for condition in all_of(join.args.get("on")):
            bond = _bond(condition, known, optional)
            # A condition of LEFT JOIN on other tables than its own does not restrict their rows.
            if bond is not None and (optional is None or bond.across(optional) is not None):
                yield bond


def _bond(condition: exp.Expr, known: set[str], optional: str | None) -> Bond | None:
    if not isinstance(condition, exp.EQ):
        return None
    sides = [condition.this.unnest(), condition.expression.unnest()]
    if not all(_is_plain(side) and side.table.lower() in known for side in sides):
        return None
    kinds = [type_of(side) for side in sides]
    if not all(_can_identify(kind) for kind in kinds) or (None not in kinds and kinds[0] != kinds[1]):
        return None
    left, right = ((side.table.lower(), side.name) for side in sides)
    return Bond(left, right, optional) if left[0] != right[0] else None


def _is_plain(expr: exp.Expr) -> bool:
    return isinstance(expr, exp.Column) and len(expr.parts) == 2


def _part_columns(
    bound: BoundQuery, top: BoundSelect, inputs: tuple[Input, ...], key: tuple[str, ...]
) -> tuple[PartColumn, ...]:
    """The columns that identify parts: groups; or the key; or selected keys of tables; or any column."""
    always = {i.alias for i in inputs if not i.optional}
    items = {i.alias.lower(): i for i in top.scope.items}
    outputs = [o for o in bound.outputs or () if not top.grouped or any(o.expr == group for group in top.groups)]
    # The rows of a window are in one part.
    shared = [_partition(window, top.rows) for window in windows_of(top)]
    outputs = [o for o in outputs if all(_column_of(o.expr) in columns for columns in shared)]
    found = tuple(
        PartColumn(o.name, o.expr.table.lower(), o.expr.name)
        for o in outputs
        if isinstance(o.expr, exp.Column)
        if _is_plain(o.expr) and o.expr.table.lower() in always and _can_identify(o.type)
    )
    own = {name.lower() for name in key}
    by_key = tuple(column for column in found if column.output.lower() in own)
    if top.grouped or (own and len(by_key) == len(own)):
        return found if top.grouped else by_key
    by_table = tuple(column for column in found if _is_key(items[column.alias], column.column))
    return by_table or found


def _is_key(item: Item, column: str) -> bool:
    return item.columns is not None and column.lower() in {k.lower() for k in item.columns.key}


def _can_identify(type_: pa.DataType | None) -> bool:
    """Whether a type can identify a part: not floats, because of NaN and -0.0, and not nested types, which have no
    index."""
    return type_ is None or not (pa.types.is_floating(type_) or pa.types.is_nested(type_))


def _full(bound: BoundQuery, plan: RefreshPlan) -> dict[str, str]:
    """The tables whose changes affect the whole view, with reasons."""
    inputs: dict[str, list[Input]] = {}
    for given in plan.inputs:
        inputs.setdefault(given.table.lower(), []).append(given)
    mentions = [r.relation.name.lower() for r in bound.references]
    full: dict[str, str] = {}
    for name in (n.lower() for n in bound.tables):
        if mentions.count(name) > len(inputs.get(name, ())):
            full[name] = "it is read in a subquery"
        elif any(not plan.part_columns_from(given.alias) for given in inputs[name]):
            full[name] = "its rows are not connected with a part of the view by equality"
    return full
