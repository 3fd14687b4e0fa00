"""The live picture."""

from __future__ import annotations

import io
import re
from dataclasses import replace

import pytest
from rich.console import Console
from tests.cli.fake_app import progress

from millpond.cli.live import LiveView, Picture, RowsAbove
from millpond.engine.progress import AppProgress, LoadProgress
from millpond.errors import Place, Problem, Severity

FAILURE = Problem(
    "MP408",
    "Division by zero in the statement that fills 'ratios': the row with key u17 has a count of 0.",
    Place("shop.sql", 14, 9),
    "Write NULLIF(count, 0), or 'on.error' = 'dead-letter' to put such rows aside.",
)
WARNING = Problem("MP707", "Nobody feeds 'memory://ticks'.", severity=Severity.WARNING)


def drawn(moment: AppProgress, width: int = 120, height: int = 40, file: str | None = "shop.sql") -> str:
    """The picture without colours."""
    console = Console(file=io.StringIO(), width=width, height=height, record=True)
    console.print(Picture(moment, file))
    return console.export_text()


def visible(text: str) -> str:
    return re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", text)


def failed() -> AppProgress:
    return progress(flow_state="failed", error="MP408 Division by zero.", failures=(FAILURE,), problems=(WARNING,))


def test_the_picture_has_flows_tables_and_sources() -> None:
    text = drawn(progress(seconds=75.2, rows=12_345))
    assert text.startswith("app  running  1:15\n")
    assert re.search(r"flow +state +rows +rows/s +batch ms +lag", text)
    assert re.search(r"  trades +running +12,345 +1,234 +46 +7", text)
    assert re.search(r"table +state +rows +version +backend", text)
    assert re.search(r"  users +ready +12,345 +12,345 +memory", text)
    assert re.search(r"  trades +running +healthy +12,345 +- +2", text)
    assert 'Ctrl-C stops. Query with: millpond query "SHOW TABLES" --app shop.sql' in text


def test_a_loading_table_reports_how_far_it_is() -> None:
    assert "loading 1 of 3" in drawn(progress("loading", table_state="loading"))


@pytest.mark.parametrize(("width", "height"), [(80, 24), (120, 40)])
def test_a_failure_is_in_the_picture_with_place_and_hint_and_what_to_do_next(width: int, height: int) -> None:
    text = drawn(failed(), width, height)
    lines = text.splitlines()
    assert lines[0] == "! app  running, 1 of 1 flow failed  0:01"
    assert max(map(len, lines)) <= width
    assert len(lines) < height
    flat = " ".join(text.split())
    assert f"! MP408 shop.sql:14:9 {FAILURE.message}" in flat
    assert f"hint: {FAILURE.hint}" in flat
    assert re.search(r"! trades +failed", text)
    assert "MP707 Nobody feeds 'memory://ticks'." in flat
    assert "Correct shop.sql and run 'millpond apply shop.sql'" in flat


def test_the_header_says_what_is_not_as_it_should_be() -> None:
    assert drawn(progress(flow_state="retrying")).startswith("! app  running, 1 of 1 flow retrying")
    assert drawn(progress(table_state="stale")).startswith("! app  running, 1 of 1 table stale")
    assert drawn(progress(failures=(FAILURE,))).startswith("! app  running, something failed")
    assert drawn(progress("loading", table_state="missing")).startswith("app  loading  ")


def test_colours_say_the_same() -> None:
    console = Console(file=io.StringIO(), width=80, force_terminal=True, color_system="standard")
    console.print(Picture(failed(), "shop.sql"))
    text = console.file.getvalue()  # type: ignore[attr-defined]
    assert "\x1b[1;31mrunning, 1 of 1 flow failed\x1b[0m" in text
    assert "\x1b[1;31m  failed\x1b[0m" in text


