"""The table of functions: each has a meaning for the docs, and is tried at its edges against Spark."""

import re

from tests.expressions.edge_cases import EDGES

from millpond.expressions.library import TOPICS, documented
from millpond.plan.function_names import FUNCTIONS

# Parts of EXTRACT, and functions that another number of arguments makes other ones.
INTERNAL = {"is_null", "yearofweek", "dayofweek_iso", "seconds", "case", "and", "or", "not", "in", "div"}


def names() -> set[str]:
    return {name for entries in documented().values() for entry in entries for name in (entry.name, *entry.others)}


def test_every_function_that_is_evaluated_here_is_documented() -> None:
    evaluated = {name for functions in TOPICS.values() for name in functions if name.isidentifier()}
    assert evaluated - INTERNAL - names() == set()


def test_every_documented_function_is_one_of_sparks() -> None:
    assert names() - FUNCTIONS == {"dateadd"} - FUNCTIONS


def test_every_documented_function_is_tried_at_its_edges() -> None:
    tried = {word.lower() for texts in EDGES.values() for text in texts for word in re.findall(r"\w+(?=\s*\()", text)}
    written = {"like", "rlike", "ilike", "current_date", "current_timestamp", "curdate", "now"}
    assert {entry.name for entries in documented().values() for entry in entries} - tried - written == set()
