"""Compiles an expression into Arrow kernels that return exactly what Spark returns, or raises NotCompilable."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any

import pyarrow as pa
from sqlglot import exp

from millpond.expressions import casts, maps
from millpond.expressions.calls import read
from millpond.expressions.coercion import plain
from millpond.expressions.failures import NotCompilable, RowError, row_failed
from millpond.expressions.frames import (
    NO_ROWS,
    Datum,
    Frame,
    Names,
    Node,
    as_array,
    resolve,
    run_strict,
    statement_clock,
)
from millpond.expressions.lambdas import LAMBDAS, Body
from millpond.expressions.library import FUNCTIONS, signature
from millpond.expressions.parameters import Shape, counted, placeholders, scalar, shape
from millpond.expressions.result_types import field_type
from millpond.expressions.rules import Operand
from millpond.expressions.signatures import Kernel, Site, SpecialForm
from millpond.expressions.terms import (
    UNKNOWN,
    Call,
    Constant,
    Interval,
    Lambda,
    Parameter,
    Reference,
    Term,
    Variable,
    lambdas_of,
)
from millpond.schema import Column, Schema

__all__ = ["Compiled", "NotCompilable", "compile_expression", "refusal"]


# Only these take an INTERVAL literal, whose units Arrow's types do not have.
OF_INTERVALS = ("+", "-", "sequence")


@dataclass(frozen=True)
class Compiled:
    """A compiled expression; `columns` are the columns it reads, by their declared names."""

    expression: exp.Expression
    type: pa.DataType
    columns: tuple[str, ...]
    schema: Schema = field(repr=False)
    names: Names | None = field(repr=False)
    _node: Node = field(repr=False)
    _shape: Shape = field(repr=False)

    def evaluate(
        self, table: pa.Table | pa.RecordBatch, parameters: Sequence[object] = (), *, now: datetime | None = None
    ) -> pa.Array | pa.ChunkedArray:
        """The value for every row of a table that has the columns.

        Raises TableError MP408 if it fails on a row, and NotCompilable if a value is outside of the range in which
        Arrow and Spark agree: then Spark must evaluate it."""
        values = counted(len(self._shape), parameters)
        if shape(values) != self._shape:
            again = compile_expression(self.expression, self.schema, parameters, self.names)
            return again.evaluate(table, parameters, now=now)
        moment = now or statement_clock()
        scalars = [scalar(v) for v in values]
        if isinstance(table, pa.RecordBatch):
            return self._batch(table, scalars, moment)
        if not self.columns:
            return pa.chunked_array([self._run(Frame(table.num_rows, _no_column, scalars, moment))], self.type)
        batches = table.select(self._positions(table.schema)).to_batches()
        return pa.chunked_array([self._batch(b, scalars, moment) for b in batches], self.type)

    def _positions(self, schema: pa.Schema) -> list[int]:
        found = {name.lower(): place for place, name in enumerate(schema.names)}
        return [found[name.lower()] for name in self.columns]

    def _batch(self, batch: pa.RecordBatch, parameters: Sequence[pa.Scalar], now: datetime) -> pa.Array:
        arrays = [batch.column(place) for place in self._positions(batch.schema)]
        columns = [_declared(a, self.schema[name].type) for a, name in zip(arrays, self.columns, strict=True)]
        return self._run(Frame(batch.num_rows, columns.__getitem__, parameters, now))

    def _run(self, frame: Frame) -> pa.Array:
        if frame.length == 0:
            return pa.array([], self.type)
        return as_array(self._node.run(frame), frame.length, self.type)


def _no_column(position: int) -> pa.Array:
    raise AssertionError(f"column {position} of an expression without columns")


def _declared(array: pa.Array, type_: pa.DataType) -> pa.Array:
    """The array in the layout that the expression was compiled for."""
    wanted = plain(type_)
    return array if array.type == wanted else array.cast(wanted)


def compile_expression(
    expr: exp.Expression, schema: Schema, parameters: Sequence[object] = (), names: Names | None = None
) -> Compiled:
    """Compiles an expression over the columns of a schema, or raises NotCompilable.

    The types of the parameters determine what is compiled; `evaluate` accepts other values of the same types. `names`
    resolves qualified names such as `u.tier`; see `frames.Names`.
    """
    positions = placeholders(expr)
    constants = counted(len(positions), parameters)
    compiler = _Compiler(schema, names, constants, positions)
    node = _value(compiler.node(read(expr)))
    return Compiled(expr, node.type, tuple(compiler.columns), schema, names, node, shape(constants))


@dataclass(frozen=True)
class _Compiler:
    schema: Schema
    names: Names | None
    parameters: Sequence[Constant]
    positions: Mapping[int, int]
    columns: dict[str, int] = field(default_factory=dict)
    # The parameters of the enclosing lambdas: the type of each, and its slot in a frame.
    variables: Mapping[str, tuple[pa.DataType, int]] = field(default_factory=dict)

    def node(self, term: Term) -> Node:
        if isinstance(term, Constant):
            return constant_node(term)
        if isinstance(term, Variable):
            return self._variable(term)
        if isinstance(term, Lambda):
            raise NotCompilable("a lambda of a function that Arrow does not support")
        if isinstance(term, Parameter):
            return self._parameter(term)
        if isinstance(term, Reference):
            return self._column(term.column)
        return self._call(term)

    def _parameter(self, term: Parameter) -> Node:
        position = self.positions[id(term.node)]
        return Node(self.parameters[position].type, lambda frame: frame.parameters[position])

    def _variable(self, term: Variable) -> Node:
        if term.name not in self.variables:
            raise NotCompilable(f"'{term.name}' is not a parameter of an enclosing lambda")
        type_, slot = self.variables[term.name]
        return Node(type_, lambda frame: frame.variables[slot])

    def _higher_order(self, call: Call) -> Node:
        """A function with lambdas; each body is compiled with its parameters typed by the other arguments."""
        function = LAMBDAS[call.name]
        nodes = [_value(self.node(a)) for a in call.arguments if not isinstance(a, Lambda)]
        types = [n.type for n in nodes]
        bodies = [self._body(a, function.parameters(types, n)) for n, a in enumerate(lambdas_of(call))]
        gives = function.gives(types, [body.node.type for body in bodies]) if bodies else None
        if gives is None:
            raise NotCompilable(f"'{call}' with arguments of these types")
        fallible = any(n.fallible for n in nodes) or any(body.node.fallible for body in bodies)
        return Node(gives, function.make(nodes, bodies), fallible)

    def _body(self, term: Lambda, types: Sequence[pa.DataType] | None) -> Body:
        if types is None or len(term.names) > len(types):
            raise NotCompilable("a lambda with another number of parameters")
        # Higher than the slots of all enclosing lambdas.
        first = 1 + max((slot for _, slot in self.variables.values()), default=-1)
        own = {name: (type_, first + n) for n, (name, type_) in enumerate(zip(term.names, types, strict=False))}
        inner = replace(self, variables={**self.variables, **own})
        return Body(_value(inner.node(term.body)), tuple(slot for _, slot in own.values()))

    def _column(self, reference: exp.Column) -> Node:
        column, fields = resolve(reference, self.schema, self.names)
        node = self._stored(column)
        for name in fields:
            node = _field(node, name)
        return node

    def _stored(self, column: Column) -> Node:
        if column.type is None:
            raise NotCompilable(f"the type of {column.name} is not known")
        position = self.columns.setdefault(column.name, len(self.columns))
        return Node(plain(column.type), lambda frame: frame.column(position))

    def _call(self, call: Call) -> Node:
        if call.name in LAMBDAS:
            return self._higher_order(call)
        nodes = [self.node(a) for a in call.arguments]
        if call.name not in OF_INTERVALS:
            nodes = [_value(node) for node in nodes]
        if call.name in ("cast", "try_cast"):
            return _guarded(casts.node(nodes[0], call.to, safe=call.name == "try_cast"), call, nodes)
        if call.name == ".":
            return _field(nodes[0], str(call.to))
        operands = [Operand(n.type, self._literal(a)) for n, a in zip(nodes, call.arguments, strict=True)]
        function, found = FUNCTIONS.get(call.name), signature(call, operands)
        if function is None or function.kernel is None:
            raise NotCompilable(_unknown(call))
        if found is None:
            raise NotCompilable(f"'{call}' with arguments of these types")
        given = [casts.node(n, t, safe=False) for n, t in zip(nodes, found.takes, strict=True)]
        site = Site(found.takes, found.gives, tuple(n.constant for n in given))
        return _guarded(_applied(function.kernel, given, site), call, given)

    def _literal(self, term: Term) -> Term:
        return self.parameters[self.positions[id(term.node)]] if isinstance(term, Parameter) else term


def refusal(expr: exp.Expression, schema: Schema, names: Names | None = None) -> str:
    """Why an expression cannot be evaluated by Arrow, such as "the function soundex"; "" where it can. Only a value may
    show more: a regular expression in a column that is Java's alone."""
    try:
        compile_expression(expr, schema, (), names)
    except NotCompilable as error:
        return str(error)
    return ""


