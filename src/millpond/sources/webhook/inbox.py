"""The inbox of a webhook: requests in an append-only log, durable before they are answered.

Group commit: while one group is written and synced, the requests that arrive meanwhile make up the next, which costs
one sync however many they are. A group is one frame: its size and checksum, a line of JSON about it, and the records as
lines. A frame that a crash cut short was never answered, and is removed.
"""

from __future__ import annotations

import hashlib
import json
import os
import struct
import threading
import time
import zlib
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from millpond.disk import append_all, cut, disk_errors, make_folder, replace_file, sync_folder
from millpond.errors import StateError
from millpond.faults import reach

FRAME = struct.Struct("<II")
ENDING = ".log"
IDS = "ids.jsonl"
# A log file that is larger is followed by a new one, and removed when all of it was read.
SEGMENT_BYTES = 64 << 20
# Records of one group; the requests behind them wait for the next.
GROUP_BYTES_MAX = 16 << 20
# How long an id of a request is remembered, and how many are at most; the oldest are forgotten first.
IDS_S, IDS_MAX = 86_400.0, 1_000_000
HINT = "Restore the state directory from a copy, or start again with another --state."


@dataclass(frozen=True)
class Spot:
    """A place in the log."""

    segment: int = 1
    offset: int = 0


@dataclass(frozen=True)
class Group:
    """Records that were written together, each with its line end, and the place behind them."""

    lines: list[bytes]
    behind: Spot


@dataclass
class Request:
    """Records of one request on their way to the disk; `done` is set to True, or to False for a repeated id."""

    lines: list[bytes]
    id: str | None = None
    done: Future[bool] = field(default_factory=Future)


