"""`millpond run`: an app until it is stopped, or once over what is there."""

from __future__ import annotations

import argparse
import signal
from typing import TYPE_CHECKING

from millpond.cli.command import Arguments, Command, add_file, add_json, add_state, add_variables
from millpond.cli.messages import print_errors
from millpond.cli.running import Ended, leave_at_once, watch
from millpond.cli.stopper import Stopper
from millpond.cli.views import View, open_view
from millpond.errors import Problem, Severity

if TYPE_CHECKING:
    from millpond.runtime.app import App


def configure(parser: argparse.ArgumentParser) -> None:
    add_file(parser)
    parser.add_argument("--once", action="store_true", help="take what is there, finish, exit")
    add_state(parser)
    add_variables(parser)
    parser.add_argument("--master", metavar="URL", help="the Spark master (local[*])")
    page = parser.add_mutually_exclusive_group()
    page.add_argument("--http", metavar="HOST:PORT", help="where the dashboard listens (comes later)")
    page.add_argument("--no-http", action="store_true", help="no dashboard")
    add_json(parser)
    parser.add_argument("--accept", action="store_true", help="let a changed file drop what it no longer defines")


def run(arguments: Arguments) -> int:
    with Stopper() as stopper:
        try:
            ended = _run_app(arguments, open_view(json=arguments.json, file=arguments.file), stopper)
        except KeyboardInterrupt:
            leave_at_once(stopper.exit_code, quiet=arguments.json)
    print_errors(ended.failures, json=arguments.json, debug=arguments.debug, told=ended.told)
    if stopper.received is signal.SIGINT:
        return 130
    return 1 if ended.failures else 0


def _run_app(arguments: Arguments, view: View, stopper: Stopper) -> Ended:
    """Run to the end; a file that is wrong is raised before anything starts."""
    app = _open(arguments, view)
    told = [*([_NO_PAGE] if arguments.http else []), *app.plan.warnings]
    for problem in dict.fromkeys(told):
        view.tell(problem)

    def work() -> None:
        if arguments.once:
            app.run_once()
        else:
            app.start()
            app.wait()

    def stop() -> None:
        view.say("Stopping when this batch is done; once more to stop at once.")
        app.request_stop()

    stopper.on_first(stop)
    return watch(app, work, view, stopper, told)


def _open(arguments: Arguments, view: View) -> App:
    # Spark and all that comes with it: only now, after the arguments were found right.
    from millpond.runtime.app import App

    settings = {name: "true" for name in ("json", "debug") if getattr(arguments, name)}
    settings |= {name: getattr(arguments, name) for name in ("master", "http") if getattr(arguments, name)}
    return App(
        arguments.file,
        state=arguments.state,
        variables=dict(arguments.variables),
        settings=settings,
        accept=arguments.accept,
        output=view.rows,
    )


_NO_PAGE = Problem(
    "MP901",
    "The dashboard comes in a later version.",
    hint='Ask for tables with: millpond query "SELECT ..."',
    severity=Severity.WARNING,
)

COMMAND = Command("run", "Run a SQL file until stopped, or once over what is there.", configure, run)
