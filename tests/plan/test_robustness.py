"""Whatever stands in a file, planning tells mistakes and never fails; and it is quick."""

import random
import re
import subprocess
import sys

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.plan.planning import HEAD, plan_of
from tests.plan.test_examples import CHANGES, QUERIES, STREAMS, TABLES

from millpond.plan.explain import explain_json, explain_text

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


@pytest.mark.parametrize("word", ["AND", "+"])
def test_a_condition_of_a_thousand_terms_is_planned(word: str) -> None:
    terms = f" {word} ".join(["quantity"] * 300) if word == "+" else " AND ".join(["quantity > 1"] * 300)
    where = f"{terms} > 1" if word == "+" else terms
    assert plan_of(f"{HEAD}SELECT symbol FROM trades WHERE {where};").errors == ()


SPEED = """
import time
started = time.process_time()
from pathlib import Path
from millpond.contracts.source import Found
from millpond.plan.build import build_plan
from millpond.settings import load_settings
from millpond.sql.parser import parse_script
text = Path({file!r}).read_text()
script = parse_script(text)
plan = build_plan(script, name="x", base=Path("."), settings=load_settings({{}}, {{}}), environment={{}},
                  discover=lambda plugin, spec: Found())
assert len(script.statements) >= 50, len(script.statements)
print(time.process_time() - started)
"""


def test_fifty_statements_are_planned_within_a_second_of_work_imports_included(tmp_path: object) -> None:
    file = f"{tmp_path}/fifty.sql"
    lines = [
        f"SELECT t.symbol, u.name FROM trades t JOIN users u ON u.user_id = t.user_id AND t.quantity > {n};\n"
        for n in range(50)
    ]
    with open(file, "w", encoding="utf-8") as out:
        out.write(HEAD + "".join(lines))
    took = [float(_output(SPEED.format(file=file))) for _ in range(3)]
    # The machine may be busy: the best of three is what the code costs.
    assert min(took) < 1.0


def _output(code: str) -> str:
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout
