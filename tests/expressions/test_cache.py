"""Compiled once per text, schema and kind of parameters."""

import pyarrow as pa
import pytest

from millpond.errors import TableError
from millpond.expressions import cache
from millpond.expressions.cache import compiled
from millpond.expressions.compile import NotCompilable
from millpond.schema import Schema

SCHEMA = Schema.from_arrow(pa.schema([("a", pa.int32())]))
OTHER = Schema.from_arrow(pa.schema([("a", pa.string())]))


def test_the_same_text_is_compiled_once() -> None:
    assert compiled("a > 41", SCHEMA) is compiled("a > 41", SCHEMA)


def test_another_schema_is_another_expression() -> None:
    assert compiled("coalesce(a, 1)", SCHEMA).type == pa.int32()
    assert compiled("coalesce(a, 1)", OTHER).type == pa.int64()


def test_parameters_of_one_kind_share_an_expression() -> None:
    assert compiled("a > ?", SCHEMA, (1,)) is compiled("a > ?", SCHEMA, (2,))
    assert compiled("a > ?", SCHEMA, (1,)) is not compiled("a > ?", SCHEMA, ("1",))


def test_the_cache_is_bounded() -> None:
    for number in range(cache.COMPILED_MAX + 50):
        compiled(f"a = {number}", SCHEMA)
    assert cache._compiled.cache_info().currsize == cache.COMPILED_MAX


def test_a_refusal_is_remembered_and_raised_again() -> None:
    for _ in range(2):
        with pytest.raises(NotCompilable):
            compiled("exp(a) > 1", SCHEMA)


def test_a_wrong_number_of_parameters_is_an_error() -> None:
    with pytest.raises(TableError):
        compiled("a > ?", SCHEMA)