def _unknown(call: Call) -> str:
    """A call that has no kernel, by the name of its function where it has one."""
    name = call.name.removeprefix(UNKNOWN)
    return f"the function {name}" if name.isidentifier() else f"'{call}'"


def constant_node(term: Constant) -> Node:
    """A literal; an interval is only in `constant`, because Arrow's type would lose its units."""
    if isinstance(term.value, Interval):
        return Node(term.type, lambda _: pa.scalar(True), constant=term.value)
    value = pa.scalar(term.value, term.type)
    return Node(term.type, lambda _: value, constant=value)


def _value(node: Node) -> Node:
    """The node, unless it is an interval literal, which has no value."""
    if isinstance(node.constant, Interval):
        raise NotCompilable("an INTERVAL literal as a value")
    return node


def _applied(kernel: Kernel | SpecialForm, nodes: Sequence[Node], site: Site) -> Node:
    """A kernel with its arguments; it is fallible if it or an argument is."""
    below = any(n.fallible for n in nodes)
    if isinstance(kernel, SpecialForm):
        return Node(site.gives, kernel.make(nodes, site), below)
    function = kernel.make(site)
    if kernel.first and len(nodes) == 2:
        return Node(site.gives, _reversed(function, nodes), True)
    if kernel.lazy:
        return Node(site.gives, lambda frame: function(*run_strict(nodes, frame)), kernel.fallible or below)
    return Node(site.gives, lambda frame: function(*[n.run(frame) for n in nodes]), kernel.fallible or below)


