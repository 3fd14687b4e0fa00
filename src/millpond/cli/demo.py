"""`millpond demo`: runs the trading example for about half a minute, then shows results and next steps."""

from __future__ import annotations

import argparse
import signal
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

import millpond
from millpond.cli.app_run import Ended, Stopper, leave_at_once, watch
from millpond.cli.command import Arguments, Command
from millpond.cli.output import print_errors
from millpond.cli.views import View, open_view

if TYPE_CHECKING:
    from millpond.app.app import App


def folder() -> Path:
    """The folder of trading.sql and its CSV files; it may not be writable, so run it with a state and OUT elsewhere."""
    # In the source tree this is a link to the top-level examples/; a wheel contains the files themselves.
    return Path(millpond.__file__).resolve().parent / "examples" / "trading"


LOOK_INTERVAL_S = 0.25

# The sections of the summary: a heading and the query whose rows are shown.
QUESTIONS = (
    ("Last prices", "SELECT symbol, price, quoted_at FROM market_data ORDER BY symbol LIMIT 4"),
    ("Largest gains", "SELECT user_id, symbol, size, price, profit FROM profit ORDER BY profit DESC LIMIT 5"),
    ("Profit by tier", "SELECT tier, positions, profit FROM profit_by_tier ORDER BY tier"),
)


@dataclass(frozen=True)
class Show:
    """The size of the demo: numbers of trades and quotes, their rates per second, and a time limit."""

    trades: int = 60_000
    trades_per_s: int = 2_000
    quotes: int = 6_000
    quotes_per_s: int = 200
    seconds_max: float = 120.0

    @property
    def rows(self) -> int:
        return self.trades + self.quotes

    def variables(self, out: Path) -> dict[str, str]:
        """The variables of trading.sql."""
        counts = {"TRADES": self.trades, "TRADE_RATE": self.trades_per_s}
        counts |= {"QUOTES": self.quotes, "QUOTE_RATE": self.quotes_per_s}
        return {**{name: str(count) for name, count in counts.items()}, "OUT": str(out)}


def configure(parser: argparse.ArgumentParser) -> None:
    """No arguments of its own."""


def run(arguments: Arguments) -> int:
    with TemporaryDirectory(prefix="millpond-demo-", ignore_cleanup_errors=True) as scratch, Stopper() as stopper:
        try:
            ended, summary = play(Show(), Path(scratch), stopper)
        except KeyboardInterrupt:
            leave_at_once(stopper.exit_code)
    print_errors(ended.failures, json=False, debug=arguments.debug, reported=ended.reported)
    print(*summary, sep="\n")
    if stopper.received is signal.SIGINT:
        return 130
    return 1 if ended.failures else 0


def play(show: Show, scratch: Path, stopper: Stopper) -> tuple[Ended, list[str]]:
    """Run the example until its last row or the first signal; returns how it ended and the lines of the summary."""
    # Imported here, because it loads Spark.
    from millpond.app.app import App

    out = scratch / "out"
    summary: list[str] = []
    enough = threading.Event()
    view = open_view(json=False)
    view.announce(f"The trading example: {show.trades:,} trades and {show.quotes:,} quotes; Ctrl-C ends it early.")
    app = App(folder() / "trading.sql", state=scratch / "state", variables=show.variables(out), output=view.rows)
    stopper.on_first(lambda: _end_early(view, enough))

    def work() -> None:
        app.start()
        _wait_for_rows(app, show, enough)
        summary.extend(_summary(app, out))

    return watch(app, work, view, stopper, app.plan.warnings), summary


def _end_early(view: View, enough: threading.Event) -> None:
    view.announce("Ending early; press Ctrl-C again to stop at once.")
    enough.set()


def _wait_for_rows(app: App, show: Show, enough: threading.Event) -> None:
    """Wait until the flows have processed every row, something failed, the time is over, or the user stops the demo."""
    until = time.monotonic() + show.seconds_max
    while not enough.wait(LOOK_INTERVAL_S) and time.monotonic() < until and not app.failures:
        if sum(flow.rows for flow in app.progress().flows) >= show.rows:
            return


def _summary(app: App, out: Path) -> Iterator[str]:
    from millpond.rendering import text_lines

    for heading, sql in QUESTIONS:
        yield from ("", heading)
        yield from (f"  {line}" for line in text_lines(app.query(sql).to_arrow()))
    yield from (
        "",
        f"{_lines_in(out / 'enriched'):,} trades were enriched, {_lines_in(out / 'alerts'):,} raised an alert.",
    )
    yield from ("", *_how_to_go_on())


def _lines_in(sink: Path) -> int:
    return sum(file.read_bytes().count(b"\n") for file in sink.glob("*.jsonl"))


def _how_to_go_on() -> tuple[str, ...]:
    here = Path(folder())
    return (
        "The whole app is one SQL file, which you can copy and change:",
        f"  cp -r {here} my-app",
        "  millpond explain my-app/trading.sql",
        "  millpond run my-app/trading.sql",
        '  millpond query "SELECT * FROM profit_by_tier" --app my-app/trading.sql',
    )


COMMAND = Command("demo", "Run the trading example for half a minute.", configure, run)
