"""Where a shell runs statements: a running app, by its socket, the state of a stopped one, or an app of its own."""

from __future__ import annotations

import tempfile
import threading
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from millpond.errors import MillpondError, OptionError, RunError, SqlError, StateError

if TYPE_CHECKING:
    import pyarrow as pa

    from millpond.app.app import App
    from millpond.serve.control_client import Client

T = TypeVar("T")
# Trades and quotes of `\demo`, and how many of them come per second.
DEMO = {"TRADES": "100000", "TRADE_RATE": "200", "QUOTES": "10000", "QUOTE_RATE": "20"}


class Target(Protocol):
    """Runs statements. `run` returns rows, or the number of changed rows; Ctrl-C in it cancels the statement."""

    @property
    def name(self) -> str:
        """The name of the app, for the prompt."""

    @property
    def greeting(self) -> str:
        """What the user is connected to."""

    def run(self, sql: str) -> pa.Table | int: ...

    def completions(self) -> Mapping[str, Any]:
        """The names that a statement can use, as `serve.completions` returns them."""

    def demo(self) -> str:
        """Bring the trading example; returns what the user can do with it."""

    def close(self) -> None: ...


@dataclass(frozen=True)
class RunningApp:
    """The app of another process, through the socket of its state directory."""

    state: Path
    client: Client

    @property
    def name(self) -> str:
        return self.state.name

    @property
    def greeting(self) -> str:
        return f"Connected to the running app '{self.name}'."

    def run(self, sql: str) -> pa.Table | int:
        # Ctrl-C closes the connection, upon which the app cancels the statement.
        found = self.client.run(sql)
        if found is None:
            raise RunError("MP710", "The app was stopped.", hint="Start it again, or leave with \\q.")
        return found

    def completions(self) -> Mapping[str, Any]:
        return self.client.get("/api/completions") or {}

    def demo(self) -> str:
        raise _no_demo()

    def close(self) -> None:
        """Nothing is open between two statements."""


@dataclass(frozen=True)
class OpenedApp:
    """An app in this process: that of a file, opened but not started, or a playground."""

    app: App
    greeting: str
    is_playground: bool = False
    folder: tempfile.TemporaryDirectory[str] | None = field(default=None, repr=False)

    @property
    def name(self) -> str:
        return self.app.plan.name

    def run(self, sql: str) -> pa.Table | int:
        from millpond.app.queries import Cancellation

        if reads(sql):
            cancellation = Cancellation()
            return interruptible(
                lambda: self.app.answer(sql, cancellation=cancellation),
                lambda: cancellation.cancel("The query was cancelled."),
            )
        return self.app.execute(sql)

    def completions(self) -> Mapping[str, Any]:
        from millpond.serve.completions import completions_of

        return completions_of(self.app)

    def demo(self) -> str:
        from millpond.app.planning import AppText
        from millpond.cli.demo import folder

        if not self.is_playground or self.folder is None:
            raise _no_demo()
        text = replace(AppText.of_file(folder() / "trading.sql"), name=self.app.plan.name)
        self.app.apply_text(text, {**DEMO, "OUT": str(Path(self.folder.name) / "out")}, accept=False)
        return "The trading example runs: see \\dt, and  SELECT * FROM profit_by_tier;  with \\watch 2s"

    def close(self) -> None:
        self.app.stop()
        if self.folder is not None:
            self.folder.cleanup()


@dataclass(frozen=True)
class StoredTables:
    """The state directory of a stopped app of which the file is not known: its tables can only be read."""

    state: Path

    @property
    def name(self) -> str:
        return self.state.name

    @property
    def greeting(self) -> str:
        return f"The app '{self.name}' is not running: its tables are read-only. With its FILE, they can be changed."

    def run(self, sql: str) -> pa.Table | int:
        from millpond.app.stopped_app import query_state

        if not reads(sql):
            hint = "Give the file of the app: millpond shell app.sql"
            raise OptionError("MP310", "Without the file of the app, its tables cannot be changed.", hint=hint)
        return query_state(sql, state=self.state)

    def completions(self) -> Mapping[str, Any]:
        try:
            names = self.run("SHOW TABLES")
        except MillpondError:
            return {}
        assert not isinstance(names, int)
        return {"tables": {name: [] for name in names["name"].to_pylist()}}

    def demo(self) -> str:
        raise _no_demo()

    def close(self) -> None:
        """Nothing is open between two statements."""


def open_target(file: str | None, state: str | None, variables: Mapping[str, str]) -> Target:
    """The running app, else its state; a playground if there is neither a file nor any app here."""
    from millpond.cli.query import find_state
    from millpond.serve.control_client import SOCKET_NAME, Client

    if file is None and state is None and not _has_app(Path.cwd()):
        return _playground()
    path = find_state(state, file)
    client = Client(path / SOCKET_NAME)
    if client.get("/health") is not None:
        return RunningApp(path, client)
    if file is None:
        return StoredTables(path)
    from millpond.app.app import App

    app = App(file, state=state, variables=variables)
    app.tables()
    return OpenedApp(app, f"The app '{app.plan.name}' is not running: its state is open here until you leave.")


def _has_app(folder: Path) -> bool:
    return any(folder.glob("*.sql")) or any(folder.glob(".millpond/*"))


def _playground() -> OpenedApp:
    from millpond.app.app import App

    folder: tempfile.TemporaryDirectory[str] = tempfile.TemporaryDirectory(prefix="millpond-shell-")
    app = App(sql="", state=Path(folder.name) / "state")
    app.start()
    greeting = "A playground: its tables are removed when you leave.\n\\demo starts the trading example."
    return OpenedApp(app, greeting, is_playground=True, folder=folder)


def _no_demo() -> StateError:
    hint = "Run 'millpond shell' in an empty folder, or 'millpond demo'."
    return StateError("MP310", "\\demo works in a playground only.", hint=hint)


def reads(sql: str) -> bool:
    """Whether a statement only reads."""
    from millpond.sql.parser import parse_script
    from millpond.sql.statements import Describe, Explain, Select, Show

    script = parse_script(sql, file="query")
    if script.problems:
        raise SqlError.of(script.problems)
    return all(isinstance(statement, Select | Show | Describe | Explain) for statement in script.statements)


def interruptible(work: Callable[[], T], cancel: Callable[[], None]) -> T:
    """The result of work in another thread; an interrupt cancels it and waits for its end."""
    done: Future[T] = Future()

    def do() -> None:
        try:
            done.set_result(work())
        except BaseException as error:
            done.set_exception(error)

    thread = threading.Thread(target=do, name="shell-query", daemon=True)
    try:
        thread.start()
        return done.result()
    except KeyboardInterrupt:
        cancel()
        thread.join()
        raise
