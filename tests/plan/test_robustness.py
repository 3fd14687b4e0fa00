"""Whatever a file contains, planning reports mistakes and never fails; and it is quick."""

import random
import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.plan.planning import HEAD, plan_of
from tests.plan.test_examples import CHANGES, QUERIES, STREAMS, TABLES

from millpond.plan.explain import explain_text
from millpond.plan.explain_json import explain_json

TOKENS = re.compile(r"'[^']*'|\w+|[^\w\s]")
STATEMENTS = [*CHANGES, *QUERIES, *TABLES.split(";\n"), *STREAMS.split(";\n")]
OPERATIONS = ("drop", "double", "swap", "other")


def mutated(text: str, seed: int) -> str:
    """The text with a few of its words dropped, doubled, swapped or taken from elsewhere."""
    draw = random.Random(seed)
    words = TOKENS.findall(text)
    for _ in range(draw.randint(1, 4)):
        if len(words) < 2:
            break
        at = draw.randrange(len(words) - 1)
        operation = draw.choice(OPERATIONS)
        if operation == "drop":
            del words[at]
        elif operation == "double":
            words.insert(at, words[at])
        elif operation == "swap":
            words[at], words[at + 1] = words[at + 1], words[at]
        else:
            words[at] = draw.choice(TOKENS.findall(draw.choice(STATEMENTS)) or ["x"])
    return re.sub(r" ?(://|\.|:) ?", r"\1", " ".join(words))


@settings(max_examples=300, deadline=None)
@given(st.sampled_from(STATEMENTS), st.integers(0, 10_000))
def test_a_mutated_statement_is_planned_or_refused_but_never_fails(text: str, seed: int) -> None:
    plan = plan_of(f"{STREAMS}{TABLES}{mutated(text, seed)};")
    if not plan.errors:
        explain_text(plan)
        explain_json(plan)
    assert list(plan.problems) == sorted(
        plan.problems, key=lambda p: (p.place.line, p.place.column) if p.place else (0, 0)
    )


@settings(max_examples=50, deadline=None)
@given(st.integers(0, 10_000))
def test_a_file_with_statements_left_out_is_planned_or_refused(seed: int) -> None:
    draw = random.Random(seed)
    kept = [s for s in STATEMENTS if draw.random() < 0.7]
    draw.shuffle(kept)
    plan_of(";\n".join(kept))


@pytest.mark.parametrize("declared", ["('format' = 'jsn')", "('max.rows.per.batch' = '-1')", "AS SELECT * FROM trades"])
def test_whatever_reads_a_stream_that_is_declared_wrongly_is_planned(declared: str) -> None:
    source = "" if declared.startswith("AS") else "FROM kafka://trades WITH "
    for text in [*STATEMENTS, "CREATE TABLE n AS SELECT user_id, COUNT(*) AS n FROM trades GROUP BY user_id"]:
        assert plan_of(f"CREATE STREAM trades {source}{declared}; {text};").errors


@pytest.mark.parametrize("word", ["AND", "+"])
def test_a_condition_of_a_thousand_terms_is_planned(word: str) -> None:
    terms = f" {word} ".join(["quantity"] * 300) if word == "+" else " AND ".join(["quantity > 1"] * 300)
    where = f"{terms} > 1" if word == "+" else terms
    assert plan_of(f"{HEAD}SELECT symbol FROM trades WHERE {where};").errors == ()
