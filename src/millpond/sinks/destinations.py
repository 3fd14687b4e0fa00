"""Where a file sink shows its files: a folder on this machine. Others have the same methods."""

from __future__ import annotations

from pathlib import Path
from typing import Protocol

from millpond.disk import sync_folder
from millpond.errors import SinkError


class Destination(Protocol):
    """Where complete files go. Used by one thread at a time."""

    # A folder on this machine for files that are not shown yet; it outlives the process.
    staging: Path

    def show(self, file: Path, name: str) -> None:
        """Make a complete file of the staging folder visible under a name, which may begin with folders, and remove it
        from there. Called again after a crash if it was not removed."""

    def settle(self) -> None:
        """What was shown is durable when this returns."""


class LocalFolder:
    """A folder; the staging folder is in it, so that a rename shows a file."""

    def __init__(self, folder: Path, staging: Path) -> None:
        self.folder, self.staging = folder, staging
        self._unsynced: set[Path] = set()

    def show(self, file: Path, name: str) -> None:
        final = self.folder / name
        if final.exists():
            # Our own file would not be staged any more.
            message = f"{final} already exists: a copy of this state directory has written it."
            hint = "Use a new state directory instead of a copy, or write to another folder."
            raise SinkError("MP601", message, hint=hint)
        if final.parent != self.folder:
            final.parent.mkdir(parents=True, exist_ok=True)
            self._unsynced |= {folder for folder in final.parents if folder.is_relative_to(self.folder)}
        file.replace(final)
        self._unsynced.add(final.parent)

    def settle(self) -> None:
        for folder in sorted({self.folder, *self._unsynced}):
            sync_folder(folder)
        self._unsynced.clear()
