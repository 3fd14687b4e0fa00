"""`POST /api/query`: one statement over HTTP, its rows as JSON, CSV or an Arrow stream."""

from __future__ import annotations

import asyncio
import io
import json
import os
import re
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass
from itertools import islice
from typing import Any, TypeVar

import pyarrow as pa
from sqlglot import exp
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse

from millpond.app.planning import QUERY
from millpond.app.queries import Cancellation
from millpond.errors import RunError, SqlError
from millpond.rendering import csv_lines, json_lines, json_texts
from millpond.schema import type_name
from millpond.serve.endpoints import Call, Endpoint, Field, Served
from millpond.serve.policy import Policy
from millpond.serve.problems import RequestError
from millpond.sql.nodes import Uri
from millpond.sql.parser import parse_script
from millpond.sql.statements import (
    NO_OPTIONS,
    CreateTable,
    Describe,
    Explain,
    Select,
    Show,
    SourceRef,
    Statement,
)
from millpond.units import parse_duration

# Rows that are returned without `limit`; processes of the same user get all.
ROWS_DEFAULT = 10_000
# Lines and rows in one part of a response.
LINES_PER_PIECE = 2_000
ROWS_PER_PIECE = 65_536

T = TypeVar("T")
_WEIGHT = re.compile(r"[01](\.\d*)?")
READING = (Select, Show, Describe, Explain)
# The name of a format, its content type, and the function that converts rows to parts of a response.
Pieces = Callable[["Rows"], Iterator[bytes]]


@dataclass(frozen=True)
class Rows:
    """The rows of a response; `truncated`: there are more."""

    table: pa.Table
    truncated: bool
    exact_numbers: bool = False


def _json_lines(rows: Rows) -> Iterator[bytes]:
    return _pieces(json_lines(rows.table, exact_numbers=rows.exact_numbers))


def _csv(rows: Rows) -> Iterator[bytes]:
    return _pieces(csv_lines(rows.table))


def _pieces(lines: Iterator[str]) -> Iterator[bytes]:
    while piece := "".join(f"{line}\n" for line in islice(lines, LINES_PER_PIECE)):
        yield piece.encode()


def _arrow(rows: Rows) -> Iterator[bytes]:
    sink = io.BytesIO()
    with pa.ipc.new_stream(sink, rows.table.schema) as stream:
        for batch in rows.table.to_batches(max_chunksize=ROWS_PER_PIECE):
            stream.write_batch(batch)
            yield sink.getvalue()
            sink.seek(0)
            sink.truncate()
    yield sink.getvalue()


def _json(rows: Rows) -> Iterator[bytes]:
    """One object, with the columns and their types, and each row as a list."""
    columns = [{"name": f.name, "type": type_name(f.type)} for f in rows.table.schema]
    head = {"columns": columns, "row_count": rows.table.num_rows, "truncated": rows.truncated}
    yield f'{json.dumps(head, ensure_ascii=False)[:-1]}, "rows": ['.encode()
    between = b""
    for batch in rows.table.to_batches(max_chunksize=LINES_PER_PIECE):
        texts = [json_texts(column, exact_numbers=rows.exact_numbers) for column in batch.columns]
        lines = ",\n".join(f"[{', '.join(values)}]" for values in zip(*texts, strict=True))
        yield between + lines.encode()
        between = b",\n"
    yield b"]}\n"


FORMATS: Mapping[str, tuple[str, Pieces]] = {
    "jsonl": ("application/x-ndjson", _json_lines),
    "json": ("application/json", _json),
    "csv": ("text/csv", _csv),
    "arrow": ("application/vnd.apache.arrow.stream", _arrow),
}


async def query(call: Call) -> Response:
    """The rows of a statement that reads; the number of changed rows for one that writes, if that is allowed."""
    body, policy = call.body, call.policy
    sql, parameters = body["sql"], body["parameters"] or []
    content_type, pieces = FORMATS[_format(body["format"], call.request)]
    limit, timeout_s = _limit(call), _timeout_s(call)
    statements = await call.served.in_thread(read_statements, sql, policy)
    if statements and not isinstance(statements[0], READING):
        if not policy.write:
            hint = "Run the app with --http-write to allow changes over HTTP."
            raise RequestError(403, "Over HTTP this app is read-only.", hint=hint)
        changed = await call.served.in_thread(_change, call, sql, parameters)
        return JSONResponse({"changed": changed})

    def answer(cancellation: Cancellation) -> Rows:
        more = None if limit is None else limit + 1
        found = call.app.answer(sql, parameters, limit=more, cancellation=cancellation)
        cut = limit is not None and found.num_rows > limit
        return Rows(found.slice(0, limit), cut, body["decimal"] == "number")

    rows = await until_gone(call, answer, timeout_s)
    headers = {"millpond-rows": str(rows.table.num_rows), "millpond-truncated": str(rows.truncated).lower()}
    return StreamingResponse(_streamed(call.served, pieces(rows)), headers=headers, media_type=content_type)


