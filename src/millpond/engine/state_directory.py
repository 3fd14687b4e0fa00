"""The state directory of an app: its lock, its identity, and the locations in it."""

from __future__ import annotations

import errno
import fcntl
import os
import secrets
import shutil
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from millpond.disk import PRIVATE_FOLDER, disk_errors, make_folder, read_sealed, sync_folder, write_sealed
from millpond.errors import StateError
from millpond.settings import Settings, environment_name

FORMAT = 2
IDENTITY = "app.json"
LOCK = "lock"
STORE = "store"
# Set in the identity when the tables have been created, so that their absence is not taken for a new directory.
BEGUN = "begun"
# The columns found in sources, by source id; stored here because a plan needs them before the store is opened.
COLUMNS = "columns"
# Definitions that were added to those of the app's file.
ADDED = "added"
RESTORE = "Restore it from a copy, or start again with another --state."
# Not needed after a restart: tables transferred to Spark, and Spark's temporary files.
EXCHANGE, SPARK = "exchange", "spark"
# The length of the id, sufficient to be unique among the state directories of a machine.
ID_BYTES = 4


def default_state(sql_file: Path) -> Path:
    """`.millpond/<file name without .sql>` beside the SQL file."""
    return sql_file.resolve().parent / ".millpond" / sql_file.stem


@dataclass
class StateFolder:
    """A state directory that is locked by this process until `close`."""

    path: Path
    _lock: int
    # The id of the directory, which never changes; it is part of names elsewhere, such as the files of a sink.
    id: str = ""
    _begun: bool = False
    # A folder that executors of a cluster can read and write too.
    storage: Path | None = None

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
        """Tables transferred to Spark."""
        return (self.path if self.storage is None else self.storage) / EXCHANGE

    @property
    def spark_files(self) -> Path:
        """Spark's temporary files."""
        return self.path / SPARK

    def flow(self, flow_id: str) -> Path:
        return self.path / "flows" / flow_id

    def load(self, table: str) -> Path:
        return self.path / "loads" / table

    def use_storage(self, storage: Path) -> None:
        """Use a folder that the executors share, with a folder of this state directory's own in it."""
        self.storage = storage / self.id
        with disk_errors(self.storage):
            self.storage.mkdir(parents=True, exist_ok=True)
            shutil.rmtree(self.exchange, ignore_errors=True)
            self.exchange.mkdir()

    def storage_failure(self) -> StateError | None:
        """Why the storage cannot be used now; None if it can, or if there is none."""
        if self.storage is None:
            return None
        try:
            os.scandir(self.exchange).close()
        except OSError as error:
            message = f"The storage {self.storage} cannot be read: {error.strerror}."
            return StateError("MP817", message, hint="The batch is repeated when it can be; check that it is mounted.")
        return None

    def share(self, folder: Path, names: Sequence[str]) -> None:
        """Make folders within a folder links to the storage, if there is one; what they already contain is moved."""
        if self.storage is None:
            return
        for name in names:
            link, target = folder / name, self.storage / folder.relative_to(self.path) / name
            with disk_errors(target):
                target.mkdir(parents=True, exist_ok=True)
                if link.is_symlink():
                    continue
                make_folder(folder)
                if link.exists():
                    for found in link.iterdir():
                        shutil.move(found, target / found.name)
                    link.rmdir()
                link.symlink_to(target, target_is_directory=True)
                sync_folder(folder)

    def begin(self) -> None:
        """Called when the tables have been opened: from now on their absence is damage."""
        if not self._begun:
            self._begun = True
            amend_identity(self.path, {BEGUN: True})

    def close(self) -> None:
        """Unlock the directory."""
        if self._lock >= 0:
            _clear(self.path)
            os.close(self._lock)
            self._lock = -1


def open_state(path: Path, app: str) -> StateFolder:
    """Lock a state directory, which is created if necessary.

    MP801 if another process uses it, MP802 if it belongs to another app, MP803 if another version wrote it."""
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
    """The state directory of a file: the given one, else that of the setting `state`, else the default. A path in
    millpond.toml is relative to the folder of that file, one in the environment to the working directory."""
    setting = settings.found["state"]
    if given is not None:
        return Path(given)
    if not setting.value:
        return default_state(sql_file)
    path = Path(setting.value).expanduser()
    return path if setting.origin == environment_name("state") else sql_file.resolve().parent / path


