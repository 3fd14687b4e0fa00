"""One flow: a stream and the statements that it drives, batch by batch."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import cast

from pyspark.sql import DataFrame, SparkSession

from millpond.disk import make_folder
from millpond.engine.app_context import Context
from millpond.engine.availability import Interruption, SourceOpening
from millpond.engine.batch import Batch, read_batch, reads_once
from millpond.engine.commit import Commits
from millpond.engine.drivers import Driver, FeedDriver, FeedRows, FirstPoll, Query, SparkDriver, Stopping
from millpond.engine.emit import require_sinks
from millpond.engine.feeds.feed import SHARED
from millpond.engine.joined_streams import JoinReader, join_sides
from millpond.engine.ledger import CHECKPOINT, FORGOTTEN, SOURCE, disagreement, forget_checkpoints, require_together
from millpond.engine.progress import FAILED, FINISHED, LOADING, READY, RETRYING, RUNNING, STALE, STOPPED, WAITING, Meter
from millpond.engine.spark.session import SparkNotStarted, own_session
from millpond.engine.spark.transfer import Views
from millpond.engine.spark_checkpoint import has_read, rebuild, require_sound, settle_batch, settle_state
from millpond.engine.statements import Statements
from millpond.engine.stream_reader import StreamReader, open_reader
from millpond.engine.table_changes import Staged, publish
from millpond.engine.tracing import batch_span
from millpond.engine.waiting_events import LOOK_S, Waiting
from millpond.engine.watermark import Idle, Reached, closing, moved
from millpond.errors import MillpondError
from millpond.faults import reach
from millpond.plan.model import FlowPlan, SourcePlan, TableKind


class Flow:
    """States: waiting | retrying -> running -> finished (caught up, `--once`) | stopped | failed. Batches are run by
    one thread at a time; `stop` waits for the end of the current batch."""

    def __init__(self, plan: FlowPlan, context: Context) -> None:
        self.plan = plan
        self.source: SourcePlan = context.plan.source(plan.source)
        self.state = WAITING
        self.error: MillpondError | None = None
        self.meter = Meter()
        self.reader: StreamReader | None = None
        # A reader that was opened, and given records, before the columns of its source were known.
        self.kept_reader: StreamReader | None = None
        self._context = context
        self._driver: Driver | None = None
        self._views: Views | None = None
        self._session: SparkSession | None = None
        self._must_not_wait = False
        # Held by the thread that starts or stops the driver, and by a batch; acquired in this order.
        self._switch, self._gate = threading.Lock(), threading.Lock()
        self._stopping = False
        # While the flow catches up, no other thread polls it.
        self.goes_on = False
        self._fed = threading.Event()
        # The polls that the poller has started, and those that have ended.
        self.polls_begun = self.polls_ended = 0
        self._once = reads_once(plan)
        self.statements = Statements(plan, context)
        self.commits = Commits(plan, context, self.statements)
        # Held by a batch, or by the closing of windows of an idle stream.
        self._turn = threading.Lock()
        self._idle = Idle(plan)
        self._waiting = Waiting(plan, context.store)
        self.opening = SourceOpening(self.source)
        self.interruption = Interruption(self.source, storage_failure=context.state.storage_failure)
        self._resuming: threading.Thread | None = None
        # The last batch that is in the tables and published to its sinks.
        self._last_done = -1

    @property
    def _folder(self) -> Path:
        return self._context.state.flow(self.plan.id)

    @property
    def _checkpoint(self) -> Path:
        """Spark's checkpoint, for a flow whose batches come from Spark."""
        return self._folder / CHECKPOINT

    def open(self) -> bool:
        """Open the source, once; False while a missing one is retried. Raises if it does not exist, or if checkpoint
        and tables do not belong together."""
        if self.reader is not None:
            return True
        require_together(self.plan, self._context.store, make_folder(self._folder))
        entry = self.commits.entry
        self._last_done = entry.batch
        if self.plan.join is not None:
            self._context.state.share(self._folder, (CHECKPOINT,))
            require_sound(self._checkpoint, entry, entry.batch)
            sides = join_sides(self._context, self.plan.join)
            self.reader = JoinReader(self._context, self.plan, sides)
            return True
        self.reader = self.opening.attempt(self._required)
        if self.reader is None:
            self.state = RETRYING
            self.set_table_states(RETRYING)
            return False
        self._resume_at(self.reader)
        self._idle.heard(entry.watermark)
        return True

    def _resume_at(self, reader: StreamReader) -> None:
        """Set the driver of the batches to the position of the ledger; MP809 if the source cannot continue there."""
        done = self.commits.entry.batch + 1
        if reader.given is None:
            rebuild(self._checkpoint, self.commits.entry, done - 1)
        elif not reader.given.has(done):
            self.reader = None
            raise disagreement(self.plan, FORGOTTEN, self._folder / SOURCE)
        else:
            reader.given.forget(done)
            forget_checkpoints(self._folder)

    def _required(self) -> StreamReader:
        """The source's reader, if the source exists."""
        reader = self.opened()
        reader.require(self._context.spark)
        return reader

    @property
    def is_pending(self) -> bool:
        """Whether its missing source is still retried."""
        return self.opening.is_pending

    def set_table_states(self, state: str) -> None:
        """Set the state of the tables that the flow maintains to its own; rows that they already have stay usable."""
        before = self.commits.entry.batch >= 0
        for step in self.plan.steps:
            table = self._context.plan.table(step.target)
            if table is not None and table.kind is TableKind.AGGREGATE:
                usable = before and state != READY
                self._context.table_states[table.name.lower()] = STALE if usable else state

    def opened(self) -> StreamReader:
        """The source's reader, without waiting for records."""
        before = self.reader or self.kept_reader
        if before is not None:
            return before
        self._context.state.share(self._folder / SOURCE, SHARED)
        local = self._context.limits.is_local
        owner = f"{self._context.owner}-{self.plan.id}"
        return open_reader(self.source.spec, self.source.type, self._folder / SOURCE, local=local, owner=owner)

    @contextmanager
    def between_batches(self) -> Iterator[None]:
        """No batch runs inside the block; for work on the flow's tables that is not a batch."""
        with self._turn:
            yield

    def catch_up(self, *, drain: bool) -> None:
        """Process what the source contains now, then return; `drain`: a bounded source yields everything."""
        assert self.reader is not None
        self.state = RUNNING
        self.set_table_states(LOADING)
        poll = FirstPoll(partial(self.reader.poll, final=drain), self._wake)
        try:
            if self.reader.given is None:
                # Spark reads the existing records, in one batch.
                poll.result()
            self._run_once(poll.is_on)
            poll.result()
        except MillpondError as error:
            if self.error is None:
                self.fail(error)
            return
        self._context.notices.extend(self.reader.problems())
        while self.interruption.is_on and not self._context.stopping.wait(self.interruption.left_s):
            self._run_once(poll.is_on)
        # A flow that was stopped meanwhile has not caught up.
        left = self._context.stopping.is_set() and not self.done_so_far()()
        if self.state == RUNNING and not self.interruption.is_on and not left:
            self.state = FINISHED
            self.set_table_states(READY)
        self.statements.report_skipped()

    def _run_once(self, arriving: Callable[[], bool]) -> None:
        self.interruption.tries()
        try:
            require_sinks(self._context, self.plan, self.commits.locks)
            self._renew_driver().catch_up(arriving)
        except Exception as error:
            self.failed(error)

    def start(self) -> None:
        """Run from now on until stopped."""
        self.state = RUNNING
        with self._switch:
            self._renew_driver().start()
        self.goes_on = True

    def _renew_driver(self) -> Driver:
        """The driver of the batches, from the first one that is not committed."""
        assert self.reader is not None
        given = self.reader.given
        if given is None:
            # Spark runs each streaming query in a session of its own, which is kept for all its batches.
            self._views = None
            spark, flows = self._context.spark, len(self._context.plan.flows)
            query = Query(f"millpond {self.plan.id}", self.reader.stream, self._checkpoint)
            self._driver = SparkDriver(spark, query, self._on_batch, flows)
        else:
            self._finish_last()
            thread = partial(self._context.supervisor.thread, f"flow-{self.plan.id}")
            self._driver = FeedDriver(given, lambda: self.commits.entry.batch + 1, self._on_feed_file, thread)
        return self._driver

    def _finish_last(self) -> None:
        """Publish the last committed batch, if an error prevented it."""
        entry = self.commits.entry
        if self._last_done < entry.batch:
            publish(self._context, list(entry.sinks))
            self._let_go(entry.batch)

    def _let_go(self, batch_id: int) -> None:
        """Called when a batch is in the tables and published: what was kept to repeat it is removed."""
        assert self.reader is not None
        self.reader.committed(batch_id)
        if self.reader.given is not None:
            self.reader.given.forget(batch_id + 1)
        self._last_done = batch_id

    def poll(self) -> None:
        """Poll the source for new records, unless the flow still processes earlier ones."""
        if self.reader is None or not self.goes_on or self.state != RUNNING or self._is_fed():
            return
        self.polls_begun += 1
        try:
            if self.reader.poll():
                self._fed.set()
                self._wake()
            self.polls_ended = self.polls_begun
            self.interruption.polled()
        except MillpondError as error:
            if not self.interruption.notes(error):
                self.fail(error)
                self.stop()
        self._context.notices.extend(self.reader.problems())

    def _is_fed(self) -> bool:
        """Whether the first batch of the last poll is still being processed."""
        given = self.reader.given if self.reader is not None else None
        return self._fed.is_set() and given is not None and self._last_done + 1 < given.batches

    def _wake(self) -> None:
        driver = self._driver
        if driver is not None:
            driver.wake()

    def watch(self) -> None:
        """Called by the poller: detect that the driver has ended."""
        driver = self._driver
        if not self.goes_on or self.state != RUNNING or driver is None or self._stopping:
            return
        try:
            ended = driver.ended()
        except Exception as error:
            # Spark does not respond.
            ended = error
        if ended is None:
            return
        if not self.interruption.is_on:
            self.failed(ended)
        elif not self.interruption.left_s and (self._resuming is None or not self._resuming.is_alive()):
            # In a thread, because a source that cannot be reached may respond late.
            self._resuming = self._context.supervisor.thread(f"resume-{self.plan.id}", self._resume)
            self._resuming.start()

    def _resume(self) -> None:
        """Continue from the last committed batch."""
        with self._switch:
            if self._stopping:
                return
            try:
                self._renew_driver().start()
                self.interruption.tries()
            except Exception as error:
                self.interruption.tries()
                self.failed(error)

    @property
    def has_nothing(self) -> bool:
        """Whether its source does not exist, or has had no record yet from which its columns could be inferred; or is
        read by Spark itself, so that polling makes nothing visible."""
        if self.reader is None:
            return self.state == RETRYING
        given = self.reader.given
        return given is None or (self.source.columns is None and not given.batches)

    def done_so_far(self) -> Callable[[], bool]:
        """A function that returns whether everything that its source has passed on until now is in the tables, and
        published. For a source that Spark reads itself it returns True, because its content is unknown."""
        if isinstance(self.reader, JoinReader):
            files = self.reader.handed_over()
            return lambda: has_read(self._checkpoint, files)
        given = self.reader.given if self.reader is not None else None
        batches = given.batches if given is not None else 0
        return lambda: self._last_done + 1 >= batches

    def _stop_driver(self) -> None:
        """Called between two batches."""
        with self._switch, self._gate:
            if self._driver is not None:
                self._driver.stop()

    def pause(self) -> None:
        """Finish the current batch and stop between batches, until `resume`."""
        self._stopping = True
        self._stop_driver()

    def resume(self) -> None:
        """Continue after `pause`; does nothing if the flow did not run."""
        self._stopping = False
        if self.goes_on and self.state == RUNNING:
            with self._switch:
                self._renew_driver().start()

    def stop(self) -> None:
        """Finish the current batch, then stop between batches: stopping Spark inside a batch interrupts Python."""
        self._stopping = True
        self._stop_driver()
        if self.state in (RUNNING, WAITING, RETRYING):
            self.state = STOPPED
        self.release()
        self.statements.report_skipped()

    def release(self) -> None:
        """Close the source; called when the flow has stopped or another one takes its place."""
        if self.reader is not None:
            self.reader.close()

    def _on_feed_file(self, batch_id: int, file: Path) -> None:
        """Run a batch of a feed; Spark reads it only if something of it must be evaluated there."""
        if self._context.stopping.is_set():
            raise Stopping
        rows = FeedRows(partial(self._read_in_spark, file))
        self._on_batch(cast(DataFrame, rows), batch_id, file)

    def _read_in_spark(self, file: Path) -> DataFrame:
        assert self.reader is not None
        return self.reader.fed(self._session_views().session, [file])

    def _on_batch(self, raw: DataFrame, batch_id: int, file: Path | None = None) -> None:
        # Batches of a flow never overlap, so only `stop` can hold the gate; waiting for it here would block both.
        if self._stopping or not self._gate.acquire(blocking=False):
            raise Stopping
        try:
            with self._turn, batch_span(self._context.plan.name, self.plan.name, batch_id):
                self._run_batch(raw, batch_id, file)
        except Exception as error:
            self.failed(error)
            raise
        finally:
            self._fed.clear()
            self._gate.release()

    def _run_batch(self, raw: DataFrame, batch_id: int, file: Path | None) -> None:
        assert self.reader is not None
        started = time.monotonic()
        if self.commits.entry.batch >= batch_id:
            if self.plan.join is not None:
                # The state of Spark's join advances only if the join is run, even in a batch that is committed already.
                raw.write.format("noop").mode("overwrite").save()
                settle_state(self._checkpoint, batch_id)
            self._let_go(batch_id)
            return
        if file is not None and self.reader.given is not None:
            self.reader.given.verify(batch_id)
        files = None if file is None else [file]
        batch = read_batch(self.reader, raw, batch_id, files, self._context.limits, once=self._once)
        try:
            originals = partial(self.opened().originals, raw, files=files)
            if self.plan.join is not None:
                settle_state(self._checkpoint, batch_id)
            offsets = "" if self.reader.given is not None else settle_batch(self._checkpoint, batch_id)
            views = self._session_views(None if file is not None else raw)
            commit = partial(self.commits.commit_batch, batch, self._reached(batch), views, originals, offsets)
            staged = self._committed(commit)
        finally:
            batch.release()
        reach("flow.committed")
        publish(self._context, staged)
        reach("flow.published")
        self._let_go(batch_id)
        reach("flow.done")
        self.interruption.is_over()
        self._idle.heard(self.commits.entry.watermark)
        bad = batch.bad.num_rows
        self.meter.add(batch.rows + bad, time.monotonic() - started, bad=bad)

    def _committed(self, commit: Callable[[], Staged]) -> Staged:
        """Commit a batch. Java may take long to start: a batch that turns out to need it is run again when it has, and
        does not hold the locks of tables meanwhile, for which other flows would wait."""
        self._must_not_wait = self._session is None
        try:
            return commit()
        except SparkNotStarted:
            self._must_not_wait = False
            self._own_session()
            return commit()
        finally:
            self._must_not_wait = False

    def _reached(self, batch: Batch) -> Reached:
        """The watermark before and after a batch, if a window needs it."""
        before = self.commits.entry.watermark
        waits = any(step.over is not None and step.over.waits for step in self.plan.steps)
        if self.plan.watermark is None or not (waits or closing(self.plan)):
            return Reached(before, before)
        return moved(self._idle.reached() or before, self.plan.watermark, batch)

    def rest(self) -> None:
        """Close the windows of a stream that has been idle for its 'idle.timeout'; called by the poller."""
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
        """With `--once`: wait until no event waits for a joined row."""
        while self.state == FINISHED and self._waiting.some() and not self._context.stopping.wait(LOOK_S):
            self.retry()

    def retry(self) -> None:
        """Retry waiting events if that is due; called by the poller and by `wait_out`."""
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

    def _session_views(self, raw: DataFrame | None = None) -> Views:
        """Temporary views of this flow only: those of the session of Spark's query, to which `raw` belongs, or of a
        session of the flow, created when it is needed."""
        if self._views is None:
            session = self._own_session if raw is None else lambda: raw.sparkSession
            self._views = Views(session, self._context.exchange, "mp")
        return self._views

    def _own_session(self) -> SparkSession:
        if self._session is None:
            if self._must_not_wait:
                raise SparkNotStarted
            self._session = own_session(self._context.spark())
        return self._session

    @property
    def stops_app(self) -> bool:
        """Whether its failure ends the whole app."""
        return self.state == FAILED and any(s.options.get("on.error") == "stop-app" for s in self.plan.steps)

    def fail(self, error: MillpondError) -> None:
        """The flow cannot start or continue; tables that it has started to fill are stale."""
        self.error = error.at(self.source.place)
        self.set_table_states(FAILED if self.state in (WAITING, RETRYING) else STALE)
        self.state = FAILED

    def failed(self, error: BaseException) -> None:
        """Fail, or retry later, because of an error; an error while the flow stops is ignored."""
        if isinstance(error, Stopping) or self._stopping or self.error is not None or self.interruption.is_on:
            return
        meaning = self.interruption.meaning(error)
        if not self.interruption.begins(meaning, catching_up=not self.goes_on):
            self.fail(meaning)