@pytest.mark.parametrize(("width", "height"), [(40, 12), (60, 16), (80, 24)])
def test_a_small_terminal_shows_first_what_needs_attention(width: int, height: int) -> None:
    base = progress(failures=(FAILURE,))
    tables = tuple(replace(base.tables[0], name=f"table_with_a_long_name_{n}") for n in range(50))
    flows = tuple(replace(base.flows[0], name=f"flow{n}") for n in range(20))
    flows = (*flows[:15], replace(flows[15], state="failed"), *flows[16:])
    text = drawn(replace(base, tables=tables, flows=flows), width, height)
    assert max(map(len, text.splitlines())) <= width
    assert re.search(r"! flow15 +failed", text)
    assert re.search(r"\.\.\. and 4\d more", text)
    if height == 24:
        assert len(text.splitlines()) < height


def test_the_last_picture_stays_and_what_was_said_is_above_it() -> None:
    terminal = io.StringIO()
    view = LiveView(terminal, io.StringIO())
    view.show(progress("running", rows=1))
    view.report(Problem("MP707", "Nobody feeds [this].", severity=Severity.WARNING))
    view.close(progress("stopped", rows=99))
    text = visible(terminal.getvalue())
    assert text.index("Nobody feeds [this].") < text.rindex("app  stopped")
    assert terminal.getvalue().rstrip().endswith("\x1b[?25h"), "the cursor is back"
    assert re.search(r"users +ready +99", text)


def test_a_failure_is_printed_in_full_below_the_last_picture() -> None:
    terminal = io.StringIO()
    view = LiveView(terminal, io.StringIO())
    view.show(failed())
    view.report(FAILURE)
    view.show(failed())
    view.close(failed())
    text = visible(terminal.getvalue())
    assert text.count(str(FAILURE)) == 1
    assert text.rindex(str(FAILURE)) > text.rindex("1 of 1 flow failed")


def test_a_failure_that_was_repaired_is_not_printed_at_the_end() -> None:
    terminal = io.StringIO()
    view = LiveView(terminal, io.StringIO())
    view.report(FAILURE)
    view.show(failed())
    view.show(progress())
    view.close(progress("stopped"))
    assert str(FAILURE) not in visible(terminal.getvalue())


def test_a_view_that_showed_nothing_leaves_nothing() -> None:
    terminal = io.StringIO()
    LiveView(terminal, io.StringIO()).close(None)
    assert terminal.getvalue() == ""


def test_rows_for_a_file_go_there_directly() -> None:
    stdout = io.StringIO()
    assert LiveView(io.StringIO(), stdout).rows is stdout


def test_rows_on_the_same_terminal_come_as_whole_lines() -> None:
    out = io.StringIO()
    rows = RowsAbove(Console(file=out, width=20))
    rows.write('{"a": "[bold]')
    assert out.getvalue() == ""
    rows.write('long enough to wrap"}\nnext')
    assert out.getvalue() == '{"a": "[bold]long enough to wrap"}\n'


def test_a_load_has_a_bar_that_fits_eighty_columns() -> None:
    load = LoadProgress(250_000, 1_000_000, "rows", 250_000, 51_234.0, 15.0)
    moment = progress("loading", table_state="loading")
    moment = replace(moment, tables=(replace(moment.tables[0], load=load, loaded=str(load)),))
    text = drawn(moment, width=80, height=24)
    assert "  users  ████░░░░░░░░░░░░  25%  250000 of 1000000 rows, 51234 rows/s, 15 s left" in text
    assert all(len(line) <= 80 for line in text.splitlines())
    unknown = replace(load, total=None, seconds_left=None)
    text = drawn(replace(moment, tables=(replace(moment.tables[0], load=unknown),)), width=80, height=24)
    assert "  users  ················       250000 rows, 51234 rows/s" in text
    many = tuple(replace(moment.tables[0], name=f"t{n}") for n in range(9))
    assert "... and 4 more tables are loading" in drawn(replace(moment, tables=many), width=80, height=24)
    assert "█" not in drawn(progress(), width=80)
