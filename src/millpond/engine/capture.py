"""Tables that follow the changes of a database: a snapshot, then every transaction as one commit."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, suppress
from typing import Any

from millpond.contracts.changes import (
    NOT_POSSIBLE,
    POSITION_GONE,
    Altered,
    Capture,
    Changes,
    ChangeSource,
    Committed,
    Following,
    LogLag,
    Snapshot,
    Truncated,
    starts_empty,
)
from millpond.contracts.feeder import Content, Position
from millpond.contracts.source import Progress, SourcePlugin, SourceStatus
from millpond.engine.app_context import Context
from millpond.engine.availability import UNREACHABLE, SourceOpening
from millpond.engine.change_rows import ChangedTable
from millpond.engine.dead_letters import NAME as DEAD_LETTERS
from millpond.engine.feeds.change_spool import ChangeSpool
from millpond.engine.ledger import CAPTURE, LOAD
from millpond.engine.load import Loaded, Loader
from millpond.engine.progress import FAILED, LOADING, READY, RETRYING, STALE, LoadProgress
from millpond.engine.spark.spark_errors import translate
from millpond.engine.spark.transfer import Views
from millpond.engine.table_changes import announce, publish
from millpond.engine.work import Work
from millpond.errors import MillpondError, Problem, Severity, SourceError
from millpond.faults import reach
from millpond.plan.model import TablePlan
from millpond.registry import find

# Transactions are put together into one commit of ours up to this many rows, or for this long.
ROWS_MAX = 100_000
GATHERED_S = 0.05
# How long to wait for an event before looking whether the app stops.
WAIT_S = 0.1
DELAY_S = 2.0
# How often a position without changes is stored. Only stored positions are acknowledged: a slot that is further was
# read by another app.
REMEMBERED_S = 10.0


class CapturedLoader(Loader):
    """One table of a capture; its group does the work for all of them."""

    def __init__(self, plan: TablePlan, context: Context, group: CaptureGroup) -> None:
        super().__init__(plan, context)
        self.group = group
        self.progress: Progress = Progress()
        group.members.append(self)

    @property
    def is_due(self) -> bool:
        """Its changes come by themselves; one that could not begin is tried again."""
        if self.group.polls:
            return super().is_due
        return self.group.is_down and not self.is_pending and self._clock() >= self._next_look

    def _load_if_changed(self) -> None:
        if not self.group.polls:
            self.group.bring_up(self)
        if self.group.polls:
            super()._load_if_changed()

    def follow(self) -> None:
        self.group.follow()

    def close(self) -> None:
        super().close()
        self.group.close()

    def begins(self) -> None:
        """Its snapshot is about to be read."""
        self._began, self._ended, self._rows_read = self._clock(), None, 0

    def load_progress(self) -> LoadProgress | None:
        if self.group.polls:
            return super().load_progress()
        if self._began is None:
            return None
        seconds = max((self._ended or self._clock()) - self._began, 0.001)
        rate = self._rows_read / seconds
        return LoadProgress(self._rows_read, self.progress.total, "rows", self._rows_read, rate, None)

    def fill(self, snapshot: Snapshot) -> None:
        """Load the table from a snapshot, and remember where that was."""
        mark = {"position": snapshot.position}
        content = Content(snapshot.read(self.source.id), mark=lambda: mark)
        self._become(self.state if self.state in (READY, STALE) else LOADING)
        self._load(snapshot.form(self.source.id), content, None, self._loaded())

    @property
    def snapshot_position(self) -> Position | None:
        """Where its snapshot was taken."""
        loaded = self._loaded()
        return None if loaded is None or loaded.mark is None else loaded.mark["position"]

    def status(self) -> SourceStatus:
        return super().status() if self.group.polls else self.group.status(self)

    def become(self, state: str, error: MillpondError | None) -> None:
        """Its state as its group is; what was loaded before stays usable."""
        usable = state == READY or self._was_loaded()
        self._become(state if usable or state != STALE else FAILED)
        self.error = error


class CaptureGroup:
    """The captured tables of one server. Brought up by the starting thread; then one thread of its own follows."""

    def __init__(self, key: str, context: Context, clock: Callable[[], float] = time.monotonic) -> None:
        self.key, self._context, self._clock = key, context, clock
        self.members: list[CapturedLoader] = []
        self._source: ChangeSource | None = None
        self._following: Following | None = None
        # Where it is in this run: further than what is remembered where nothing happened to its tables.
        self._reached: Position | None = None
        self._thread: threading.Thread | None = None
        self._closing = threading.Event()
        # Held while something is committed, and by work that must not be interrupted.
        self.turn = threading.Lock()
        self._retries = 0
        self._remembered_at = clock()
        self.is_down = True
        # Whether changes cannot be captured, and the tables are read again and compared instead.
        self.polls = False
        self._views = Views(context.spark, context.exchange, f"mp_capture_{abs(hash(key)) % 10**8}")

    @property
    def _plugin(self) -> SourcePlugin:
        return find("source", self.members[0].source.type)

    @property
    def _position(self) -> Position | None:
        return self._context.store.get(CAPTURE + self.key)

    def bring_up(self, asking: CapturedLoader) -> None:
        """Open the server, load the tables that are new, and take what was committed until now; once for all members.
        A failure is kept in their `error`, never raised."""
        if not self.is_down:
            return
        try:
            source = asking.opening.attempt(self._opened)
            if source is None:
                self._all_become(RETRYING, None)
                return
            self._source = source
            if any(m.plan.name.lower() in self._context.held for m in self.members):
                return
            self._load(source)
            self._catch_up(source)
            self.is_down = False
            self._all_become(READY, None)
        except Exception as error:
            self._let_go()
            if not self._falls_back(error):
                self._all_become(STALE, translate(error, asking.plan.place))

    def _falls_back(self, error: Exception) -> bool:
        """Whether tables whose changes cannot be captured are polled."""
        impossible = isinstance(error, SourceError) and error.code == NOT_POSSIBLE
        if not impossible or self._values("cdc.fallback") != "poll":
            return False
        assert isinstance(error, SourceError)
        problem = error.problems[0]
        message = f"{problem.message} It is read again and compared instead."
        self._context.notices.append(Problem(NOT_POSSIBLE, message, None, problem.hint, Severity.WARNING))
        self.polls = True
        for member in self.members:
            member.opening = SourceOpening(member.source)
        return True

    def _opened(self) -> ChangeSource:
        assert self._plugin.open_changes is not None
        return self._plugin.open_changes(
            Capture(self._context.owner, {m.source.id: m.source.spec for m in self.members})
        )

    def _all_become(self, state: str, error: MillpondError | None) -> None:
        for member in self.members:
            member.become(state, error)

    def _load(self, source: ChangeSource, *, again: bool = False) -> None:
        """Snapshots: of all tables when the capture begins, else of those that are new. `again`: what was captured
        before is gone."""
        position = self._position
        wanted = [m for m in self.members if position is None or m.snapshot_position is None]
        empty = [m for m in wanted if starts_empty(m.source.spec.values)]
        loaded = [m for m in wanted if m not in empty]
        if loaded:
            with closing(source.snapshot([m.source.id for m in loaded], position)) as snapshot:
                for member in loaded:
                    member.progress = snapshot.progress(member.source.id)
                    member.begins()
                    member.fill(snapshot)
            reach("capture.loaded")
        if empty:
            started = source.start(latest=again or position is not None)
            self._start_empty(empty, snapshot.position if loaded else started)
        if wanted and position is None:
            with self._context.store.begin() as tx:
                tx.put(CAPTURE + self.key, snapshot.position if loaded else started)
                tx.commit()
        self._context.notices.extend(source.problems())

    def _start_empty(self, members: list[CapturedLoader], position: Position) -> None:
        """Tables whose existing rows are left out."""
        with self._context.store.begin() as tx:
            for member in members:
                tx.put(LOAD + member.plan.name.lower(), Loaded(None, {"position": position}).as_json())
            tx.commit()

    def _catch_up(self, source: ChangeSource) -> None:
        """Take what was committed until now; a position that is gone is given up for a new snapshot."""
        end = source.end()
        try:
            self._reached = self._position
            self._following = source.follow(self._reached)
            while not source.contains(self._reached, end) and not self._context.stopping.is_set():
                self._take(self._following)
            self._remember(self._following)
        except SourceError as error:
            if error.code != POSITION_GONE or self._values("cdc.lost") == "fail":
                raise
            self._snapshot_again(source, error)
            self._following = source.follow(self._position)

    def _remember(self, following: Following) -> None:
        """Store and acknowledge where it is, although nothing has happened to its tables since: an app may run for a
        moment only, again and again."""
        if self._reached == self._position:
            return
        with self._context.store.begin() as tx:
            tx.put(CAPTURE + self.key, self._reached)
            tx.commit()
        following.acknowledge(self._reached)

    def _values(self, name: str) -> Any:
        return self.members[0].source.spec.values.get(name)

    def _snapshot_again(self, source: ChangeSource, error: SourceError) -> None:
        hint = "What happened in between is in the tables; CHANGES and streams have it as one step."
        message = f"{error.problems[0].message} The tables are compared with a new snapshot."
        self._context.notices.append(Problem(POSITION_GONE, message, None, hint, Severity.WARNING))
        with self._context.store.begin() as tx:
            tx.put(CAPTURE + self.key, None)
            tx.commit()
        self._load(source, again=True)

    def follow(self) -> None:
        """Begin to follow, in a thread of its own; harmless where it does already."""
        if not self.is_down and self._thread is None:
            self._thread = self._context.supervisor.thread(f"capture-{self.members[0].source.name}", self._run)
            self._thread.start()

    def _run(self) -> None:
        delays: Iterator[float] | None = None
        while not self._is_ending():
            try:
                if self._source is None:
                    self._source = self._opened()
                if self._following is None:
                    self._following = self._source.follow(self._position)
                    self._all_become(READY, None)
                    delays = None
                self._take(self._following)
            except Exception as error:
                self._let_go()
                delays = delays or self._delays()
                if not self._goes_on(error, delays):
                    return

    def _goes_on(self, error: Exception, delays: Iterator[float]) -> bool:
        """Whether to follow again: what cannot be reached is tried again, what is gone is replaced by a snapshot."""
        problem = translate(error, self.members[0].plan.place)
        self._all_become(STALE, problem)
        if isinstance(problem, SourceError) and problem.code == POSITION_GONE and self._values("cdc.lost") != "fail":
            with suppress(MillpondError):
                self._source = self._opened()
                self._snapshot_again(self._source, problem)
                return True
        if problem.code not in UNREACHABLE:
            return False
        self._retries += 1
        self._closing.wait(next(delays))
        return True

    def _delays(self) -> Iterator[float]:
        patience = self._plugin.patience
        if patience is not None:
            return patience(self.members[0].source.spec).delays_s
        return iter(lambda: DELAY_S, None)

    def _is_ending(self) -> bool:
        return self._closing.is_set() or self._context.stopping.is_set()

    def _take(self, following: Following) -> None:
        """Take events until there are none, or enough; whole transactions are one commit."""
        with closing(ChangeSpool(self._context.state.exchange, self.key)) as spool:
            began = self._clock()
            wait_s = WAIT_S
            while (event := following.next(wait_s)) is not None:
                if isinstance(event, Committed):
                    spool.end(event.position)
                    if spool.rows >= ROWS_MAX or self._clock() - began >= GATHERED_S or self._is_ending():
                        break
                    wait_s = 0.0
                else:
                    spool.add(event)
                    # The rest of a transaction may take its time.
                    wait_s = WAIT_S
            while spool.is_open and not self._is_ending():
                if (event := following.next(WAIT_S)) is not None:
                    spool.end(event.position) if isinstance(event, Committed) else spool.add(event)
            if spool.position is not None and not spool.is_open:
                with self.turn:
                    is_stored = self._commit(spool)
                self._reached = spool.position
                if is_stored:
                    following.acknowledge(spool.position)

    def _commit(self, spool: ChangeSpool) -> bool:
        """One commit of ours for whole transactions; False if there was nothing to store yet."""
        tables: dict[str, list[CapturedLoader]] = {}
        for member in self.members:
            at = member.snapshot_position
            assert self._source is not None
            if at is None or not self._source.contains(at, spool.position):
                tables.setdefault(member.source.id, []).append(member)
        names = {m.plan.name for found in tables.values() for m in found}
        if not spool.has_any(tables) and self._clock() - self._remembered_at < REMEMBERED_S:
            # Only where the server's log is; the next commit brings it along.
            return False
        self._remembered_at = self._clock()
        locks = {DEAD_LETTERS, *names, *(view.name for view in self._context.views_of(names))}
        started = self._clock()
        with self._context.store.begin(locks=sorted(name.lower() for name in locks)) as tx:
            work = Work(self._context, tx, self._views)
            counts = self._apply(work, spool, tables)
            tx.put(CAPTURE + self.key, spool.position)
            work.refresh()
            staged = announce(work, f"capture {self.key}")
            reach("capture.applied")
            tx.commit()
        reach("capture.committed")
        publish(self._context, staged)
        for member, rows in counts.items():
            member.meter.add(rows, self._clock() - started)
        return True

    def _apply(
        self, work: Work, spool: ChangeSpool, tables: dict[str, list[CapturedLoader]]
    ) -> dict[CapturedLoader, int]:
        opened = {m: self._changed(work, m) for found in tables.values() for m in found}
        counts = dict.fromkeys(opened, 0)
        for event in spool.events():
            for member in tables.get(event.table, ()):
                if isinstance(event, Altered):
                    self._warn_once(event.problem)
                    continue
                rows = opened[member].apply(event) if isinstance(event, Changes) else opened[member].truncate()
                if rows or isinstance(event, Truncated):
                    work.mark_changed(member.plan.name)
                counts[member] += rows
        return counts

    def _changed(self, work: Work, member: CapturedLoader) -> ChangedTable:
        letters = self._context.letters_of(member.plan, member.source)
        return ChangedTable(work, member.plan, member.source, letters)

    def _warn_once(self, problem: Problem) -> None:
        if problem not in self._context.notices:
            self._context.notices.append(problem)

    def status(self, member: CapturedLoader) -> SourceStatus:
        """For SHOW SOURCES; callable from any thread."""
        following = self._following
        if member.is_pending:
            return member.opening.status()
        lag = following.lag() if following is not None else LogLag()
        error = member.error
        rows = member.meter.rows + member._rows_read
        return SourceStatus(
            member.state if error is not None else READY,
            "healthy" if error is None else "disconnected" if error.code in UNREACHABLE else "not_found",
            rows,
            retries=self._retries + member.opening.retries,
            detail="" if error is None else error.problems[0].message,
            lag_s=lag.seconds,
            updated_at=member.meter.updated_at,
            log_unread=lag.unread,
            log_kept=lag.kept,
        )

    def _let_go(self) -> None:
        for opened in (self._following, self._source):
            if opened is not None:
                with suppress(Exception):
                    opened.close()
        self._following = self._source = None

    def close(self) -> None:
        """Let the commit under way end, then stop following."""
        self._closing.set()
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join()
        self._let_go()


def is_captured(context: Context, table: TablePlan) -> bool:
    """Whether a table follows the changes of its source."""
    assert table.source is not None
    source = context.plan.source(table.source)
    plugin = find("source", source.type)
    return plugin.open_changes is not None and plugin.captures(source.spec.values)


def capture_loaders(context: Context, tables: Sequence[TablePlan]) -> list[Loader]:
    """The loaders of captured tables, those of one server in one group."""
    groups: dict[str, CaptureGroup] = {}
    found: list[Loader] = []
    for table in tables:
        assert table.source is not None
        source = context.plan.source(table.source)
        plugin = find("source", source.type)
        key = f"{source.type}:{plugin.capture_group(source.spec)}"
        found.append(CapturedLoader(table, context, groups.setdefault(key, CaptureGroup(key, context))))
    return found
