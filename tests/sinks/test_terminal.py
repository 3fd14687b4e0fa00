"""Rows printed: JSON lines or aligned columns, nothing for an empty result."""

import io
from typing import Any

import pytest

from millpond.contracts.sink import Mark
from millpond.errors import SinkError
from millpond.sinks.terminal import TerminalSink

MARK = Mark("flow", 0, 0)


@pytest.mark.spark
def test_rows_are_printed_as_json_lines_or_columns(spark: Any) -> None:
    rows = spark.sql("SELECT 1 AS n, CAST(2.50 AS DECIMAL(12,2)) AS price, TIMESTAMP '2026-01-01 10:00:00' AS at")
    json_out, text_out = io.StringIO(), io.StringIO()
    sink = TerminalSink(json_out, True)
    assert sink.stage(rows, MARK) is None
    TerminalSink(text_out, False).stage(rows, MARK)
    assert json_out.getvalue() == '{"n": 1, "price": "2.50", "at": "2026-01-01T10:00:00Z"}\n'
    assert text_out.getvalue().splitlines()[0].split() == ["n", "price", "at"]
    assert sink.rows_written() == 1


@pytest.mark.spark
def test_an_empty_result_prints_nothing(spark: Any) -> None:
    out = io.StringIO()
    TerminalSink(out, False).stage(spark.sql("SELECT 1 AS n WHERE false"), MARK)
    assert out.getvalue() == ""


@pytest.mark.spark
def test_a_closed_pipe_is_a_coded_error(spark: Any) -> None:
    class Closed(io.StringIO):
        def flush(self) -> None:
            raise BrokenPipeError(32, "Broken pipe")

    with pytest.raises(SinkError) as caught:
        TerminalSink(Closed(), True).stage(spark.sql("SELECT 1 AS n"), MARK)
    assert caught.value.code == "MP601"
