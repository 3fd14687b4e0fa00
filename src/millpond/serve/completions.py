"""What can be written in a statement: names of tables and columns, functions, keywords and options."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from starlette.responses import Response

from millpond.contracts.source import without_identity
from millpond.plan.function_names import AGGREGATES, FUNCTIONS, RANKINGS
from millpond.plan.option_owners import TABLE_OPTIONS
from millpond.registry import find, names
from millpond.serve.endpoints import Call, Endpoint, answer_json
from millpond.settings import FLOW_OPTIONS, SETTINGS
from millpond.sql.function_calls import REFUSED

if TYPE_CHECKING:
    from millpond.app.app import App
    from millpond.options import Option

KEYWORDS = """
    SELECT DISTINCT FROM WHERE GROUP BY HAVING ORDER BY LIMIT OFFSET JOIN LEFT RIGHT FULL OUTER INNER CROSS ON USING AS
    AND OR NOT IN EXISTS BETWEEN LIKE IS NULL TRUE FALSE CASE WHEN THEN ELSE END CAST UNION ALL ANY SOME WITH VALUES
    INSERT INTO UPDATE SET DELETE UPSERT MERGE MATCHED BEGIN COMMIT ROLLBACK CREATE TABLE VIEW INDEX PRIMARY KEY DROP IF
    SHOW TABLES STREAMS FLOWS SOURCES VIEWS CONNECTORS STATEMENTS OPTIONS FOR DESCRIBE EXTENDED EXPLAIN ASC DESC NULLS
    FIRST LAST OVER PARTITION ROWS RANGE INTERVAL DATE TIMESTAMP STRING INT BIGINT DECIMAL DOUBLE BOOLEAN BINARY
"""


def completions_of(app: App) -> dict[str, Any]:
    """The names that statements over the tables of an app can use, from the same declarations as `check`."""
    store = {name: app.table(name) for name in app.tables()}
    columns = {name: [c.name for c in without_identity(table.schema)] for name, table in store.items()}
    views = {view.name: [c.name for c in view.columns or ()] for view in app.plan.views}
    streams = {stream.name: [c.name for c in stream.columns or ()] for stream in app.plan.streams}
    hidden = {name.lower() for name in REFUSED}
    return {
        "tables": {**columns, **views},
        "streams": streams,
        "functions": sorted((FUNCTIONS | AGGREGATES | RANKINGS) - hidden),
        "keywords": list(dict.fromkeys(KEYWORDS.split())),
        "options": _options(),
    }


def _options() -> dict[str, list[str]]:
    """Every option of a WITH, with the words that it takes."""
    declared: list[Option] = [*FLOW_OPTIONS, *TABLE_OPTIONS, *SETTINGS]
    for kind in ("source", "sink", "backend"):
        declared += [option for name in names(kind) for option in find(kind, name).options]
    return {option.name: _words(option) for option in declared if not option.name.endswith(".*")}


def _words(option: Option) -> list[str]:
    if option.kind.name == "choice":
        return option.kind.wanted.split(" | ")
    return ["true", "false"] if option.kind.name == "boolean" else []


async def completions(call: Call) -> Response:
    return answer_json(await call.served.in_thread(completions_of, call.app))


ENDPOINTS = (Endpoint("GET", "/api/completions", "Names that a statement can use, for editors.", completions),)
