"""Folding by Spark: one query, in which the function `aggregate` applies the items of each key in order."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
from sqlglot import exp

from millpond.engine.row_states import Refusals, RowStates, Turns, check_refused, null_refused, required
from millpond.engine.spark.spark_errors import translate
from millpond.engine.work import Work
from millpond.errors import MillpondError
from millpond.plan.change_model import EVENT, HERE, ROW, Action, Branch, Effect
from millpond.relational.codes import whole
from millpond.schema import Check, Schema, type_name
from millpond.sql.spark import render
from millpond.tables.constraints import check_expression

ITEMS, BEFORE = "__items__", "__before__"
# Errors that an item can cause.
OF_A_ROW = ("MP701", "MP702", "MP408")
# The prefix of a constraint's name among rejections, to distinguish it from a column.
CHECKED = "CHECK "
# Columns of the items: the key's number, the item's index, the statement; and of a state: changed, and rejections.
CODE, TURN, WRITER, HIT, REFUSED = "__mp_code", "__mp_turn", "__mp_writer", "__mp_hit", "__mp_refused"


def fold_on_spark(
    work: Work, actions: list[Action], rows: list[pa.Table], turns: Turns, states: RowStates
) -> tuple[RowStates, Refusals]:
    """The states after all items, and the rejected items."""
    found, refused = states.copy(), Refusals()
    if not len(turns.code):
        return found, refused
    # The whole query fails on one bad item, so failing items are removed one by one until it succeeds.
    left = np.ones(len(turns.code), bool)
    walk = _Walk(work, actions, rows, turns, states)
    while True:
        try:
            folded = walk.run(left)
            break
        except MillpondError as error:
            if error.code not in OF_A_ROW:
                raise
            failing, why = walk.first_failing(left, error)
            left[failing] = False
            refused[int(turns.writer[failing]), int(turns.row[failing])] = why
    _take_over(found, folded, turns, refused)
    return found, refused


class _Walk:
    """The fold of one batch as a query."""

    def __init__(
        self, work: Work, actions: Sequence[Action], rows: Sequence[pa.Table], turns: Turns, states: RowStates
    ) -> None:
        self._work, self._turns, self._schema = work, turns, states.schema
        self._items = _items(rows, turns)
        codes = np.unique(turns.code)
        here = pa.array(states.here[codes])
        columns = states.take(codes, states.schema.names)
        names = [CODE, *(f"b{n}" for n in range(len(columns) + 1))]
        self._before = pa.table([pa.array(codes), here, *columns], names=names)
        self._text = _text(actions, rows, states.schema)

    def run(self, left: np.ndarray) -> pa.Table:
        """The states after the remaining items."""
        views = self._work.views
        chosen = pa.array(left[self._items[TURN].to_numpy()])
        items = views.frame(ITEMS, views.in_spark(self._items.filter(chosen)))
        before = views.frame(BEFORE, views.in_spark(self._before))
        try:
            return views.session.sql(self._text.format(items=items, before=before)).toArrow()
        except Exception as error:
            raise translate(error) from error

    def first_failing(self, left: np.ndarray, error: MillpondError) -> tuple[int, MillpondError]:
        """The first failing item in stream order, found by binary search: the fold of the items before it succeeds."""
        places = np.flatnonzero(left)
        places = places[np.argsort(self._turns.rank[places])]
        low, high = 0, len(places)
        while high - low > 1:
            middle = (low + high) // 2
            some = np.zeros(len(left), bool)
            some[places[:middle]] = True
            try:
                self.run(some)
                low = middle
            except MillpondError as found:
                error, high = found, middle
        return int(places[high - 1]), error


def _items(rows: Sequence[pa.Table], turns: Turns) -> pa.Table:
    """The items of all statements in one table: each has values in the columns of its own statement, else NULL."""
    parts = []
    for writer, own in enumerate(rows):
        mine = np.flatnonzero(turns.writer == writer)
        taken = own.take(pa.array(turns.row[mine]))
        names = [_field(writer, n) for n in range(own.num_columns)]
        head = [pa.array(turns.code[mine]), pa.array(mine), pa.array(np.full(len(mine), writer))]
        parts.append(pa.table([*head, *taken.columns], names=[CODE, TURN, WRITER, *names]))
    return pa.concat_tables(parts, promote_options="default")


def _field(writer: int, number: int) -> str:
    return f"w{writer}_{number}"


def _text(actions: Sequence[Action], rows: Sequence[pa.Table], schema: Schema) -> str:
    names = schema.names
    first = [f"'{HERE}', coalesce(b0, false)"]
    first += [f"{_quoted(n)}, CAST(b{i} AS {type_name(schema[n].type)})" for i, n in enumerate(names, 1)]
    none = "CAST(array() AS ARRAY<STRUCT<turn: BIGINT, name: STRING>>)"
    start = f"named_struct({', '.join(first)}, '{HIT}', false, '{REFUSED}', {none})"
    cases = " ".join(f"WHEN {w} THEN {_step(a, w, rows[w], schema)}" for w, a in enumerate(actions))
    walk = f"aggregate(items, {start}, (a, e) -> CASE e.{WRITER} {cases} ELSE a END)"
    fields = ", ".join([TURN, WRITER, *(_field(w, n) for w, own in enumerate(rows) for n in range(own.num_columns))])
    gathered = f"SELECT {CODE}, sort_array(collect_list(struct({fields}))) AS items FROM `@items` GROUP BY {CODE}"
    folded = f"SELECT {CODE}, {walk} AS folded FROM ({gathered}) JOIN `@before` USING ({CODE})"
    text = f"SELECT {CODE}, folded.* FROM ({folded})"
    return text.replace("{", "{{").replace("}", "}}").replace("@items", "{items}").replace("@before", "{before}")


def _step(action: Action, writer: int, rows: pa.Table, schema: Schema) -> str:
    """The state after one item of a statement, as SQL over the state `a` and the item `e`."""
    cases = [(_meets(b, writer, rows), _made(b, writer, rows, schema)) for b in action.branches]
    return f"CASE {' '.join(f'WHEN {meets} THEN {made}' for meets, made in cases)} ELSE a END"


def _meets(branch: Branch, writer: int, rows: pa.Table) -> str:
    exists = {None: "true", True: f"a.{HERE}", False: f"NOT a.{HERE}"}[branch.matched]
    return exists if branch.condition is None else f"{exists} AND ({_placed(branch.condition, writer, rows)})"


def _made(branch: Branch, writer: int, rows: pa.Table, schema: Schema) -> str:
    if branch.effect is Effect.DELETE:
        return _state(schema, "false", {c.name: f"CAST(NULL AS {type_name(c.type)})" for c in schema})
    values = {n: f"CAST({_placed(v, writer, rows)} AS {type_name(schema[n].type)})" for n, v in branch.values.items()}
    made = _state(schema, "true", values)
    cases = [f"WHEN {values[n]} IS NULL THEN {_refusal(schema, n)}" for n in required(schema) if n in values]
    for check in schema.checks:
        held = _placed(_over_new_row(check, branch, schema), writer, rows)
        cases.append(f"WHEN NOT {held} THEN {_refusal(schema, CHECKED + check.name)}")
    return f"CASE {' '.join(cases)} ELSE {made} END" if cases else made


def _over_new_row(check: Check, branch: Branch, schema: Schema) -> exp.Expr:
    """A constraint over the row that a branch would write."""

    def placed(node: exp.Expr) -> exp.Expr:
        if not isinstance(node, exp.Column):
            return node
        name = schema[node.name].name
        if name not in branch.values:
            return exp.column(name, table=ROW, quoted=True)
        return exp.cast(branch.values[name].copy(), type_name(schema[name].type), dialect="spark")

    return check_expression(check).copy().transform(placed)


def _state(schema: Schema, here: str, values: dict[str, str], hit: str = "true", refused: str = f"a.{REFUSED}") -> str:
    fields = [f"{_quoted(n)}, {values.get(n, f'a.{_name(n)}')}" for n in schema.names]
    return f"named_struct('{HERE}', {here}, {', '.join(fields)}, '{HIT}', {hit}, '{REFUSED}', {refused})"


def _refusal(schema: Schema, name: str) -> str:
    one = f"named_struct('turn', CAST(e.{TURN} AS BIGINT), 'name', {_quoted(name)})"
    return _state(schema, f"a.{HERE}", {}, f"a.{HIT}", f"concat(a.{REFUSED}, array({one}))")


def _placed(expression: exp.Expr, writer: int, rows: pa.Table) -> str:
    """An expression as Spark SQL, with the columns of an item renamed to those of the combined items."""
    places = {name: _field(writer, n) for n, name in enumerate(rows.column_names)}

    def placed(node: exp.Expr) -> exp.Expr:
        if isinstance(node, exp.Column) and node.table == EVENT:
            return exp.column(places[node.name], table=EVENT)
        if isinstance(node, exp.Column) and node.table == ROW:
            return exp.column(node.name, table=ROW, quoted=True)
        return node

    return f"({render(expression.copy().transform(placed))})"


def _quoted(name: str) -> str:
    escaped = name.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'"


def _name(name: str) -> str:
    escaped = name.replace("`", "``")
    return f"`{escaped}`"


def _take_over(states: RowStates, folded: pa.Table, turns: Turns, refused: Refusals) -> None:
    """Apply Spark's result to the states."""
    codes = folded[CODE].to_numpy()
    hit, here = (whole(folded[name]).to_numpy(zero_copy_only=False) for name in (HIT, HERE))
    first = folded.column_names.index(HERE) + 1
    values = {c.name: whole(folded.column(first + n)).cast(c.type) for n, c in enumerate(states.schema)}
    for mask, exists in ((hit & here, True), (hit & ~here, False)):
        chosen = pa.array(mask)
        states.set(codes[mask], {n: v.filter(chosen) for n, v in values.items()}, here=exists)
    for entries in folded[REFUSED].to_pylist():
        for entry in entries:
            place = entry["turn"]
            error = _refused(states.schema, entry["name"])
            refused[int(turns.writer[place]), int(turns.row[place])] = error


def _refused(schema: Schema, name: str) -> MillpondError:
    check = next((c for c in schema.checks if name == CHECKED + c.name), None)
    return null_refused(schema, name) if check is None else check_refused(check)
