"""Progress as lines."""

from __future__ import annotations

import io
import json
from dataclasses import replace
from datetime import UTC, datetime

from tests.cli.fake_app import progress

from millpond.cli.lines import JsonView, LineView, LogView, QuietView, changes, figures
from millpond.errors import Problem, Severity

WARNING = Problem("MP707", "Nobody feeds this.", severity=Severity.WARNING)


def test_the_first_line_of_each_shows_its_state() -> None:
    assert list(changes(None, progress("loading", table_state="loading", flow_state="waiting"))) == [
        "    1.0s  app: loading",
        "    1.0s  table users: loading, 0 rows, version 0, loaded 1 of 3",
        "    1.0s  flow trades: waiting",
    ]


def test_a_state_is_printed_when_it_changes_and_only_then() -> None:
    before = progress(flow_state="running")
    assert list(changes(before, progress(flow_state="running", seconds=2, rows=5))) == []
    assert list(changes(before, progress(flow_state="failed", seconds=2, error="MP702 Two rows."))) == [
        "    2.0s  flow trades: failed (MP702 Two rows.)"
    ]


def test_two_flows_of_one_name_are_distinguished() -> None:
    one, other = progress(flow_state="running"), progress(flow_state="finished")
    both = replace(one, flows=(*one.flows, *other.flows))
    assert list(changes(both, both)) == []
    assert list(changes(one, both)) == ["    1.0s  flow trades: finished"]
    assert list(changes(both, replace(both, flows=()))) == []


def test_figures_are_printed_of_what_moved() -> None:
    before = progress(rows=1)
    assert list(figures(before, progress(rows=1, seconds=6))) == []
    assert list(figures(before, progress(rows=12_345, seconds=6))) == [
        "    6.0s  flow trades: 12,345 rows, 1,234 rows/s, batch 46 ms, lag 7",
        "    6.0s  table users: 12,345 rows, version 12345",
    ]


def test_figures_come_every_five_seconds_and_at_the_end() -> None:
    out = io.StringIO()
    view = LineView(out, io.StringIO())
    for seconds in range(12):
        view.show(progress(seconds=float(seconds), rows=seconds * 100))
    before_end = out.getvalue()
    view.close(progress("stopped", seconds=12.0, rows=1_200))
    stamps = [line.split()[0] for line in before_end.splitlines() if "rows/s" in line]
    assert stamps == ["5.0s", "10.0s"]
    assert "app: stopped" in out.getvalue()
    assert "flow trades: 1,200 rows" in out.getvalue()


def test_a_silent_app_writes_no_lines() -> None:
    out = io.StringIO()
    view = LineView(out, io.StringIO())
    view.show(progress())
    written = out.getvalue()
    for seconds in range(2, 60):
        view.show(progress(seconds=float(seconds)))
    assert out.getvalue() == written


def test_json_lines_are_objects_of_a_kind() -> None:
    out = io.StringIO()
    view = JsonView(out, io.StringIO())
    view.report(WARNING)
    view.show(progress(seconds=0.0))
    view.show(progress(seconds=0.25, rows=3))
    view.show(progress(seconds=0.5, flow_state="failed"))
    view.announce("for people only")
    view.close(progress("stopped", seconds=0.75))
    events = [json.loads(line) for line in out.getvalue().splitlines()]
    assert [event["event"] for event in events] == ["problem", "progress", "progress", "progress"]
    assert [event.get("state") for event in events] == [None, "running", "running", "stopped"]
    assert events[0]["code"] == "MP707"
    assert events[1]["flows"][0]["rows_per_s"] == 1234.5


def test_a_structured_log_has_flow_batch_and_code() -> None:
    out = io.StringIO()
    view = LogView(out, io.StringIO(), lambda: datetime(2026, 3, 1, 10, 0, tzinfo=UTC))
    first = progress()
    later = replace(first, flows=(replace(first.flows[0], batches=2, rows=5),))
    failed = replace(first, flows=(replace(later.flows[0], state="failed", error="MP408 Division by zero."),))
    for moment in (first, first, later, failed):
        view.show(moment)
    view.report(WARNING)
    view.close(failed)
    lines = [json.loads(line) for line in out.getvalue().splitlines()]
    stamp = {"at": "2026-03-01T10:00:00.000Z"}
    assert [line["event"] for line in lines] == ["app", "table", "flow", "batch", "flow", "problem"]
    batch = {"event": "batch", "flow": "trades", "batch": 2, "rows": 5, "batch_ms": 45.6, "lag": 7}
    assert lines[3] == {**stamp, "level": "info", **batch}
    assert lines[4]["level"] == "error"
    assert (lines[4]["code"], lines[4]["message"]) == ("MP408", "Division by zero.")
    assert (lines[5]["level"], lines[5]["code"]) == ("warning", "MP707")


def test_quiet_shows_problems_only() -> None:
    out = io.StringIO()
    view = QuietView(out, io.StringIO())
    view.show(progress())
    view.announce("Stopping.")
    view.report(WARNING)
    view.close(progress())
    assert out.getvalue() == f"{WARNING}\n"


def test_a_structured_log_has_the_rows_of_each_batch() -> None:
    out = io.StringIO()
    view = LogView(out, io.StringIO())
    first = progress(rows=4)
    view.show(first)
    view.show(replace(first, flows=(replace(first.flows[0], batches=first.flows[0].batches + 1, rows=5),)))
    assert json.loads(out.getvalue().splitlines()[-1])["rows"] == 1