class Inbox:
    """One folder. `put` comes from any thread, `groups` and `forget` from one."""

    def __init__(self, folder: Path, read: Spot, clock: Callable[[], float] = time.time) -> None:
        """`read` is the place up to which all was read for good."""
        self._folder, self._clock = make_folder(folder), clock
        self._lock = threading.Lock()
        self._queue: list[Request] = []
        self._is_writing = False
        self._writers = ThreadPoolExecutor(1, thread_name_prefix="webhook-inbox")
        # Ids by when they came, oldest first; those on their way to the disk apart.
        self._ids = dict(self._stored_ids())
        self._arriving: dict[str, Future[bool]] = {}
        self.rows = 0
        self._end = self._recover(read)

    def put(self, lines: list[bytes], id_: str | None) -> Future[bool]:
        """Store records; the result comes when they are durable: False if a request of this id was stored before."""
        named = None if id_ is None else hashlib.blake2b(id_.encode("utf-8", "replace"), digest_size=16).hexdigest()
        with self._lock:
            if named is not None and named in self._arriving:
                return self._arriving[named]
            request = Request(lines, named)
            if named is not None and self._clock() - self._ids.get(named, float("-inf")) < IDS_S:
                request.done.set_result(False)
                return request.done
            if named is not None:
                self._arriving[named] = request.done
            self._queue.append(request)
            self.rows += len(lines)
            if not self._is_writing:
                self._is_writing = True
                self._writers.submit(self._write_all)
        return request.done

    def _write_all(self) -> None:
        while group := self._next_group():
            at = self._clock()
            try:
                self._write(group, at)
                failed = None
            except BaseException as error:
                failed = error
            with self._lock:
                for request in group:
                    if request.id is not None:
                        del self._arriving[request.id]
                        if failed is None:
                            self._remember(request.id, at)
                if failed is not None:
                    self.rows -= sum(len(request.lines) for request in group)
                self._forget_ids(at)
            for request in group:
                if failed is None:
                    request.done.set_result(True)
                else:
                    request.done.set_exception(failed)

    def _next_group(self) -> list[Request]:
        with self._lock:
            size = count = 0
            for request in self._queue:
                size += sum(map(len, request.lines))
                count += 1
                if size > GROUP_BYTES_MAX:
                    break
            group, self._queue = self._queue[:count], self._queue[count:]
            self._is_writing = bool(group)
            return group

    def _write(self, group: list[Request], at: float) -> None:
        lines = [line for request in group for line in request.lines]
        about = {"at": at, "ids": [request.id for request in group if request.id is not None], "rows": len(lines)}
        body = b"".join([json.dumps(about).encode() + b"\n", *lines])
        spot = self._end if self._end.offset <= SEGMENT_BYTES else Spot(self._end.segment + 1)
        path = self._path(spot.segment)
        with disk_errors(path):
            file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
            try:
                written = append_all(file, spot.offset, [FRAME.pack(len(body), zlib.crc32(body)), body])
                reach("inbox.written")
                os.fsync(file)
            except OSError:
                os.ftruncate(file, spot.offset)
                raise
            finally:
                os.close(file)
            if spot.offset == 0:
                sync_folder(self._folder)
        reach("inbox.synced")
        self._end = Spot(spot.segment, spot.offset + written)

    def groups(self, spot: Spot) -> Iterator[Group]:
        """What is durable behind a place."""
        end = self._end
        while spot != end:
            if not self._path(spot.segment).exists() and spot.segment < end.segment:
                spot = Spot(spot.segment + 1)
                continue
            for _, lines, behind in self._frames(spot, end):
                yield Group(lines, behind)
                spot = behind
            if spot.segment < end.segment:
                spot = Spot(spot.segment + 1)
            elif spot != end:
                raise StateError("MP804", f"{self._path(spot.segment)} is damaged.", hint=HINT)

    def _frames(self, spot: Spot, end: Spot | None) -> Iterator[tuple[dict[str, Any], list[bytes], Spot]]:
        """The frames of one file; up to `end` if that is in it."""
        with self._path(spot.segment).open("rb") as file:
            file.seek(spot.offset)
            while end is None or spot.segment != end.segment or file.tell() < end.offset:
                head = file.read(FRAME.size)
                size, checksum = FRAME.unpack(head) if len(head) == FRAME.size else (0, 0)
                body = file.read(size)
                if not size or len(body) < size or zlib.crc32(body) != checksum:
                    return
                about, _, rest = body.partition(b"\n")
                yield json.loads(about), rest.splitlines(keepends=True), Spot(spot.segment, file.tell())

    def forget(self, spot: Spot) -> None:
        """All before a place was read for good; files that have nothing else are removed."""
        for number in self._segments():
            if number < spot.segment:
                self._store_ids()
                with disk_errors(self._path(number)):
                    self._path(number).unlink()

    def taken(self, rows: int) -> None:
        """So many rows wait here no longer."""
        with self._lock:
            self.rows -= rows

    def _recover(self, read: Spot) -> Spot:
        """Where the log ends; what a crash cut short is removed. MP804 when it is damaged elsewhere."""
        end = Spot(read.segment + 1) if read.offset else read
        segments = self._segments()
        for number in segments:
            end = Spot(number)
            for about, _, behind in self._frames(end, None):
                self.rows += about["rows"] if (end.segment, end.offset) >= (read.segment, read.offset) else 0
                end = behind
                for named in about["ids"]:
                    self._remember(named, about["at"])
            self._require_torn(end, is_last=number == segments[-1])
        if (end.segment, end.offset) < (read.segment, read.offset):
            raise StateError("MP804", f"{self._path(read.segment)} is incomplete.", hint=HINT)
        self._forget_ids(self._clock())
        return end

    def _remember(self, named: str, at: float) -> None:
        """The newest come last."""
        self._ids.pop(named, None)
        self._ids[named] = at

    def _require_torn(self, end: Spot, *, is_last: bool) -> None:
        path = self._path(end.segment)
        size = path.stat().st_size
        if size == end.offset:
            return
        with path.open("rb+") as file:
            file.seek(end.offset)
            head = file.read(FRAME.size)
            length = FRAME.unpack(head)[0] if len(head) == FRAME.size else 0
            if not is_last or (length and end.offset + FRAME.size + length < size):
                raise StateError("MP804", f"{path} is damaged after byte {end.offset:,}.", hint=HINT)
            with disk_errors(path):
                cut(file.fileno(), end.offset)

    def _forget_ids(self, now: float) -> None:
        for named in list(self._ids)[: max(len(self._ids) - IDS_MAX, 0)]:
            del self._ids[named]
        while self._ids and now - next(iter(self._ids.values())) >= IDS_S:
            del self._ids[next(iter(self._ids))]

    def _stored_ids(self) -> Iterator[tuple[str, float]]:
        """Those of requests whose part of the log was removed."""
        path = self._folder / IDS
        if path.exists():
            for line in path.read_bytes().splitlines():
                named, at = json.loads(line)
                yield named, at

    def _store_ids(self) -> None:
        with self._lock:
            lines = [json.dumps([named, at]).encode() + b"\n" for named, at in self._ids.items()]
        if lines:
            replace_file(
                self._folder / IDS, lambda out: out.write(b"".join(lines)), "inbox.ids", "The ids cannot be written"
            )

    def _segments(self) -> list[int]:
        return sorted(int(path.stem) for path in self._folder.glob(f"*{ENDING}"))

    def _path(self, segment: int) -> Path:
        return self._folder / f"{segment:08d}{ENDING}"
