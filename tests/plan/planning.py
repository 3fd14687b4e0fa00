"""Plans of texts, for the tests of the planner: sources are looked at through a table of columns, not on disk."""

from collections.abc import Mapping
from pathlib import Path

from millpond.contracts.source import Found, SourcePlugin, SourceSpec
from millpond.errors import Problem
from millpond.plan.build import build_plan
from millpond.plan.model import Plan
from millpond.schema import Column, Schema
from millpond.settings import load_settings
from millpond.sql.parser import parse_script, parse_type

# What every example may read and change; one line each, so that the text of a test starts at line HEAD_LINES + 1.
HEAD = """\
CREATE STREAM trades (trade_id STRING, user_id STRING, symbol STRING, quantity INT, price DECIMAL(12,2), ts TIMESTAMP, \
ok BOOLEAN, day DATE, tags ARRAY<STRING>, addr STRUCT<city: STRING, zip: INT>) FROM 'file://./trades.jsonl';
CREATE STREAM quotes (symbol STRING, bid DECIMAL(12,2), ts TIMESTAMP, WATERMARK FOR ts AS ts - INTERVAL 5 SECONDS) \
FROM 'file://./quotes.jsonl';
CREATE TABLE users (user_id STRING PRIMARY KEY, name STRING, tier STRING NOT NULL DEFAULT 'BASIC', age INT);
CREATE TABLE notes (text STRING, n INT NOT NULL);
CREATE TABLE totals AS SELECT user_id, COUNT(*) AS n FROM trades GROUP BY user_id;
"""
HEAD_LINES = HEAD.count("\n")


def columns(text: str) -> Schema:
    """`a INT, b STRING` as a schema."""
    pairs = [part.strip().split(" ", 1) for part in text.split(", ")]
    return Schema.of(Column(name, parse_type(type_)) for name, type_ in pairs)


def plan_of(text: str, found: Mapping[str, str] | None = None, environment: Mapping[str, str] | None = None) -> Plan:
    """The plan of a text; `found` has the columns of sources by the end of their URI, the others are not seen."""

    def discover(plugin: SourcePlugin, spec: SourceSpec) -> Found:
        for ending, text_ in (found or {}).items():
            if spec.uri.text.endswith(ending):
                return Found(columns(text_))
        return Found(detail="it was not read")

    return build_plan(
        parse_script(text, file="app.sql"),
        name="app",
        base=Path("/app"),
        settings=load_settings({}, {}),
        environment=environment or {},
        discover=discover,
    )


def problems_of(text: str, found: Mapping[str, str] | None = None) -> list[str]:
    """The problems of a text that stands after HEAD, one line each: code, place, severity, message, hint."""
    return [described(p) for p in plan_of(HEAD + text, found).problems]


def described(problem: Problem) -> str:
    place = problem.place
    where = f"{place.line - HEAD_LINES}:{place.column}+{place.length}" if place else "-"
    severity = "" if problem.severity == "error" else f" {problem.severity}:"
    hint = f" | {problem.hint}" if problem.hint else ""
    return f"{problem.code} {where}{severity} {problem.message}{hint}"
