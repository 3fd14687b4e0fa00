"""One flow: a stream and the statements it drives, batch by batch."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from pyspark.sql import DataFrame
from pyspark.sql.streaming.query import StreamingQuery

from millpond.contracts.source import StreamReader
from millpond.disk import make_folder
from millpond.errors import FlowError, MillpondError
from millpond.faults import reach
from millpond.plan.model import FlowPlan, SourcePlan, TableKind
from millpond.registry import find
from millpond.runtime.context import Context
from millpond.runtime.figures.meter import Meter
from millpond.runtime.figures.progress import (
    FAILED,
    FINISHED,
    LOADING,
    READY,
    RETRYING,
    RUNNING,
    STALE,
    STOPPED,
    WAITING,
)
from millpond.runtime.flows.agreement import FORGOTTEN, SOURCE, require_together
from millpond.runtime.flows.batch import Batch, read_batch
from millpond.runtime.flows.checkpoint import feed_files, has_read
from millpond.runtime.flows.commits import Commits
from millpond.runtime.flows.epochs import Epoch, begin_anew, is_over
from millpond.runtime.flows.idle import Idle, closing
from millpond.runtime.flows.interruption import Interruption
from millpond.runtime.flows.joining import JoinReader
from millpond.runtime.flows.passing import reads_once
from millpond.runtime.flows.resuming import rebuild, require_sound, settle_batch, settle_state
from millpond.runtime.flows.staging import require_sinks
from millpond.runtime.flows.statements import Statements
from millpond.runtime.flows.waiting import LOOK_S, Waiting
from millpond.runtime.flows.watermark import Reached, moved
from millpond.runtime.keeping.ledger import disagreement
from millpond.runtime.loading.opening import Opening
from millpond.runtime.preparing import join_sides
from millpond.runtime.spark.access import Views
from millpond.runtime.spark.errors import is_gone
from millpond.runtime.spark.session import look_often
from millpond.runtime.views.announcing import publish


class Stopping(Exception):
    """Raised inside a batch that begins while the flow is being stopped: Spark runs it again at the next start."""


class Flow:
    """States: waiting | retrying -> running -> finished (caught up, `--once`) | stopped | failed. Batches come from one
    thread at a time; `stop` lets the batch under way end first."""

    def __init__(self, plan: FlowPlan, context: Context) -> None:
        self.plan = plan
        self.source: SourcePlan = context.plan.source(plan.source)
        self.state = WAITING
        self.error: MillpondError | None = None
        self.meter = Meter()
        self.reader: StreamReader | None = None
        # A reader that was opened, and handed records, before the columns of its source were known.
        self.handed: StreamReader | None = None
        self._context = context
        self._query: StreamingQuery | None = None
        self._views: Views | None = None
        self._gate = threading.Lock()
        self._stopping = False
        # While it catches up, nobody else polls it.
        self.goes_on = False
        self._fed = threading.Event()
        # Looks at the source that the poller has begun, and that it has ended.
        self.polls_begun = self.polls_ended = 0
        self._once = reads_once(plan)
        self.statements = Statements(plan, context)
        self.commits = Commits(plan, context, self.statements)
        # One at a time: a batch, or windows of a silent stream that close.
        self._turn = threading.Lock()
        self._idle = Idle(plan)
        self._waiting = Waiting(plan, context.store)
        self.opening = Opening(self.source)
        self.interruption = Interruption(self.source)
        self._resuming: threading.Thread | None = None
        self._epoch = Epoch()
        # The last batch that is in the tables, with its sinks published.
        self._last_done = -1

    @property
    def folder(self) -> str:
        return str(self._context.state.flow(self.plan.id))

    def open(self) -> bool:
        """Open the source, once; False while it is not there but looked for. Raises when it is not there, or when
        checkpoint and tables do not belong together."""
        if self.reader is not None:
            return True
        folder = make_folder(self._context.state.flow(self.plan.id))
        self._epoch = require_together(self.plan, self._context.store, folder)
        checkpoint, entry = folder / self._epoch.folder, self.commits.entry
        self._last_done = entry.batch
        if self.plan.join is not None:
            require_sound(checkpoint, entry, entry.batch)
            sides = join_sides(self._context, self.plan.join)
            self.reader = JoinReader(self._context, self.plan, sides)
            return True
        self.reader = self.opening.attempt(self._required)
        if self.reader is None:
            self.state = RETRYING
            self.tell_tables(RETRYING)
            return False
        self._resume_at(checkpoint, self.reader)
        self._idle.heard(entry.watermark)
        return True

    def _resume_at(self, checkpoint: Path, reader: StreamReader) -> None:
        """Make Spark's checkpoint say what the ledger says; MP809 when the source cannot go on from there."""
        folder, done = checkpoint.parent, self.commits.entry.batch + 1
        if reader.given is None:
            rebuild(checkpoint, self.commits.entry, done - 1)
        elif not reader.given.has(done):
            self.reader = None
            raise disagreement(self.plan, FORGOTTEN, folder / SOURCE)
        elif done or checkpoint.exists():
            self._epoch = begin_anew(self._context.store, self.plan.id, folder, reader.given)

    def _required(self) -> StreamReader:
        """The source's reader, if the source is there."""
        reader, plugin = self.opened(), find("source", self.source.type)
        if plugin.require is not None:
            plugin.require(reader, self._context.spark())
        return reader

    @property
    def is_pending(self) -> bool:
        """Whether its source is still looked for."""
        return self.opening.is_pending

    def tell_tables(self, state: str) -> None:
        """The tables that it keeps by their definition are as far as it is; what they hold already stays usable."""
        before = self.commits.entry.batch >= 0
        for step in self.plan.steps:
            table = self._context.plan.table(step.target)
            if table is not None and table.kind is TableKind.AGGREGATE:
                usable = before and state != READY
                self._context.table_states[table.name.lower()] = STALE if usable else state

    def opened(self) -> StreamReader:
        """The source's reader, without waiting until there is something to read."""
        before = self.reader or self.handed
        if before is not None:
            return before
        folder = self._context.state.flow(self.plan.id)
        reader: StreamReader = find("source", self.source.type).open_stream(self.source.spec, folder / "source")
        return reader

    @contextmanager
    def between_batches(self) -> Iterator[None]:
        """Inside, no batch runs; for work on the flow's tables that is no batch."""
        with self._turn:
            yield

    def catch_up(self, *, drain: bool) -> None:
        """Take what the source holds now, then return; `drain`: a bounded source gives all it has."""
        assert self.reader is not None
        self.state = RUNNING
        self.tell_tables(LOADING)
        try:
            self.reader.poll(final=drain)
        except MillpondError as error:
            self.fail(error)
            return
        self._context.notices.extend(self.reader.problems())
        self._run_once()
        while self.interruption.is_on and not self._context.stopping.wait(self.interruption.left_s):
            self._run_once()
        if self.state == RUNNING and not self.interruption.is_on:
            self.state = FINISHED
            self.tell_tables(READY)
        self.statements.tell_skipped()

    def _run_once(self) -> None:
        self.interruption.tries()
        try:
            require_sinks(self._context, self.plan, self.commits.locks)
            self.renew()
            if self.state == RUNNING:
                self._start(once=True)
                assert self._query is not None
                self._query.awaitTermination()
        except Exception as error:
            self.failed(error)

    def start(self) -> None:
        """Go on from here until stopped."""
        self.state = RUNNING
        self._start(once=False)
        self.goes_on = True

    def _start(self, *, once: bool) -> None:
        assert self.reader is not None
        # Spark gives each streaming query a session of its own, kept for all its batches.
        self._views = None
        spark = self._context.spark()
        look_often(spark, len(self._context.plan.flows))
        writer = self.reader.stream(spark).writeStream.queryName(f"millpond {self.plan.id}")
        writer = writer.foreachBatch(self._on_batch).option(
            "checkpointLocation", f"file://{self.folder}/{self._epoch.folder}"
        )
        writer = writer.trigger(availableNow=True) if once else writer.trigger(processingTime="0 seconds")
        self._query = writer.start()

    def poll(self) -> None:
        """Let the source look for new records, unless the flow still works on what it was given."""
        if self.reader is None or not self.goes_on or self.state != RUNNING or self._fed.is_set():
            return
        self.polls_begun += 1
        try:
            if self.reader.poll():
                self._fed.set()
            self.polls_ended = self.polls_begun
            self.interruption.polled()
        except MillpondError as error:
            if not self.interruption.notes(error):
                self.fail(error)
                self.stop()
        self._context.notices.extend(self.reader.problems())

    def renew(self) -> None:
        """Begin a new epoch when this one is long; called by the poller, and before the flow catches up."""
        store, folder = self._context.store, self._context.state.flow(self.plan.id)
        given = self.reader.given if self.reader is not None else None
        if given is None or self.state != RUNNING or not is_over(store, self.plan.id, self._epoch):
            return
        try:
            with self._gate, self._turn:
                self._end_query()
                self._epoch = begin_anew(store, self.plan.id, folder, given)
            if self.goes_on:
                self._start(once=False)
        except Exception as error:
            self.failed(error)

    def watch(self) -> None:
        """Notice that Spark ended the query by itself."""
        query = self._query
        if not self.goes_on or self.state != RUNNING or query is None or self._stopping or self._is_active(query):
            return
        if not self.interruption.is_on:
            self.failed(query.exception() or FlowError("MP705", "Spark ended the flow."))
        elif not self.interruption.left_s and (self._resuming is None or not self._resuming.is_alive()):
            # Elsewhere, because a source that is away may take its time to say so.
            self._resuming = self._context.supervisor.thread(f"resume-{self.plan.id}", self._resume)
            self._resuming.start()

    def _resume(self) -> None:
        """Go on from the last finished batch."""
        with self._gate:
            if self._stopping:
                return
            try:
                self._start(once=False)
                self.interruption.tries()
            except Exception as error:
                self.interruption.tries()
                self.failed(error)

    def _is_active(self, query: StreamingQuery) -> bool:
        """Whether a query runs; where Spark is not there to be asked, the flow has failed."""
        try:
            return bool(query.isActive)
        except Exception as error:
            self.failed(error)
            return True

    @property
    def has_nothing(self) -> bool:
        """Whether its source is not there, or has shown no record yet that would tell its columns; or is read by Spark
        itself, so that no look at it makes anything visible."""
        if self.reader is None:
            return self.state == RETRYING
        given = self.reader.given
        return given is None or (self.source.columns is None and not given.batches)

    def done_so_far(self) -> Callable[[], bool]:
        """A question about what its source has handed over until now, to be asked again and again: whether all of it is
        in the tables, and published. True of a source that Spark reads itself: nobody knows what it holds."""
        if isinstance(self.reader, JoinReader):
            checkpoint, files = Path(self.folder) / self._epoch.folder, self.reader.handed_over()
            return lambda: has_read(checkpoint, files)
        given = self.reader.given if self.reader is not None else None
        batches = given.batches if given is not None else 0
        return lambda: self._last_done + 1 >= batches

    def _end_query(self) -> None:
        try:
            if self._query is not None and self._query.isActive:
                self._query.stop()
        except Exception as error:
            # Where Spark itself was ended from outside, its query has ended too.
            if not is_gone(error):
                raise

    def pause(self) -> None:
        """Let the batch under way finish and stop between batches, until `resume`."""
        self._stopping = True
        with self._gate:
            self._end_query()

    def resume(self) -> None:
        """Go on after `pause`; harmless where it did not run."""
        self._stopping = False
        if self.goes_on and self.state == RUNNING:
            with self._gate:
                self._start(once=False)

    def stop(self) -> None:
        """Let the batch under way finish, then stop between batches: stopping Spark inside one interrupts Python."""
        self._stopping = True
        with self._gate:
            self._end_query()
        if self.state in (RUNNING, WAITING, RETRYING):
            self.state = STOPPED
        self.statements.tell_skipped()

    def _on_batch(self, raw: DataFrame, batch_id: int) -> None:
        # Batches of a flow never overlap, so only `stop` can hold the gate; waiting for it here would block both.
        if self._stopping or not self._gate.acquire(blocking=False):
            raise Stopping
        try:
            with self._turn:
                self._run_batch(raw, self._epoch.first + batch_id)
        except Exception as error:
            self.failed(error)
            raise
        finally:
            self._fed.clear()
            self._gate.release()

    def _run_batch(self, raw: DataFrame, batch_id: int) -> None:
        assert self.reader is not None
        started = time.monotonic()
        checkpoint, number = Path(self.folder) / self._epoch.folder, batch_id - self._epoch.first
        if self.commits.entry.batch >= batch_id:
            if self.plan.join is not None:
                # The state of Spark's join goes on only where the join is run, in a batch that is done too.
                raw.write.format("noop").mode("overwrite").save()
                settle_state(checkpoint, number)
            self.reader.committed(batch_id)
            self._last_done = max(self._last_done, batch_id)
            return
        if self.reader.given is not None:
            self.reader.given.verify(batch_id)
        files = feed_files(checkpoint, number)
        batch = read_batch(self.reader, raw, batch_id, files, once=self._once)
        try:
            originals = partial(self.opened().originals, raw)
            if self.plan.join is not None:
                settle_state(checkpoint, number)
            offsets = "" if self.reader.given is not None else settle_batch(checkpoint, number)
            views = self._session_views(raw)
            staged = self.commits.commit_batch(batch, self._reached(batch), views, originals, offsets)
        finally:
            batch.release()
        reach("flow.committed")
        publish(self._context, staged)
        reach("flow.published")
        self.reader.committed(batch_id)
        self._last_done = batch_id
        reach("flow.done")
        self.interruption.is_over()
        self._idle.heard(self.commits.entry.watermark)
        bad = batch.bad.num_rows
        self.meter.add(batch.rows + bad, time.monotonic() - started, bad=bad)

    def _reached(self, batch: Batch) -> Reached:
        """The watermark before and after a batch, where a window asks for it."""
        before = self.commits.entry.watermark
        if self.plan.watermark is None or not closing(self.plan):
            return Reached(before, before)
        return moved(self._idle.reached() or before, self.plan.watermark, batch)

    def rest(self) -> None:
        """Close the windows of a stream that has been silent for its 'idle.timeout'; called by the poller."""
        if self.state != RUNNING or not self._idle.is_due() or not self._turn.acquire(blocking=False):
            return
        try:
            reached = self._idle.reached()
            if reached is not None:
                self.commits.close_windows(reached)
        except Exception as error:
            self.failed(error)
        finally:
            self._turn.release()

    def wait_out(self) -> None:
        """Go on until no event waits for a joined row: `--once` waits the time out."""
        while self.state == FINISHED and self._waiting.some() and not self._context.stopping.wait(LOOK_S):
            self.retry()

    def retry(self) -> None:
        """Try waiting events again if it is time; called by the poller and by `wait_out`."""
        if self.state not in (RUNNING, FINISHED) or not self._waiting.is_due():
            return
        if not self._turn.acquire(blocking=False):
            return
        try:
            self.commits.release_waiting()
        except Exception as error:
            self.failed(error)
        finally:
            self._turn.release()

    def _session_views(self, raw: DataFrame) -> Views:
        if self._views is None:
            session = raw.sparkSession
            self._views = Views(lambda: session, self._context.exchange, "mp")
        return self._views

    @property
    def stops_app(self) -> bool:
        """Whether its failure is to end the whole app."""
        return self.state == FAILED and any(s.options.get("on.error") == "stop-app" for s in self.plan.steps)

    def fail(self, error: MillpondError) -> None:
        """The flow cannot begin, or go on; tables that it has begun to fill are stale."""
        self.error = error.at(self.source.place)
        self.tell_tables(FAILED if self.state in (WAITING, RETRYING) else STALE)
        self.state = FAILED

    def failed(self, error: BaseException) -> None:
        """Fail, or try again later, because of an error; one that comes while the flow stops is none."""
        if isinstance(error, Stopping) or self._stopping or self.error is not None or self.interruption.is_on:
            return
        told = self.interruption.told(error)
        if not self.interruption.begins(told, catching_up=not self.goes_on):
            self.fail(told)
