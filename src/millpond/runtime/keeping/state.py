"""The state directory of an app: who holds it, whose it is, and where things lie in it."""

from __future__ import annotations

import errno
import fcntl
import json
import os
import shutil
from dataclasses import dataclass
from pathlib import Path

from millpond.errors import StateError
from millpond.settings import Settings, environment_name
from millpond.small_files import write_safely

FORMAT = 1
IDENTITY = "app.json"
LOCK = "lock"
STORE = "store"
# In the identity when the tables have been made, so that nobody takes their absence for a new directory.
BEGUN = "begun"


def default_state(sql_file: Path) -> Path:
    """`.millpond/<file name without .sql>` beside the SQL file."""
    return sql_file.resolve().parent / ".millpond" / sql_file.stem


@dataclass
class StateFolder:
    """A state directory held by this process until `close`."""

    path: Path
    _lock: int
    _app: str = ""
    _begun: bool = False

    @property
    def store(self) -> Path:
        return self.path / STORE

    @property
    def socket(self) -> Path:
        return self.path / "socket"

    @property
    def spark_log(self) -> Path:
        return self.path / "spark.log"

    @property
    def exchange(self) -> Path:
        """Tables on their way to Spark; of no use after a restart."""
        return self.path / "exchange"

    def flow(self, flow_id: str) -> Path:
        return self.path / "flows" / flow_id

    def load(self, table: str) -> Path:
        return self.path / "loads" / table

    def begin(self) -> None:
        """Called when its tables were opened: from now on they must be there."""
        if not self._begun:
            self._begun = True
            write_safely(self.path / IDENTITY, json.dumps({"format": FORMAT, "app": self._app, BEGUN: True}))

    def close(self) -> None:
        """Let go of the directory."""
        if self._lock >= 0:
            os.close(self._lock)
            self._lock = -1


def open_state(path: Path, app: str) -> StateFolder:
    """Take hold of a state directory, made if need be.

    MP801 when another process holds it, MP802 when another app wrote it, MP803 when another version did."""
    path = path.absolute()
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise _unusable(path, error) from error
    return _hold(path, app)


def state_of(sql_file: Path, given: str | Path | None, settings: Settings) -> Path:
    """The state directory of a file: the one that is given, else that of the setting `state`, else the default. A path
    in millpond.toml starts at its folder, which is the file's; one in the environment at the working directory."""
    setting = settings.found["state"]
    if given is not None:
        return Path(given)
    if not setting.value:
        return default_state(sql_file)
    path = Path(setting.value).expanduser()
    return path if setting.origin == environment_name("state") else sql_file.resolve().parent / path


def open_existing(path: Path, app: str | None = None) -> StateFolder:
    """Take hold of a state directory to read it, whosever it is unless `app` says so; MP807 when there is none."""
    if not (path / IDENTITY).is_file():
        hint = "Run the app first (millpond run FILE), or name its state directory with --state."
        raise StateError("MP807", f"There is no state in {path}.", hint=hint)
    return _hold(path.absolute(), app)


def _hold(path: Path, app: str | None) -> StateFolder:
    try:
        lock = os.open(path / LOCK, os.O_RDWR | os.O_CREAT, 0o600)
    except OSError as error:
        raise _unusable(path, error) from error
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        identity = _identify(path, app)
        os.ftruncate(lock, 0)
        os.write(lock, str(os.getpid()).encode())
        shutil.rmtree(path / "exchange", ignore_errors=True)
    except BlockingIOError:
        holder = os.read(lock, 32).decode("ascii", "replace").strip()
        os.close(lock)
        who = f" (process {holder})" if holder else ""
        hint = "Stop it, or use another directory with --state. To read its tables: millpond query."
        raise StateError("MP801", f"The state directory {path} is in use{who}.", hint=hint) from None
    except OSError as error:
        os.close(lock)
        raise _unusable(path, error) from error
    except StateError:
        os.close(lock)
        raise
    return StateFolder(path, lock, *identity)


def _identify(path: Path, app: str | None) -> tuple[str, bool]:
    """Whose it is, and whether its tables have been made."""
    file = path / IDENTITY
    if not file.exists() and app is not None:
        others = [entry.name for entry in path.iterdir() if entry.name != LOCK]
        if others:
            hint = "Give an empty or new directory with --state."
            raise StateError("MP802", f"{path} is not a state directory: it holds {sorted(others)[0]}.", hint=hint)
        write_safely(file, json.dumps({"format": FORMAT, "app": app}))
        return app, False
    try:
        found = json.loads(file.read_text("utf-8"))
        app_found, format_found = str(found["app"]), int(found["format"])
    except (ValueError, KeyError, TypeError) as error:
        hint = "Restore it from a copy, or start over with another --state."
        raise StateError("MP804", f"{file} cannot be read.", hint=hint) from error
    if format_found != FORMAT:
        message = f"The state directory {path} has format {format_found}, and this version reads {FORMAT}."
        raise StateError(
            "MP803", message, hint="Use the version of Millpond that wrote it, or start over with another --state."
        )
    if app is not None and app_found != app:
        message = f"The state directory {path} belongs to the app '{app_found}', and this is '{app}'."
        raise StateError("MP802", message, hint="Give this app its own directory with --state.")
    begun = found.get(BEGUN) is True
    if begun and not any((path / STORE).glob("log-*")) and not any((path / STORE).glob("*.*")):
        hint = "Restore it from a copy, or start over with another --state."
        raise StateError("MP804", f"{path / STORE} is missing or empty: the tables were in it.", hint=hint)
    return app_found, begun


def _unusable(path: Path, error: OSError) -> StateError:
    if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EROFS):
        hint = "Make room, or use another directory with --state."
        return StateError("MP805", f"{path} cannot be written: {error.strerror}.", hint=hint)
    hint = "Check that it is a directory that you may write, or use another one with --state."
    return StateError("MP804", f"{path} cannot be used as a state directory: {error.strerror}.", hint=hint)
