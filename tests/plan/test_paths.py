"""Wildcard paths: the expansion of a path over random types finds what a naive evaluator finds, on both engines."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest
from sqlglot import exp
from tests.seeds import FRESH

from millpond.expressions.compile import compile_expression
from millpond.plan.expression_types import as_expression, with_type
from millpond.plan.paths import PathError, expand
from millpond.schema import Schema
from millpond.sql.nodes import Path
from millpond.sql.parser import parse_expression
from millpond.sql.spark import render

NAMES = ("a", "b", "price")
PATHS = 12
ROWS = 6


def find(value: Any, type_: pa.DataType, steps: list[str]) -> list[Any]:
    """The naive evaluator: every place that the steps match, a parent before what is inside it, each place once. After
    `**` a name is the key of a map only where the type has no structs."""
    return [
        found
        for path, found in places((), value, type_)
        if found is not None and matches(steps, path, keys="struct<" not in str(type_))
    ]


def places(path: tuple[Any, ...], value: Any, type_: pa.DataType) -> Iterator[tuple[Any, ...]]:
    yield path, value
    if value is None:
        return
    if pa.types.is_struct(type_):
        for field in type_:
            yield from places((*path, ("field", field.name)), value[field.name], field.type)
    elif pa.types.is_list(type_):
        for n, inner in enumerate(value):
            yield from places((*path, ("element", n)), inner, type_.value_type)
    elif pa.types.is_map(type_):
        for key, inner in sorted(value):
            yield from places((*path, ("value", key)), inner, type_.item_type)


def matches(steps: list[str], path: tuple[Any, ...], *, keys: bool, after_deep: bool = False) -> bool:
    if not steps:
        return not path
    first, rest = steps[0], steps[1:]
    if first == "**":
        here = matches(rest, path, keys=keys, after_deep=not keys)
        return here or (bool(path) and matches(steps, path[1:], keys=keys))
    if not path:
        return False
    kind, name = path[0]
    return matches(rest, path[1:], keys=keys) and (
        first in ("*", "[*]")
        or (kind == "field" and first in (name, f"['{name}']"))
        or (kind == "element" and first == f"[{name}]")
        or (kind == "value" and (first == f"['{name}']" or (first == name and not after_deep)))
    )


def random_type(draw: random.Random, depth: int) -> pa.DataType:
    kind = draw.choice(("struct", "list", "map", "leaf")) if depth else "leaf"
    if depth == 3 and kind == "leaf":
        kind = "struct"
    if kind == "struct":
        names = draw.sample(NAMES, draw.randint(1, 3))
        return pa.struct([(name, random_type(draw, depth - 1)) for name in names])
    if kind == "list":
        return pa.list_(random_type(draw, depth - 1))
    if kind == "map":
        return pa.map_(pa.string(), random_type(draw, depth - 1))
    return draw.choice((pa.int32(), pa.int32(), pa.int64(), pa.float64()))


def random_value(draw: random.Random, type_: pa.DataType) -> Any:
    if draw.random() < 0.15:
        return None
    if pa.types.is_struct(type_):
        return {field.name: random_value(draw, field.type) for field in type_}
    if pa.types.is_list(type_):
        return [random_value(draw, type_.value_type) for _ in range(draw.randint(0, 3))]
    if pa.types.is_map(type_):
        keys = draw.sample(("a", "b", "k", "é", "Z"), draw.randint(0, 3))
        return [(key, random_value(draw, type_.item_type)) for key in keys]
    return float(draw.randint(-5, 5)) if pa.types.is_floating(type_) else draw.randint(-5, 5)


def random_steps(draw: random.Random, type_: pa.DataType) -> list[str]:
    """Steps that often match: a walk down the type, in which some levels become wildcards."""
    steps: list[str] = []
    while pa.types.is_nested(type_) and draw.random() < 0.85:
        if pa.types.is_struct(type_):
            field = draw.choice(list(type_))
            own, type_ = [field.name, f"['{field.name}']"], field.type
        elif pa.types.is_list(type_):
            own, type_ = [f"[{draw.randint(0, 2)}]"], type_.value_type
        else:
            own, type_ = [draw.choice(("a", "['k']", "b"))], type_.item_type
        step = draw.choice(own)
        wild = draw.random()
        steps.append(step if wild < 0.4 else draw.choice(("*", "[*]")) if wild < 0.8 else "**")
        if steps[-1] == "**" and draw.random() < 0.5:
            steps.append(step)
    if not any("*" in step for step in steps):
        steps.append("*")
    return steps


def cases(seed: int) -> Iterator[tuple[pa.DataType, pa.Array, list[str], Path]]:
    draw = random.Random(seed)
    for _ in range(PATHS):
        type_ = random_type(draw, 3)
        values = pa.array([random_value(draw, type_) for _ in range(ROWS)], type_)
        steps = random_steps(draw, type_)
        text = "c" + "".join(step if step.startswith("[") else f".{step}" for step in steps)
        yield type_, values, steps, as_path(text)


def as_path(text: str) -> Path:
    found = parse_expression(text)
    if isinstance(found, exp.Column):
        first, *rest = found.parts[:-1]
        return Path(this=first, steps=[*rest, exp.Var(this="*")])
    assert isinstance(found, Path)
    return found


def expand_over(path: Path, type_: pa.DataType, name: str) -> exp.Expression | None:
    """The path over a column; None if no value can match, or the values have no common type."""
    try:
        return as_expression(expand(path, with_type(exp.column(name), type_), type_, path.args["steps"]))
    except PathError:
        return None


@pytest.mark.parametrize("seed", [*range(40), *range(FRESH, FRESH + 10)])
def test_a_path_finds_what_the_naive_evaluator_finds(seed: int) -> None:
    for type_, values, steps, path in cases(seed):
        found = expand_over(path, type_, "c")
        naive = [find(value, type_, collapsed(steps)) for value in values.to_pylist()]
        if found is None:
            continue
        compiled = compile_expression(found, Schema.from_arrow(pa.schema([("c", type_)])))
        got = compiled.evaluate(pa.table({"c": values}))
        assert got.to_pylist() == naive, f"{type_} {steps} {render(found)}"


def collapsed(steps: list[str]) -> list[str]:
    return [step for n, step in enumerate(steps) if step != "**" or n == 0 or steps[n - 1] != "**"]


@pytest.mark.spark
def test_spark_finds_the_same(spark: Any) -> None:
    """Paths of a fixed and of a new seed, all in one query each."""
    for seed in (1, FRESH):
        columns, texts, naive = {}, [], []
        for number, (type_, values, steps, path) in enumerate(cases(seed)):
            found = expand_over(path, type_, f"c{number}")
            if found is not None:
                columns[f"c{number}"] = values
                texts.append(f"{render(found)} AS r{number}")
                naive.append([find(value, type_, collapsed(steps)) for value in values.to_pylist()])
        rows = pa.table(columns)
        spark.createDataFrame(rows.append_column("n", pa.array(range(ROWS)))).createOrReplaceTempView("paths")
        got = spark.sql(f"SELECT {', '.join(texts)} FROM paths ORDER BY n").toArrow()
        for column, wanted in zip(got.columns, naive, strict=True):
            assert column.to_pylist() == wanted
