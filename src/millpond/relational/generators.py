"""LATERAL VIEW and generators such as EXPLODE: each row joined to the elements of its array or map."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from sqlglot import exp

from millpond.expressions.array_elements import lengths_of
from millpond.expressions.coercion import common, is_list
from millpond.expressions.failures import NotCompilable
from millpond.relational.codes import Numbers, Values, in_type, whole
from millpond.relational.evaluation import Evaluation
from millpond.relational.inputs import Rows, known_as
from millpond.sql.function_calls import function_name

# A batch of which a generator makes more rows than this is evaluated by Spark.
ROWS_MAX = 5_000_000
# The prefix of the relations that hold the columns of generators in a SELECT list.
LISTED = "__listed"


@dataclass(frozen=True)
class Generated:
    """The rows of a generator: for each the position of its input row, and its columns under their default names."""

    owners: Numbers
    columns: dict[str, Values]


def exploded(evaluation: Evaluation, lateral: exp.Lateral, rows: Rows) -> Rows:
    """Join rows to the rows of a lateral view; with OUTER, input rows without any are kept with NULLs."""
    call = lateral.this
    name = function_name(call) or ""
    if name not in GENERATORS:
        raise NotCompilable(f"the generator '{name.lower()}'")
    found = GENERATORS[name.removesuffix("_OUTER")](evaluation, call, rows)
    if len(found.owners) > ROWS_MAX:
        raise NotCompilable(f"a generator that returns more than {ROWS_MAX} rows")
    alias = lateral.args["alias"]
    names = [i.name for i in alias.args.get("columns") or ()] or list(found.columns)
    if len(names) != len(found.columns):
        raise NotCompilable("a generator with another number of columns than its aliases")
    columns = dict(zip(names, found.columns.values(), strict=True))
    if not (lateral.args.get("outer") or name.endswith("_OUTER")):
        return rows.take(found.owners).beside(known_as(alias.name, columns, evaluation.numbers))
    alone = np.setdiff1d(np.arange(len(rows)), found.owners)
    owners = np.concatenate([found.owners, alone])
    order = np.argsort(owners, kind="stable")
    places = np.concatenate([np.arange(len(found.owners)), np.full(len(alone), -1)])[order]
    made = known_as(alias.name, columns, evaluation.numbers)
    return rows.take(owners[order]).beside(made.take(pa.array(places, mask=places < 0)))


def lifted(select: exp.Select) -> exp.Select:
    """Return the query with the generators of its SELECT list as lateral views; the same query if it has none."""
    places = [n for n, e in enumerate(select.expressions) if function_name(e.unalias()) in GENERATORS]
    if not places:
        return select
    made = select.copy()
    for place in places:
        output = made.expressions[place]
        name = f"c{place}"
        alias = exp.TableAlias(
            this=exp.to_identifier(f"{LISTED}{place}", quoted=True), columns=[exp.to_identifier(name, quoted=True)]
        )
        made.append("laterals", exp.Lateral(this=output.unalias().copy(), view=True, outer=False, alias=alias))
        column = exp.column(name, table=f"{LISTED}{place}", quoted=True)
        output.replace(exp.alias_(column, output.alias_or_name or name, quoted=True))
    return made


def _argument(evaluation: Evaluation, call: exp.Expr, rows: Rows) -> pa.Array:
    arguments = list(call.iter_expressions())
    if len(arguments) != 1:
        raise NotCompilable("a generator with several arguments")
    return whole(evaluation.value(arguments[0], rows))


def _explode(evaluation: Evaluation, call: exp.Expr, rows: Rows) -> Generated:
    array = _argument(evaluation, call, rows)
    if pa.types.is_map(array.type):
        entries = array.cast(pa.list_(array.type.field(0).type))
        parts = entries.flatten()
        columns = {"key": pc.struct_field(parts, 0), "value": pc.struct_field(parts, 1)}
        return Generated(np.repeat(np.arange(len(array)), lengths_of(entries)), columns)
    if not is_list(array.type):
        raise NotCompilable(f"a generator over a value of type {array.type}")
    return Generated(np.repeat(np.arange(len(array)), lengths_of(array)), {"col": array.flatten()})


def _posexplode(evaluation: Evaluation, call: exp.Expr, rows: Rows) -> Generated:
    found = _explode(evaluation, call, rows)
    firsts = np.searchsorted(found.owners, found.owners, "left")
    places = pa.array((np.arange(len(found.owners)) - firsts).astype(np.int32))
    return Generated(found.owners, {"pos": places, **found.columns})


def _inline(evaluation: Evaluation, call: exp.Expr, rows: Rows) -> Generated:
    found = _explode(evaluation, call, rows)
    structs = whole(found.columns.get("col", pa.array([])))
    if not pa.types.is_struct(structs.type):
        raise NotCompilable("INLINE of values that are not structs")
    names = [field.name for field in structs.type]
    return Generated(found.owners, dict(zip(names, structs.flatten(), strict=True)))


def _stack(evaluation: Evaluation, call: exp.Expr, rows: Rows) -> Generated:
    """Evaluate `STACK(n, x1, x2, ...)`: the values in n rows."""
    first, *others = call.iter_expressions()
    if not isinstance(first, exp.Literal) or first.is_string or not others:
        raise NotCompilable("a STACK whose number of rows is not a literal")
    count = int(first.name)
    width = -(-len(others) // count)
    values = [whole(evaluation.value(e, rows)) for e in others]
    columns: dict[str, Values] = {}
    for place in range(width):
        parts = [values[n] if n < len(values) else None for n in range(place, count * width, width)]
        type_ = common([part.type for part in parts if part is not None])
        if type_ is None:
            raise NotCompilable("a STACK without a common type")
        full = [pa.nulls(len(rows), type_) if part is None else in_type(part, type_) for part in parts]
        # The rows of one input row are adjacent, as in Spark's result.
        order = np.arange(count * len(rows)).reshape(count, len(rows)).T.ravel()
        columns[f"col{place}"] = pa.concat_arrays(full).take(pa.array(order))
    return Generated(np.repeat(np.arange(len(rows)), count), columns)


_ALWAYS: dict[str, Callable[[Evaluation, exp.Expr, Rows], Generated]] = {
    "EXPLODE": _explode,
    "POSEXPLODE": _posexplode,
    "INLINE": _inline,
    "STACK": _stack,
}
GENERATORS = {**_ALWAYS, **{f"{name}_OUTER": made for name, made in _ALWAYS.items() if name != "STACK"}}
