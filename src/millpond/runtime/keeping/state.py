"""The state directory of an app: who holds it, whose it is, and where things lie in it."""

from __future__ import annotations

import errno
import fcntl
import os
import secrets
import shutil
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from millpond.disk import PRIVATE_FOLDER, make_folder
from millpond.errors import StateError
from millpond.settings import Settings, environment_name
from millpond.small_files import read_sealed, write_sealed

FORMAT = 2
IDENTITY = "app.json"
LOCK = "lock"
STORE = "store"
# In the identity when the tables have been made, so that nobody takes their absence for a new directory.
BEGUN = "begun"
# The columns found in sources, by the ids of these: here because a plan needs them before the store is opened.
COLUMNS = "columns"
RESTORE = "Restore it from a copy, or start over with another --state."
# Of no use after a restart: tables on their way to Spark, and Spark's own temporary files.
EXCHANGE, SPARK = "exchange", "spark"
# Letters of the identity: enough that no two state directories of a machine have the same.
ID_BYTES = 4


def default_state(sql_file: Path) -> Path:
    """`.millpond/<file name without .sql>` beside the SQL file."""
    return sql_file.resolve().parent / ".millpond" / sql_file.stem


@dataclass
class StateFolder:
    """A state directory held by this process until `close`."""

    path: Path
    _lock: int
    # Names this directory in what is written elsewhere, such as the files of a sink; the same for ever.
    id: str = ""
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
        """Tables on their way to Spark."""
        return self.path / EXCHANGE

    @property
    def spark_files(self) -> Path:
        """Spark's own temporary files."""
        return self.path / SPARK

    def flow(self, flow_id: str) -> Path:
        return self.path / "flows" / flow_id

    def load(self, table: str) -> Path:
        return self.path / "loads" / table

    def begin(self) -> None:
        """Called when its tables were opened: from now on they must be there."""
        if not self._begun:
            self._begun = True
            amend_identity(self.path, {BEGUN: True})

    def close(self) -> None:
        """Release the directory."""
        if self._lock >= 0:
            _clear(self.path)
            os.close(self._lock)
            self._lock = -1


def open_state(path: Path, app: str) -> StateFolder:
    """Take hold of a state directory, made if need be.

    MP801 when another process holds it, MP802 when another app wrote it, MP803 when another version did."""
    path = path.absolute()
    try:
        make_folder(path)
        if not path.is_dir():
            raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR))
    except StateError as error:
        cause = error.__cause__
        assert isinstance(cause, OSError)
        raise _unusable(path, cause) from error
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
    if not (path / IDENTITY).is_file() and not (path / STORE).is_dir():
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
        _clear(path)
    except BlockingIOError:
        holder = os.read(lock, 32).decode("ascii", "replace").strip()
        os.close(lock)
        raise in_use(path, holder) from None
    except OSError as error:
        os.close(lock)
        raise _unusable(path, error) from error
    except StateError:
        os.close(lock)
        raise
    return StateFolder(path, lock, *identity)


def in_use(path: Path, holder: str) -> StateError:
    """MP801 with the process that holds a directory, if that is known."""
    who = f" (process {holder})" if holder else ""
    hint = "Stop it, or use another directory with --state. To read its tables: millpond query."
    return StateError("MP801", f"The state directory {path} is in use{who}.", hint=hint)


def _clear(path: Path) -> None:
    """Remove what is of no use after a restart; Spark's files stay while a session of this process uses them."""
    shutil.rmtree(path / EXCHANGE, ignore_errors=True)
    if not _is_locked(path / SPARK / LOCK):
        shutil.rmtree(path / SPARK, ignore_errors=True)


def remove_temporary(path: Path) -> None:
    """Remove a state directory that nobody named, but for what a session of this process still uses."""
    for entry in path.iterdir() if path.is_dir() else ():
        if entry.name == SPARK and _is_locked(entry / LOCK):
            continue
        shutil.rmtree(entry, ignore_errors=True) if entry.is_dir() else entry.unlink(missing_ok=True)
    with suppress(OSError):
        path.rmdir()


def _is_locked(file: Path) -> bool:
    """Whether a process has a lock on a file, this one too."""
    try:
        descriptor = os.open(file, os.O_RDWR | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(descriptor)
    return False


def identity_of(path: Path) -> dict[str, Any]:
    """What is known of a state directory before its store is opened; empty for one that is new. MP804 when it is
    damaged."""
    try:
        found = read_sealed(path / IDENTITY, RESTORE)
    except FileNotFoundError:
        return {}
    return dict(found)


def amend_identity(path: Path, changes: dict[str, Any]) -> None:
    """Change what `identity_of` returns; called by the process that holds the directory."""
    write_sealed(path / IDENTITY, {**identity_of(path), **changes})


def _identify(path: Path, app: str | None) -> tuple[str, bool]:
    """Its id, and whether its tables have been made."""
    file = path / IDENTITY
    if not file.exists():
        return _claim(path, app), False
    found = identity_of(path)
    if found["format"] != FORMAT:
        message = f"The state directory {path} has format {found['format']}, and this version reads {FORMAT}."
        raise StateError(
            "MP803", message, hint="Use the version of Millpond that wrote it, or start over with another --state."
        )
    if app is not None and found["app"] != app:
        message = f"The state directory {path} belongs to the app '{found['app']}', and this is '{app}'."
        raise StateError("MP802", message, hint="Give this app its own directory with --state.")
    begun = found.get(BEGUN) is True
    if begun and not any((path / STORE).glob("log-*")) and not any((path / STORE).glob("*.*")):
        raise StateError("MP804", f"{path / STORE} is missing or empty: the tables were in it.", hint=RESTORE)
    return found["id"], begun


def _claim(path: Path, app: str | None) -> str:
    """Make an empty directory that of an app; returns its id."""
    others = sorted(entry.name for entry in path.iterdir() if entry.name != LOCK)
    if STORE in others:
        message = f"{path / IDENTITY} is missing: it names the app whose tables these are."
        raise StateError("MP804", message, hint=RESTORE)
    if others or app is None:
        hint = "Give an empty or new directory with --state."
        raise StateError("MP802", f"{path} is not a state directory: it holds {(*others, 'nothing')[0]}.", hint=hint)
    id_ = secrets.token_hex(ID_BYTES)
    path.chmod(PRIVATE_FOLDER)
    write_sealed(path / IDENTITY, {"format": FORMAT, "app": app, "id": id_})
    return id_


def _unusable(path: Path, error: OSError) -> StateError:
    if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EROFS):
        hint = "Make room, or use another directory with --state."
        return StateError("MP805", f"{path} cannot be written: {error.strerror}.", hint=hint)
    hint = "Check that it is a directory that you may write, or use another one with --state."
    return StateError("MP804", f"{path} cannot be used as a state directory: {error.strerror}.", hint=hint)
