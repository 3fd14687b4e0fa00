"""The live picture."""

from __future__ import annotations

import io
import re

from rich.console import Console
from tests.cli.fake_app import progress

from millpond.cli.live import LiveView, RowsAbove, picture
from millpond.errors import Problem, Severity
from millpond.runtime.figures.progress import AppProgress


def drawn(moment: AppProgress, width: int = 120) -> str:
    console = Console(file=io.StringIO(), width=width, record=True)
    console.print(picture(moment))
    return console.export_text()


def visible(text: str) -> str:
    return re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", text)


def test_the_picture_has_tables_flows_and_sources() -> None:
    text = drawn(progress(seconds=75.2, rows=12_345))
    assert "app  running  1:15" in text
    assert re.search(r"table +rows +version +state +backend", text)
    assert re.search(r"users +12,345 +12,345 +ready +memory", text)
    assert re.search(r"trades +12,345 +1,234 +46 +7 +running", text)
    assert re.search(r"trades +12,345 +- +2 +running +healthy", text)


def test_a_loading_table_tells_how_far_it_is() -> None:
    assert "loading 1 of 3" in drawn(progress("loading", table_state="loading"))


def test_a_failed_flow_shows_its_error() -> None:
    assert "failed  MP702 [Two] rows." in drawn(progress(flow_state="failed", error="MP702 [Two] rows."))


def test_a_narrow_terminal_loses_no_line() -> None:
    text = drawn(progress(error="x" * 300), width=60)
    assert max(map(len, text.splitlines())) <= 60


def test_the_last_picture_stays_and_what_was_said_is_above_it() -> None:
    terminal = io.StringIO()
    view = LiveView(terminal, io.StringIO())
    view.show(progress("running", rows=1))
    view.tell(Problem("MP707", "Nobody feeds [this].", severity=Severity.WARNING))
    view.close(progress("stopped", rows=99))
    text = visible(terminal.getvalue())
    assert text.index("Nobody feeds [this].") < text.rindex("app  stopped")
    assert terminal.getvalue().rstrip().endswith("\x1b[?25h"), "the cursor is back"
    assert re.search(r"users +99", text)


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
