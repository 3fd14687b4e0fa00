"""Random expressions over random rows: Arrow and Spark agree on value, type and failure, or Arrow refuses."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest
from tests.expressions.drawing import Drawer, table
from tests.expressions.edge_cases import EDGES
from tests.expressions.edge_cases import rows as edge_rows
from tests.expressions.judge import AS_WRITTEN, VIEW, Outcome, ours, spark_alone, sparks
from tests.seeds import FRESH

from millpond.expressions.conditionals import written_type
from millpond.expressions.result_types import infer
from millpond.expressions.strings import has_settled_case
from millpond.sql.parser import parse_expression

EXPRESSIONS = 2_400
ROWS = 24
TOGETHER = 50
# Finding out that Spark fails takes a query each; the rest share queries.
FAILURES_CHECKED = 30
REFUSED_SHARE_MAX = 0.08
VALUES_SHARE_MIN = 0.7

# Evaluated without compiling Java code for every query, which takes far longer than twenty rows.
INTERPRETED = {
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.sql.ansi.enabled": "true",
    "spark.sql.session.timeZone": "UTC",
    # NULLIF would be pulled out of its branch, and fail on rows that never reach it.
    "spark.sql.alwaysInlineCommonExpr": "true",
}


@pytest.fixture
def judge(spark: Any) -> Iterator[Any]:
    before = {name: spark.conf.get(name, None) for name in INTERPRETED | AS_WRITTEN}
    spark.sparkContext.setLogLevel("OFF")
    for name, value in INTERPRETED.items():
        spark.conf.set(name, value)
    yield spark
    for name, value in before.items():
        spark.conf.unset(name) if value is None else spark.conf.set(name, value)
    spark.sparkContext.setLogLevel("ERROR")
    spark.catalog.dropTempView(VIEW)


def disagreements(spark: Any, texts: Sequence[str], mine: Sequence[Outcome]) -> list[str]:
    """The expressions that have a value here and another one in Spark."""
    found = []
    for start in range(0, len(texts), TOGETHER):
        part = slice(start, start + TOGETHER)
        theirs = sparks(spark, texts[part])
        for text, my, their in zip(texts[part], mine[part], theirs, strict=True):
            if not my.same(their):
                found.append(f"{text}\n  here:  {my.described()}\n  Spark: {their.described()}")
    return found


def false_alarms(spark: Any, texts: Sequence[str]) -> list[str]:
    """The expressions that fail here and not in Spark, even when it evaluates all that is written."""
    suspects = [text for text in texts if spark_alone(spark, text).word != "fails"]
    for name, value in AS_WRITTEN.items():
        spark.conf.set(name, value)
    return [text for text in suspects if spark_alone(spark, text).word != "fails"]


@pytest.mark.spark
@pytest.mark.parametrize("draw", ["fixed", "fresh"])
@pytest.mark.parametrize("extreme", [False, True], ids=["ordinary rows", "extreme rows"])
def test_arrow_and_spark_agree_on_random_expressions(judge: Any, extreme: bool, draw: str) -> None:
    seed = (FRESH if draw == "fresh" else 20_261) + extreme
    rows = table(seed, ROWS, extreme=extreme)
    judge.createDataFrame(rows).createOrReplaceTempView(VIEW)
    drawer = Drawer(seed)
    texts = [drawer.any() for _ in range(EXPRESSIONS // 4)]
    outcomes = {text: ours(text, rows) for text in texts}

    valued = [text for text in texts if outcomes[text].word == "value"]
    failing = [text for text in texts if outcomes[text].word == "fails"]
    refused = [text for text in texts if outcomes[text].word == "refused"]
    assert len(refused) <= REFUSED_SHARE_MAX * len(texts), [outcomes[text].reason for text in refused]
    assert len(valued) >= VALUES_SHARE_MIN * len(texts)
    assert disagreements(judge, valued, [outcomes[text] for text in valued]) == []
    assert false_alarms(judge, failing[:FAILURES_CHECKED]) == []


@pytest.mark.spark
@pytest.mark.parametrize("topic", EDGES)
def test_arrow_and_spark_agree_at_the_edges(judge: Any, topic: str) -> None:
    rows = edge_rows()
    judge.createDataFrame(rows).createOrReplaceTempView(VIEW)
    outcomes = {text: ours(text, rows) for text in EDGES[topic]}
    assert {text: outcome.reason for text, outcome in outcomes.items() if outcome.word == "refused"} == {}
    valued = [text for text, outcome in outcomes.items() if outcome.word == "value"]
    failing = [text for text, outcome in outcomes.items() if outcome.word == "fails"]
    assert disagreements(judge, valued, [outcomes[text] for text in valued]) == []
    assert [text for text in failing if spark_alone(judge, text).word != "fails"] == []


@pytest.mark.spark
def test_a_function_that_spark_evaluates_has_the_type_that_is_declared_here(judge: Any) -> None:
    rows = edge_rows()
    judge.createDataFrame(rows).createOrReplaceTempView(VIEW)
    texts = (Path(__file__).parent / "typed.txt").read_text("utf-8").splitlines()
    columns = ", ".join(f"typeof({text}) AS c{place}" for place, text in enumerate(texts))
    (theirs,) = judge.sql(f"SELECT {columns} FROM {VIEW} LIMIT 1").collect()
    scope = SimpleNamespace(resolve=lambda column: rows.schema.field(column.name).type)
    found = {text: infer(parse_expression(text), scope) for text in texts}
    mine = {text: None if type_ is None else written_type(type_) for text, type_ in found.items()}
    assert mine == dict(zip(texts, theirs, strict=True))


@pytest.mark.spark
def test_every_settled_letter_changes_case_as_in_spark(judge: Any) -> None:
    points = (chr(point) for point in range(1, 0x11000) if not 0xD800 <= point <= 0xDFFF)
    rows = pa.table({"s": [point for point in points if has_settled_case(point)]})
    assert rows.num_rows > 50_000
    judge.createDataFrame(rows).createOrReplaceTempView(VIEW)
    texts = ["upper(s)", "lower(s)", "initcap(s)", "lower(concat('A', s, 'B'))", "upper(concat('a', s, 'b'))"]
    assert disagreements(judge, texts, [ours(text, rows) for text in texts]) == []


def test_bytes_that_are_no_text_become_the_text_that_spark_makes_of_them(spark: Any) -> None:
    rows = [b"a", b"\xffa", b"\xe2\x82", b"\xe2\x82x", b"\xf0\x9f\x99\x82", b"\xed\xa0\x80", b"\xc0\xaf", b"", None]
    drawn = pa.table({"b": pa.array(rows, pa.binary())})
    frame = spark.createDataFrame([(row,) for row in rows], "b binary")
    theirs = [row.text for row in frame.selectExpr("make_valid_utf8(CAST(b AS STRING)) AS text").collect()]
    mine = ours("CAST(b AS STRING)", drawn)
    assert mine.values is not None
    assert mine.values.to_pylist() == theirs
