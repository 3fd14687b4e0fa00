"""Wildcard paths such as `positions.*.shares`: each becomes plain Spark SQL over the declared type of its column."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import pyarrow as pa
from sqlglot import exp

from millpond.errors import did_you_mean
from millpond.expressions.coercion import INTEGERS, STRING, common, has_map, is_list, plain
from millpond.plan.expression_types import with_type
from millpond.schema import type_name
from millpond.sql.nodes import Path
from millpond.sql.parser import parse_expression
from millpond.sql.string_literals import encode

# The meta key of an expanded path: its text, as the user wrote it.
PATH = "mp_path"
# Stands for the column in the text of an expansion.
_BASE = "_path_base"
# The meta keys of a place in the text.
PLACE = ("line", "col", "start", "end")

States = frozenset[int]
FIRST: States = frozenset((0,))


class PathError(Exception):
    """A path that no value can match; `step` is the part of it that is wrong."""

    def __init__(self, message: str, step: exp.Expr, hint: str = "") -> None:
        super().__init__(message)
        self.message, self.step, self.hint = message, step, hint


@dataclass(frozen=True)
class Step:
    """One step of a path: a name, `[n]`, `['key']`, `*` for all parts, or `**` for any number of levels."""

    node: exp.Expr
    name: str | None = None
    index: int | None = None
    is_all: bool = False
    is_deep: bool = False
    after_deep: bool = False

    def takes(self, name: str) -> bool:
        """Whether it is the name of this field."""
        return self.name is not None and self.name.lower() == name.lower()


def steps_of(nodes: Sequence[exp.Expr]) -> tuple[Step, ...]:
    """The steps of a path; several `**` in a row are one."""
    found: list[Step] = []
    for node in nodes:
        after_deep = bool(found) and found[-1].is_deep
        if node.name == "**" and isinstance(node, exp.Var):
            if not after_deep:
                found.append(Step(node, is_deep=True))
        elif isinstance(node, exp.Var) and node.name in ("*", "[*]"):
            found.append(Step(node, is_all=True, after_deep=after_deep))
        elif isinstance(node, exp.Var):
            found.append(Step(node, index=int(node.name[1:-1]), after_deep=after_deep))
        else:
            found.append(Step(node, name=node.name, after_deep=after_deep))
    return tuple(found)


def expand(path: Path, base: exp.Expr, type_: pa.DataType, steps: Sequence[exp.Expr]) -> exp.Expr:
    """The array of the values that the steps of a path find below a bound column of this type."""
    wanted = steps_of(steps)
    if not any(map(pa.types.is_struct, (plain(type_), *_all_below(plain(type_))))):
        wanted = tuple(replace(step, after_deep=False) for step in wanted)
    first = _Expansion(wanted)
    if not list(first.parts(_BASE, plain(type_), FIRST)):
        raise _no_match(path, plain(type_), wanted)
    value_type = _common_type(path, first.types)
    # A second time, now with casts to the common type.
    second = _Expansion(wanted, value_type)
    array = parsed(second.as_array(second.parts(_BASE, plain(type_), FIRST)), path)
    array = _put_in(array, base)
    array.meta[PATH] = written(path)
    return with_type(array, pa.list_(value_type))


def parsed(text: str, like: exp.Expr) -> exp.Expression:
    """An expression from text that replaces what the user wrote, and has its place."""
    found = parse_expression(text)
    places = [{k: node.meta[k] for k in PLACE if k in node.meta} for node in like.walk()]
    for node in found.walk():
        for key in PLACE:
            node.meta.pop(key, None)
    found.meta.update(next((place for place in places if place), {}))
    return found


def _put_in(array: exp.Expression, base: exp.Expr) -> exp.Expression:
    """The array with the column instead of its stand-in, whose fields the parser reads as a qualified name."""
    for column in list(array.find_all(exp.Column)):
        if column.parts[0].name == _BASE:
            value = base.copy()
            for field in column.parts[1:]:
                value = exp.Dot(this=value, expression=field.copy())
            column.replace(value)
    return array


def written(path: Path) -> str:
    """The path as the user wrote it."""
    texts = [encode(s.name) if isinstance(s, exp.Literal) else s.name for s in path.args["steps"]]
    kinds = [isinstance(s, exp.Literal) for s in path.args["steps"]]
    shown = [f"[{t}]" if key else t if t.startswith("[") else f".{t}" for t, key in zip(texts, kinds, strict=True)]
    return str(path.this.name) + "".join(shown)


def _common_type(path: Path, types: Sequence[pa.DataType]) -> pa.DataType:
    """The type of the elements of the result."""
    types = list(dict.fromkeys(types))
    found = types[0] if len(types) == 1 else common(types, strings=False)
    if found is None:
        shown = ", ".join(type_name(t) for t in types)
        last = path.args["steps"][-1]
        hint = "Write a field after it, such as .price." if last.name in ("*", "**", "[*]") else "Name one of them."
        raise PathError(f"The values of '{written(path)}' have no common type: {shown}.", last, hint)
    return found


@dataclass(frozen=True)
class _Part:
    """One part of the result in SQL: a value that may be NULL, or an array without NULLs that is never NULL."""

    text: str
    is_array: bool = False


class _Expansion:
    """Follows the steps through a type. `states` are the numbers of the steps that may come next: a set, so that a
    value that `**` reaches in two ways is found once."""

    def __init__(self, steps: tuple[Step, ...], value_type: pa.DataType | None = None) -> None:
        self._steps = steps
        self._value_type = value_type
        self._variables = 0
        self.types: list[pa.DataType] = []

    def parts(self, value: str, type_: pa.DataType, states: States) -> Iterator[_Part]:
        """What is found at a value and below it: the value before what is inside it."""
        states = self._closed(states)
        if len(self._steps) in states:
            cast = self._value_type is not None and self._value_type != type_
            text = f"CAST({value} AS {type_name(self._value_type)})" if cast else value
            self.types.append(type_)
            yield _Part(text)
        if pa.types.is_struct(type_):
            for field in type_:
                yield from self.parts(f"{value}.{_quoted(field.name)}", field.type, self._into_field(states, field))
        elif is_list(type_):
            yield from self._in_list(value, type_, states)
        elif pa.types.is_map(type_):
            yield from self._in_map(value, type_, states)

    def as_array(self, parts: Iterator[_Part]) -> str:
        """The parts as one array, which is never NULL and contains no NULL."""
        groups: list[str] = []
        values: list[str] = []
        for part in parts:
            if not part.is_array:
                values.append(part.text)
                continue
            groups += [self._without_nulls(f"array({', '.join(values)})")] if values else []
            groups.append(part.text)
            values = []
        groups += [self._without_nulls(f"array({', '.join(values)})")] if values else []
        return groups[0] if len(groups) == 1 else f"concat({', '.join(groups)})"

    def _closed(self, states: States) -> States:
        """With the steps after each `**`, which may match no level at all."""
        return states | {n + 1 for n in states if n < len(self._steps) and self._steps[n].is_deep}

    def _into_any(self, states: States) -> States:
        """The steps after one level, whichever part it is."""
        live = [n for n in states if n < len(self._steps)]
        return frozenset(n if self._steps[n].is_deep else n + 1 for n in live if self._passes(n))

    def _passes(self, n: int) -> bool:
        return self._steps[n].is_deep or self._steps[n].is_all

    def _into_field(self, states: States, field: pa.Field) -> States:
        live = [n for n in states if n < len(self._steps)]
        return self._into_any(states) | {n + 1 for n in live if self._steps[n].takes(field.name)}

    def _chosen(self, states: States, type_: pa.DataType) -> dict[str, States]:
        """The elements that are chosen by `[n]`, `['key']` or a key's name, as SQL literals."""
        found: dict[str, States] = {}
        for n in sorted(states - {len(self._steps)}):
            literal = _key(self._steps[n], type_)
            if literal is not None:
                found[literal] = found.get(literal, frozenset()) | {n + 1}
        return found

    def _in_list(self, value: str, type_: pa.DataType, states: States) -> Iterator[_Part]:
        every, chosen = self._into_any(states), self._chosen(states, type_)
        if not every:
            for index in sorted(chosen, key=int):
                yield from self.parts(f"get({value}, {index})", type_.value_type, chosen[index])
            return
        x, i = self._variable(), self._variable()
        yield from self._elements(value, type_.value_type, (x, x, i), every, chosen)

    def _in_map(self, value: str, type_: pa.DataType, states: States) -> Iterator[_Part]:
        every, chosen = self._into_any(states), self._chosen(states, type_)
        if not every:
            for key in sorted(chosen):
                yield from self.parts(f"try_element_at({value}, {key})", type_.item_type, chosen[key])
            return
        x = self._variable()
        if has_map(type_.item_type):
            # Spark sorts no values that contain maps, but the keys.
            sorted_, names = f"array_sort(map_keys({value}))", (x, f"{value}[{x}]", x)
        else:
            sorted_, names = f"array_sort(map_entries({value}))", (x, f"{x}.value", f"{x}.key")
        yield from self._elements(sorted_, type_.item_type, names, every, chosen)

    def _elements(
        self, array: str, type_: pa.DataType, names: tuple[str, str, str], every: States, chosen: dict[str, States]
    ) -> Iterator[_Part]:
        """What is found in the elements of an array: `names` are the lambda's variable, the element and its key."""
        variable, element, key = names
        bodies = [(None, every), *((k, every | states) for k, states in chosen.items())]
        found = [(k, list(self.parts(element, type_, states))) for k, states in bodies]
        if not any(parts for _, parts in found):
            return
        own = found[0][1]
        if len(found) == 1 and len(own) == 1 and not own[0].is_array:
            text = own[0].text
            inner = array if text == variable else f"transform({array}, {variable} -> {text})"
            yield _Part(self._never_null(self._without_nulls(inner)), is_array=True)
            return
        texts = [(k, self.as_array(iter(parts)) if parts else self._empty()) for k, parts in found]
        body, parameters = texts[0][1], variable
        if len(texts) > 1:
            cases = " ".join(f"WHEN {key} = {k} THEN {text}" for k, text in texts[1:])
            body = f"CASE {cases} ELSE {body} END"
            parameters = f"({variable}, {key})" if key.isidentifier() and key != variable else variable
        yield _Part(self._never_null(f"flatten(transform({array}, {parameters} -> {body}))"), is_array=True)

    def _never_null(self, array: str) -> str:
        return f"coalesce({array}, {self._empty()})"

    def _empty(self) -> str:
        return f"CAST(array() AS ARRAY<{type_name(self._value_type or STRING)}>)"

    def _without_nulls(self, array: str) -> str:
        x = self._variable()
        return f"filter({array}, {x} -> {x} IS NOT NULL)"

    def _variable(self) -> str:
        self._variables += 1
        return f"_p{self._variables}"


