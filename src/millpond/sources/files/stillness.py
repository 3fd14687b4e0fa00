"""Since when a file has not changed, as seen by whoever looks at it."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from millpond.sources.files.positions import Seen

# A CSV row that no newline follows counts as ended when its file has been still for this long.
UNENDED_S = 10.0

Clock = Callable[[], float]


class Stillness:
    """Tells files that have been still for a while from those that are being written."""

    def __init__(self, wait_s: float, clock: Clock) -> None:
        self._wait_s, self._clock = wait_s, clock
        self._since: dict[str, tuple[Seen, float]] = {}

    def is_still(self, file: Seen) -> bool:
        """Whether the file is as it was when it was asked about this long ago."""
        now = self._clock()
        before, since = self._since.get(file.path, (None, now))
        if before != file:
            self._since[file.path], since = (file, now), now
        return now - since >= self._wait_s

    def keep(self, files: Iterable[Seen]) -> None:
        """Forget all other files."""
        self._since = {file.path: self._since[file.path] for file in files if file.path in self._since}
