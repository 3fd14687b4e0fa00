"""Reading the tables of an app that is not running."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from pathlib import Path

import pyarrow as pa
from pyspark.sql import SparkSession

from millpond.errors import InputError
from millpond.plan.model import Plan
from millpond.runtime.context import Context
from millpond.runtime.figures.asking import ask, explained
from millpond.runtime.figures.last import with_last_known
from millpond.runtime.figures.reporting import progress_of
from millpond.runtime.keeping.reading_only import open_to_read
from millpond.runtime.keeping.state import StateFolder
from millpond.runtime.planning import QUERY, AppText, plan_file
from millpond.runtime.queries import Queries, as_stored, bind_against, explain_beside, the_query
from millpond.runtime.spark.access import Exchange, Views
from millpond.runtime.spark.evaluate import spark_fallback
from millpond.runtime.spark.session import build_session, end_session
from millpond.sql.parser import parse_script
from millpond.sql.statements import Describe, Explain, Show
from millpond.tables.store import open_store

# For one query the optimizing compiler never pays: without it a session needs half the processor time.
SHORT_LIVED = {"spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1"}


def query_state(
    sql: str, *, state: Path, app_file: Path | None = None, variables: Mapping[str, str] | None = None
) -> pa.Table:
    """The rows of a query over the tables in a state directory; MP801 when a process that cannot be asked holds it."""
    app = _app_plan(app_file, variables) if app_file is not None else None
    folder = open_to_read(state)
    session = _LazySession(folder)
    try:
        store = open_store(folder.store, fallback=spark_fallback(session))
        try:
            asked = parse_script(sql, file=QUERY).statements
            if app is not None and len(asked) == 1 and isinstance(asked[0], Explain):
                return explain_beside(asked[0], app, store, partial(_with_more, app_file, variables))
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
            return Queries(store, Views(session, exchange, "mp_query")).answer(shot.query)
        finally:
            store.close()
    finally:
        session.stop()
        folder.close()


def _app_plan(app_file: Path, variables: Mapping[str, str] | None) -> Plan:
    plan = plan_file(app_file, variables=variables)
    if plan.errors:
        raise InputError.of(plan.errors)
    return plan


def _with_more(app_file: Path | None, variables: Mapping[str, str] | None, more: str) -> Plan:
    assert app_file is not None
    return AppText.of_file(app_file).followed_by(more).plan(variables=variables)


class _LazySession:
    """A session that is started when it is first asked for, and stopped only then."""

    def __init__(self, folder: StateFolder) -> None:
        self._folder = folder
        self._session: SparkSession | None = None

    def __call__(self) -> SparkSession:
        if self._session is None:
            self._session = build_session(
                log_file=self._folder.spark_log, files=self._folder.spark_files, extra=SHORT_LIVED, streams=False
            )
        return self._session

    def stop(self) -> None:
        if self._session is not None:
            end_session(self._session)