def _quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"


def _key(step: Step, type_: pa.DataType) -> str | None:
    """The literal by which a step chooses an element of an array or map; None if it does not."""
    if is_list(type_):
        return str(step.index) if step.index is not None else None
    if step.index is not None:
        return str(step.index) if type_.key_type in INTEGERS else None
    # After `**` a name is that of a field, where there are structs: it would be a key beside the fields of the values.
    is_key = step.name is not None and not (step.after_deep and isinstance(step.node, exp.Identifier))
    return encode(str(step.name)) if is_key and plain(type_.key_type) == STRING else None


def _no_match(path: Path, type_: pa.DataType, steps: tuple[Step, ...]) -> PathError:
    """The error for a path that finds nothing: the first step that no type has, and the fields that there are."""
    below: list[pa.DataType] = [type_]
    for n, step in enumerate(steps):
        if step.is_deep:
            below = list(dict.fromkeys(t for b in below for t in (b, *_all_below(b))))
            continue
        after = [t for b in below for t in _after(step, b)]
        if not after:
            return _not_there(path, step, below, steps[:n])
        below = after
    return PathError(f"'{written(path)}' matches no value.", path)


def _after(step: Step, type_: pa.DataType) -> list[pa.DataType]:
    if step.is_all:
        return _inside(type_)
    if pa.types.is_struct(type_):
        return [f.type for f in type_ if step.takes(f.name)]
    nested = is_list(type_) or pa.types.is_map(type_)
    return _inside(type_) if nested and _key(step, type_) is not None else []