def open_existing(path: Path, app: str | None = None) -> StateFolder:
    """Lock a state directory to read it, of any app unless `app` is given; MP807 if there is none."""
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
    """MP801 with the process that uses a directory, if that is known."""
    who = f" (process {holder})" if holder else ""
    hint = "Stop it, or use another directory with --state. To read its tables: millpond query."
    return StateError("MP801", f"The state directory {path} is in use{who}.", hint=hint)


def _clear(path: Path) -> None:
    """Remove what is not needed after a restart, except files that a Spark session of this process uses."""
    shutil.rmtree(path / EXCHANGE, ignore_errors=True)
    if not _is_locked(path / SPARK / LOCK):
        shutil.rmtree(path / SPARK, ignore_errors=True)


def remove_temporary(path: Path) -> None:
    """Remove a temporary state directory, except files that a Spark session of this process uses."""
    for entry in path.iterdir() if path.is_dir() else ():
        if entry.name == SPARK and _is_locked(entry / LOCK):
            continue
        shutil.rmtree(entry, ignore_errors=True) if entry.is_dir() else entry.unlink(missing_ok=True)
    with suppress(OSError):
        path.rmdir()


def _is_locked(file: Path) -> bool:
    """Whether any process, including this one, has locked a file."""
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
    """The identity of a state directory, readable before its store is opened; empty for a new one. MP804 if it is
    damaged."""
    try:
        found = read_sealed(path / IDENTITY, RESTORE)
    except FileNotFoundError:
        return {}
    return dict(found)


def amend_identity(path: Path, changes: dict[str, Any]) -> None:
    """Change what `identity_of` returns; called by the process that has locked the directory."""
    write_sealed(path / IDENTITY, {**identity_of(path), **changes})


def _identify(path: Path, app: str | None) -> tuple[str, bool]:
    """The id of the directory, and whether its tables have been created."""
    file = path / IDENTITY
    if not file.exists():
        return _claim(path, app), False
    found = identity_of(path)
    if found["format"] != FORMAT:
        message = f"The state directory {path} has format {found['format']}, but this version reads {FORMAT}."
        raise StateError(
            "MP803", message, hint="Use the version of Millpond that wrote it, or start again with another --state."
        )
    if app is not None and found["app"] != app:
        message = f"The state directory {path} belongs to the app '{found['app']}', but this is '{app}'."
        raise StateError("MP802", message, hint="Give this app its own directory with --state.")
    begun = found.get(BEGUN) is True
    if begun and not any((path / STORE).glob("log-*")) and not any((path / STORE).glob("*.*")):
        raise StateError("MP804", f"{path / STORE} is missing or empty: the tables were in it.", hint=RESTORE)
    return found["id"], begun


def _claim(path: Path, app: str | None) -> str:
    """Make an empty directory the state directory of an app; returns its id."""
    others = sorted(entry.name for entry in path.iterdir() if entry.name != LOCK)
    if STORE in others:
        message = f"{path / IDENTITY} is missing: it contains the name of the app that owns these tables."
        raise StateError("MP804", message, hint=RESTORE)
    if others or app is None:
        hint = "Use an empty or new directory with --state."
        raise StateError("MP802", f"{path} is not a state directory: it contains {(*others, 'nothing')[0]}.", hint=hint)
    id_ = secrets.token_hex(ID_BYTES)
    path.chmod(PRIVATE_FOLDER)
    write_sealed(path / IDENTITY, {"format": FORMAT, "app": app, "id": id_})
    return id_


def _unusable(path: Path, error: OSError) -> StateError:
    if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EROFS):
        hint = "Free some space, or use another directory with --state."
        return StateError("MP805", f"{path} cannot be written: {error.strerror}.", hint=hint)
    hint = "Check that it is a directory that you can write to, or use another one with --state."
    return StateError("MP804", f"{path} cannot be used as a state directory: {error.strerror}.", hint=hint)
