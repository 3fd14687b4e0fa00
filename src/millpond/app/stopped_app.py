"""Queries on a stopped app: opens its tables, in a private copy if the state directory is read-only."""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import pyarrow as pa
from pyspark.sql import SparkSession

from millpond.app.added_statements import added_to
from millpond.app.event_trace import Finding, trace_event
from millpond.app.planning import QUERY, AppText, plan_file
from millpond.app.queries import Queries, as_stored, bind_against, explain_beside, the_query
from millpond.app.show import ask, explained
from millpond.app.statistics import progress_of, with_last_known
from millpond.contracts.source import BAD, ORDER_MAJOR, ORDER_MINOR
from millpond.engine.app_context import Context
from millpond.engine.spark.evaluate import spark_fallback
from millpond.engine.spark.session import build_session, end_session
from millpond.engine.spark.transfer import Exchange, Views
from millpond.engine.state_directory import IDENTITY, LOCK, STORE, StateFolder, identity_of, in_use, open_existing
from millpond.engine.work import Work
from millpond.errors import InputError, SourceError, StateError
from millpond.plan.model import FlowPlan, Plan, SourcePlan, Step
from millpond.plan.routing import limits_of
from millpond.plan.source_catalog import record_schema
from millpond.sql.parser import parse_script
from millpond.sql.statements import Describe, Explain, Show
from millpond.tables.commit_log import log_numbers, log_path
from millpond.tables.store import open_store

# Files that a reader does not need.
LEFT_OUT = ("lock", "spill")


@dataclass
class CopiedState(StateFolder):
    """A temporary copy of a state directory, removed by `close`."""

    def close(self) -> None:
        super().close()
        shutil.rmtree(self.path, ignore_errors=True)


def open_to_read(path: Path) -> StateFolder:
    """Open a state directory for queries, even if it is not writable; MP807 if there is none, MP801 while an app uses
    it."""
    path = path.absolute()
    if not (path / IDENTITY).is_file() or all(_is_writable(folder) for folder in (path, path / STORE)):
        return open_existing(path)
    try:
        return _copied(path)
    except OSError as error:
        message = f"{error.filename or path} cannot be read: {error.strerror}."
        raise StateError("MP804", message, hint="Run the query as the user of the app.") from error


def _is_writable(folder: Path) -> bool:
    return os.access(folder, os.W_OK | os.X_OK, effective_ids=True)


def _copied(path: Path) -> StateFolder:
    identity = identity_of(path)
    lock = os.open(path / LOCK, os.O_RDONLY | os.O_CLOEXEC)
    copy = Path(tempfile.mkdtemp(prefix="millpond-"))
    try:
        fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
        _copy_store(path / STORE, copy / STORE)
    except BaseException as error:
        holder = os.read(lock, 32).decode("ascii", "replace").strip()
        os.close(lock)
        shutil.rmtree(copy, ignore_errors=True)
        if isinstance(error, BlockingIOError):
            raise in_use(path, holder) from None
        raise
    return CopiedState(copy, lock, identity["id"], True)


def _copy_store(store: Path, copy: Path) -> None:
    copy.mkdir(mode=0o700)
    last = {log_path(store, number).name for number in log_numbers(store)[-1:]}
    for file in store.iterdir():
        if file.name in LEFT_OUT:
            continue
        if file.name in last or ".sqlite" in file.name:
            shutil.copyfile(file, copy / file.name)
        else:
            (copy / file.name).symlink_to(file)


# For a single query the optimizing compiler does not pay off: without it a session takes half the CPU time.
SHORT_LIVED = {"spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1"}


def query_state(
    sql: str, *, state: Path, app_file: Path | None = None, variables: Mapping[str, str] | None = None
) -> pa.Table:
    """The rows of a query over the tables in a state directory; MP801 if it is in use by a process without a socket."""
    app = _app_plan(app_file, variables, state) if app_file is not None else None
    folder = open_to_read(state)
    session = _LazySession(folder)
    try:
        store = open_store(folder.store, fallback=spark_fallback(session))
        try:
            asked = parse_script(sql, file=QUERY).statements
            if app is not None and len(asked) == 1 and isinstance(asked[0], Explain):
                return explain_beside(asked[0], app, store, partial(_with_more, app_file, variables, state))
            plan = bind_against(store, sql, app.settings if app else None)
            shot = the_query(plan)
            exchange = Exchange(folder.exchange)
            if isinstance(shot.statement, Explain):
                return explained(as_stored(shot, store))
            if isinstance(shot.statement, Show | Describe):
                context = Context(app or plan, store, folder, exchange, session)
                progress = with_last_known(progress_of(context, "stopped", 0.0, (), ()), store)
                return ask(shot.statement, app or plan, store, progress)
            assert shot.query is not None
            return Queries(store, Views(session, exchange, "mp_query"), limits_of(plan.settings)).answer(shot.query)
        finally:
            store.close()
    finally:
        session.stop()
        folder.close()


def traced(plan: Plan, state: Path, flow: FlowPlan, step: Step, event: pa.Table) -> list[Finding]:
    """What each part of a statement finds for one event, over the tables in a state directory, which is not changed.
    MP504 for an event that is not a valid record, MP801 while an app uses the state."""
    bad = event[BAD][0].as_py()
    if bad is not None:
        hint = "The stream would reject it; see 'on.bad.record'."
        raise SourceError("MP504", f"The event is not a valid record: {bad}", hint=hint)
    folder = open_to_read(state)
    session = _LazySession(folder)
    try:
        store = open_store(folder.store, fallback=spark_fallback(session))
        try:
            exchange = Exchange(folder.exchange)
            context = Context(plan, store, folder, exchange, session)
            with store.begin() as tx:
                work = Work(context, tx, Views(session, exchange, "mp_why"))
                found = list(trace_event(work, step, _as_record(event, plan.source(flow.source))))
                tx.rollback()
            return found
        finally:
            store.close()
    finally:
        session.stop()
        folder.close()


def _as_record(event: pa.Table, source: SourcePlan) -> pa.Table:
    """The event with the columns that records of its source have; hidden ones are NULL."""
    columns = {
        c.name: event[c.name] if c.name in event.column_names else pa.nulls(1, c.type) for c in record_schema(source)
    }
    return pa.table(columns | {name: pa.array([0], pa.int64()) for name in (ORDER_MAJOR, ORDER_MINOR)})


def _app_plan(app_file: Path, variables: Mapping[str, str] | None, state: Path) -> Plan:
    plan = plan_file(app_file, variables=variables, added=added_to(state))
    if plan.errors:
        raise InputError.of(plan.errors)
    return plan


def _with_more(app_file: Path | None, variables: Mapping[str, str] | None, state: Path, more: str) -> Plan:
    assert app_file is not None
    return AppText.of_file(app_file).followed_by(more).plan(variables=variables, added=added_to(state))


class _LazySession:
    """A session that is started on first use; `stop` does nothing if it was never used."""

    def __init__(self, folder: StateFolder) -> None:
        self._folder = folder
        self._session: SparkSession | None = None

    def __call__(self) -> SparkSession:
        if self._session is None:
            self._session = build_session(
                log_file=self._folder.spark_log, files=self._folder.spark_files, extra=SHORT_LIVED
            )
        return self._session

    def stop(self) -> None:
        if self._session is not None:
            end_session(self._session)