def _inside(type_: pa.DataType) -> list[pa.DataType]:
    if pa.types.is_struct(type_):
        return [f.type for f in type_]
    if is_list(type_):
        return [type_.value_type]
    return [type_.item_type] if pa.types.is_map(type_) else []


def _all_below(type_: pa.DataType) -> Iterator[pa.DataType]:
    for inner in _inside(type_):
        yield inner
        yield from _all_below(inner)


def _not_there(path: Path, step: Step, types: list[pa.DataType], before: tuple[Step, ...]) -> PathError:
    fields = list(dict.fromkeys(f.name for t in types if pa.types.is_struct(t) for f in t))
    what = step.node.name if not isinstance(step.node, exp.Literal) else encode(step.node.name)
    message = f"'{written(path)}' matches no value: there is no field '{what}'."
    if step.name is None:
        message = f"'{written(path)}' matches no value: '{what}' requires a STRUCT, MAP or ARRAY."
        if step.index is not None:
            message = f"'{written(path)}' matches no value: '{what}' requires an ARRAY."
    if fields:
        hint = did_you_mean(what, fields) if step.name is not None else ""
        return PathError(message, step.node, hint or f"The fields are: {', '.join(fields)}.")
    if step.name is not None and any(is_list(t) for t in types):
        inner = [f.name for t in types if is_list(t) and pa.types.is_struct(t.value_type) for f in t.value_type]
        hint = f"It is an ARRAY: write [*].{what}." if not inner or step.name in inner else ""
        return PathError(message, step.node, hint or f"It is an ARRAY with the fields: {', '.join(inner)}.")
    return PathError(message, step.node, f"It is {', '.join(dict.fromkeys(map(type_name, types)))}.")


def paths_in(tree: exp.Expr) -> Iterator[tuple[str, exp.Expr]]:
    """The expanded paths of a bound tree, each text once."""
    seen: set[str] = set()
    for node in tree.walk(bfs=False):
        text = node.meta_get(PATH)
        if text and text not in seen:
            seen.add(text)
            yield text, node
