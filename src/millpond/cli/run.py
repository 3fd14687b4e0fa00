"""`millpond run`: runs an app until it is stopped, or once over the available data."""

from __future__ import annotations

import argparse
import signal
from typing import TYPE_CHECKING

from millpond.cli.app_run import Ended, Stopper, leave_at_once, watch
from millpond.cli.command import (
    Arguments,
    Command,
    add_cluster,
    add_file,
    add_json,
    add_state,
    add_variables,
    cluster_settings,
)
from millpond.cli.output import print_errors
from millpond.cli.views import View, open_view

if TYPE_CHECKING:
    from millpond.app.app import App


def configure(parser: argparse.ArgumentParser) -> None:
    add_file(parser)
    parser.add_argument("--once", action="store_true", help="process the available data, then exit")
    add_state(parser)
    add_variables(parser)
    add_cluster(parser)
    page = parser.add_mutually_exclusive_group()
    page.add_argument(
        "--http", metavar="HOST:PORT", help="where the page and the HTTP API listen (the first free port from 8080)"
    )
    page.add_argument("--no-http", action="store_true", help="no page and no HTTP API")
    parser.add_argument("--http-token", metavar="TOKEN", help="the token that HTTP requests need (MILLPOND_HTTP_TOKEN)")
    parser.add_argument("--http-write", action="store_true", help="let tables be changed over HTTP")
    parser.add_argument("--pg", metavar="HOST:PORT", help="where psql and other clients of PostgreSQL connect")
    parser.add_argument("--pg-write", action="store_true", help="let them change tables")
    add_json(parser)
    parser.add_argument("--quiet", action="store_true", help="show only warnings and failures")
    parser.add_argument(
        "--log-format", choices=("text", "json"), default="text", help="json: standard error is a structured log"
    )
    parser.add_argument("--accept", action="store_true", help="drop tables that a changed file no longer defines")


def run(arguments: Arguments) -> int:
    with Stopper() as stopper:
        try:
            log = arguments.log_format == "json"
            view = open_view(json=arguments.json, file=arguments.file, quiet=arguments.quiet, log=log)
            ended = _run_app(arguments, view, stopper)
        except KeyboardInterrupt:
            leave_at_once(stopper.exit_code, quiet=arguments.json or arguments.quiet or log)
    print_errors(ended.failures, json=arguments.json or log, debug=arguments.debug, reported=ended.reported)
    if stopper.received is signal.SIGINT:
        return 130
    return 1 if ended.failures else 0


def _run_app(arguments: Arguments, view: View, stopper: Stopper) -> Ended:
    """Run to the end; an invalid file raises before anything starts."""
    app = _open(arguments, view)
    warnings = app.plan.warnings
    for problem in dict.fromkeys(warnings):
        view.report(problem)

    def work() -> None:
        if arguments.once:
            app.run_once()
        else:
            app.start()
            app.wait()

    def stop() -> None:
        view.announce("Stopping after the current batch; press Ctrl-C again to stop at once.")
        app.request_stop()

    stopper.on_first(stop)
    return watch(app, work, view, stopper, warnings)


def _open(arguments: Arguments, view: View) -> App:
    # Imported here, after the arguments were checked, because it loads Spark.
    from millpond.app.app import App

    settings = {name: "true" for name in ("json", "debug") if getattr(arguments, name)}
    settings |= {name: getattr(arguments, name) for name in ("http", "pg") if getattr(arguments, name)}
    settings |= cluster_settings(arguments)
    settings |= {"http": "off"} if arguments.no_http else {}
    settings |= {"http.token": arguments.http_token} if arguments.http_token else {}
    settings |= {"http.write": "true"} if arguments.http_write else {}
    settings |= {"pg.write": "true"} if arguments.pg_write else {}
    return App(
        arguments.file,
        state=arguments.state,
        variables=dict(arguments.variables),
        settings=settings,
        accept=arguments.accept,
        output=view.rows,
        # A run that processes the existing data and ends needs no page, unless one is requested.
        http="off" if arguments.once else "auto",
    )


COMMAND = Command("run", "Run a SQL file until stopped, or once over the available data.", configure, run)