async def until_gone(call: Call, work: Callable[[Cancellation], T], timeout_s: float | None) -> T:
    """The result of the work, which is cancelled at its timeout, or when the client disconnects or the app stops. At
    the timeout the response is sent at once, however long the work takes to end."""
    cancellation = Cancellation()
    working = asyncio.ensure_future(call.served.in_thread(work, cancellation))
    gone = asyncio.ensure_future(_gone(call.request))
    stopped = asyncio.ensure_future(call.served.stopping.wait())
    try:
        await asyncio.wait({working, gone, stopped}, timeout=timeout_s, return_when=asyncio.FIRST_COMPLETED)
        if working.done():
            return working.result()
        reason = f"The query took longer than {timeout_s:g} s." if timeout_s else "The query was cancelled."
        if gone.done():
            reason = "The client has disconnected."
        elif stopped.done():
            reason = "The app was stopped."
        # In a thread, because Spark may take some time to cancel it.
        asyncio.get_running_loop().run_in_executor(None, cancellation.cancel, reason)
        working.add_done_callback(_ignored)
        raise RunError("MP714", reason, hint="Select fewer rows, or allow more time.")
    finally:
        gone.cancel()
        stopped.cancel()


async def _gone(request: Request) -> None:
    """Returns when the client has disconnected; its body has been read."""
    while (await request.receive())["type"] != "http.disconnect":
        pass


def _ignored(work: asyncio.Future[Any]) -> None:
    if not work.cancelled():
        work.exception()


async def _streamed(served: Served, pieces: Iterator[bytes]) -> AsyncIterator[bytes]:
    """The parts of a response, each created in a thread after the previous one was sent."""
    while (piece := await served.in_thread(next, pieces, None)) is not None:
        if piece:
            yield piece


def read_statements(sql: str, policy: Policy) -> Sequence[Statement]:
    """The statements of a text. A statement from the network can use the tables of the app, but not its environment or
    the files of its machine."""
    if not policy.local and "${" in sql:
        raise RequestError(400, "Variables have no values over HTTP.", hint="Write the value, or use parameters.")
    script = parse_script(sql, file=QUERY, variables=os.environ if policy.local else {})
    if script.problems:
        raise SqlError.of(script.problems)
    for statement in () if policy.local else script.statements:
        if any(_places(statement)):
            hint = "Name tables and views of the app; files, topics and backends belong to its SQL file."
            raise RequestError(403, "A URI or the options of a table cannot be given over HTTP.", hint=hint)
    return script.statements


def _places(value: Any) -> Iterator[bool]:
    """The places outside of the app that a statement names."""
    if isinstance(value, exp.Expr):
        yield from (True for _ in value.find_all(Uri))
    elif isinstance(value, SourceRef) or (isinstance(value, CreateTable) and value.options != NO_OPTIONS):
        yield True
    elif isinstance(value, tuple):
        for part in value:
            yield from _places(part)
    elif is_dataclass(value):
        for part in fields(value):
            yield from _places(getattr(value, part.name))


def _change(call: Call, sql: str, parameters: Sequence[Any]) -> int:
    if parameters:
        raise RequestError(400, "Parameters are for queries.", hint="Write the values into the statement.")
    return call.app.execute(sql)


def _limit(call: Call) -> int | None:
    wanted, most = call.body["limit"], call.policy.rows_max
    if wanted is None:
        return None if most is None else min(ROWS_DEFAULT, most)
    if wanted < 0:
        raise RequestError(400, "The field 'limit' must not be negative.")
    return int(wanted) if most is None else min(wanted, most)


def _timeout_s(call: Call) -> float | None:
    wanted, most = call.body["timeout"], call.policy.timeout_s
    if wanted is None:
        return most
    seconds = parse_duration(wanted) / 1_000_000
    return seconds if most is None else min(seconds, most)


def _format(given: str | None, request: Request) -> str:
    """The format from the body or the Accept header; JSON lines by default, 406 if none is accepted."""
    if given is not None:
        return given
    accepted = request.headers.get("accept", "").strip() or "*/*"
    for wanted in _media_ranges(accepted):
        for name, (kind, _) in FORMATS.items():
            if wanted in (kind, "*/*", f"{kind.partition('/')[0]}/*"):
                return name
    known = ", ".join(kind for kind, _ in FORMATS.values())
    raise RequestError(406, f"There is no format '{accepted}'.", hint=f"Accept one of: {known}.")


def _media_ranges(accepted: str) -> list[str]:
    """The media types of an Accept header, the preferred ones first, without those that are excluded by `q=0`."""
    found = []
    for part in accepted.lower().split(","):
        kind, *parameters = (word.strip() for word in part.split(";"))
        given = next((word[2:] for word in parameters if word.startswith("q=")), "1")
        weight = float(given) if _WEIGHT.fullmatch(given) else 1.0
        if weight > 0:
            found.append((-weight, kind))
    return [kind for _, kind in sorted(found, key=lambda pair: pair[0])]


ENDPOINTS = (
    Endpoint(
        "POST",
        "/api/query",
        "Run one statement: the rows of SELECT, SHOW, DESCRIBE and EXPLAIN, or the number of rows changed.",
        query,
        body=(
            Field("sql", "string", "One statement over the tables of the app.", required=True),
            Field("parameters", "array", "A value for each ? in the statement."),
            Field(
                "limit",
                "integer",
                "The most rows to return; the header millpond-truncated reports whether there are more.",
            ),
            Field("timeout", "string", "How long it may take, such as 10s."),
            Field("format", "string", "Instead of an Accept header.", choices=tuple(FORMATS)),
            Field("decimal", "string", "How decimals are written in JSON.", choices=("string", "number")),
        ),
        answers={kind: f"The rows as {name}." for name, (kind, _) in FORMATS.items()},
    ),
)
