"""Drivers run the batches of a flow: from the feed of its source, file by file, or from a streaming query of Spark."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from millpond.contracts.source import FeedBatches
from millpond.engine.spark.session import prepare_streams
from millpond.engine.spark.spark_errors import is_gone
from millpond.errors import FlowError

# A driver is woken when its feed has a new file; this is how often it checks without being woken.
LOOK_S = 1.0


class Stopping(Exception):
    """Raised by a flow that gets a batch while it is being stopped: the batch is repeated at the next start."""


class Driver(Protocol):
    """Runs batches one after another. `stop` and `wake` are called by any thread, the others by the thread that starts
    flows."""

    def catch_up(self, arriving: Callable[[], bool]) -> None:
        """Run the available batches, and those that arrive while `arriving`. Raises the error of a batch."""

    def start(self) -> None:
        """Run the available batches and those that arrive, in the background."""

    def stop(self) -> None:
        """Run no further batch; called while no batch runs."""

    def wake(self) -> None:
        """Called when there may be a new batch."""

    def ended(self) -> BaseException | None:
        """The reason why it no longer runs batches although it was not stopped; None while it does."""


class FirstPoll:
    """The poll of a source before its flow catches up, in a thread: the first records are processed while the others
    are read. `ended` is called when it is over."""

    def __init__(self, poll: Callable[[], object], ended: Callable[[], None]) -> None:
        self._poll, self._ended = poll, ended
        self._error: Exception | None = None
        self._is_on = True
        self._thread = threading.Thread(target=self._run, name="millpond-poll", daemon=True)
        self._thread.start()

    def is_on(self) -> bool:
        """Whether more records may come."""
        return self._is_on

    def result(self) -> None:
        """Wait for its end; raises its error."""
        self._thread.join()
        if self._error is not None:
            raise self._error

    def _run(self) -> None:
        try:
            self._poll()
        except Exception as error:
            self._error = error
        finally:
            self._is_on = False
            self._ended()


class FeedDriver:
    """Runs each feed file as a batch of the same number; the ledger alone determines which comes next. Nothing of Spark
    is involved in this, so that a batch that needs no Spark starts none."""

    def __init__(
        self,
        given: FeedBatches,
        next_batch: Callable[[], int],
        take: Callable[[int, Path], None],
        thread: Callable[[Callable[[], None]], threading.Thread],
    ) -> None:
        self._given, self._next_batch, self._take, self._new_thread = given, next_batch, take, thread
        self._woken, self._stopped = threading.Event(), threading.Event()
        given.watch(self.wake)
        self._thread: threading.Thread | None = None
        self._error: BaseException | None = None

    def catch_up(self, arriving: Callable[[], bool]) -> None:
        while not self._stopped.is_set():
            self._woken.clear()
            more = arriving()
            self._hand_over(self._given.batches)
            if not more:
                return
            self._woken.wait(LOOK_S)

    def start(self) -> None:
        self._thread = self._new_thread(self._go_on)
        self._thread.start()

    def stop(self) -> None:
        self._stopped.set()
        self._woken.set()
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join()

    def wake(self) -> None:
        self._woken.set()

    def ended(self) -> BaseException | None:
        return self._error

    def _go_on(self) -> None:
        try:
            while True:
                self._woken.clear()
                self._hand_over(None)
                if self._stopped.is_set():
                    return
                self._woken.wait(LOOK_S)
        except Exception as error:
            # The flow has handled the error.
            self._error = error

    def _hand_over(self, batches: int | None) -> None:
        """All available batches, or the first ones of the feed."""
        number = self._next_batch()
        while not self._stopped.is_set() and (batches is None or number < batches):
            file = self._given.file(number)
            if file is None:
                return
            try:
                self._take(number, file)
            except Stopping:
                return
            number += 1


@dataclass(frozen=True)
class Query:
    """What a streaming query of Spark reads, and its checkpoint."""

    name: str
    stream: Callable[[SparkSession], DataFrame]
    checkpoint: Path


class SparkDriver:
    """A streaming query, for a source that Spark reads itself and for a join of two streams; `flows` is the number of
    flows, which share the cores."""

    def __init__(
        self,
        spark: Callable[[], SparkSession],
        wanted: Query,
        take: Callable[[DataFrame, int], None],
        flows: int,
    ) -> None:
        self._spark, self._wanted, self._take, self._flows = spark, wanted, take, flows
        self._query: StreamingQuery | None = None
        # The reason why there is no query.
        self._error: BaseException | None = None

    def catch_up(self, arriving: Callable[[], bool]) -> None:
        self._start(availableNow=True)
        assert self._query is not None
        self._query.awaitTermination()

    def start(self) -> None:
        self._start(processingTime="0 seconds")

    def _start(self, **trigger: Any) -> None:
        try:
            self._query = self._started(**trigger)
        except Exception as error:
            self._error = error
            raise

    def _started(self, **trigger: Any) -> StreamingQuery:
        spark = self._spark()
        prepare_streams(spark, self._flows)
        writer = self._wanted.stream(spark).writeStream.queryName(self._wanted.name).foreachBatch(self._take)
        writer = writer.option("checkpointLocation", f"file://{self._wanted.checkpoint.resolve()}")
        return writer.trigger(**trigger).start()

    def stop(self) -> None:
        try:
            if self._query is not None and self._query.isActive:
                self._query.stop()
        except Exception as error:
            # If Spark itself was killed, its query has ended too.
            if not is_gone(error):
                raise

    def wake(self) -> None:
        """Nothing to do: Spark polls by itself."""

    def ended(self) -> BaseException | None:
        if self._query is None:
            return self._error
        if self._query.isActive:
            return None
        return self._query.exception() or FlowError("MP705", "Spark ended the flow.")


class FeedRows:
    """The rows of feed files as a DataFrame, which is created when it is first used: most batches are read without
    Spark."""

    def __init__(self, read: Callable[[], DataFrame]) -> None:
        self._read = read
        self._frame: DataFrame | None = None

    def __getattr__(self, name: str) -> Any:
        if self._frame is None:
            self._frame = self._read()
        return getattr(self._frame, name)