def _reversed(function: Callable[..., Datum], nodes: Sequence[Node]) -> Callable[[Frame], Datum]:
    def run(frame: Frame) -> Datum:
        right, left = run_strict(nodes[::-1], frame)
        return function(left, right)

    return run


def _field(node: Node, name: str) -> Node:
    type_ = field_type(node.type, name)
    if type_ is None:
        raise NotCompilable(f"no field {name} that can be read here")
    return Node(type_, lambda frame: maps.field(node.run(frame), name), node.fallible)


def _guarded(node: Node, call: Call, arguments: Sequence[Node]) -> Node:
    """The node with the call's name in its errors; evaluated at once if all arguments are literals."""

    def run(frame: Frame) -> Datum:
        try:
            return node.run(frame)
        except RowError as error:
            raise row_failed(str(call), str(error), error.sentence) from error

    return _folded(Node(node.type, run if node.fallible else node.run, node.fallible), node, arguments)


def _folded(guarded: Node, node: Node, arguments: Sequence[Node]) -> Node:
    if not arguments or any(n.constant is None for n in arguments):
        return guarded
    try:
        value: Any = as_array(node.run(NO_ROWS), 1, node.type)[0]
    except RowError:
        # Spark also fails only when a row is evaluated.
        return guarded
    return Node(node.type, lambda _: value, constant=value)
