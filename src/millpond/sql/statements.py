"""The statements of a SQL file as frozen values, one class per kind of statement, each with its place in the file."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum

import pyarrow as pa
from sqlglot import exp

from millpond.errors import Place


@dataclass(frozen=True)
class Name:
    """A name as written; `key` is for comparison, `text` for output."""

    text: str
    place: Place
    quoted: bool = False

    @property
    def key(self) -> str:
        return self.text.lower()

    def __str__(self) -> str:
        return self.text


@dataclass(frozen=True)
class OptionEntry:
    """One `'name' = 'value'` of a WITH, name in lower case."""

    name: str
    value: str = field(repr=False)
    place: Place
    value_place: Place


@dataclass(frozen=True)
class OptionGroup:
    """One WITH (...); `at_end` when nothing of the statement follows it."""

    entries: tuple[OptionEntry, ...] = ()
    at_end: bool = False
    place: Place | None = None


NO_OPTIONS = OptionGroup()


@dataclass(frozen=True)
class SourceRef:
    """A URI with the WITH right after it."""

    uri: str = field(repr=False)
    place: Place
    options: OptionGroup = NO_OPTIONS


@dataclass(frozen=True)
class ColumnDef:
    """A declared column; `default` is an expression without columns, `null_place` where NULL is written."""

    name: Name
    type: pa.DataType
    nullable: bool = True
    default: exp.Expression | None = None
    null_place: Place | None = None


@dataclass(frozen=True)
class CheckDef:
    """[CONSTRAINT name] CHECK (condition), after a column or on its own."""

    condition: exp.Expression
    name: Name | None
    place: Place
    column: Name | None = None


@dataclass(frozen=True)
class Watermark:
    """WATERMARK FOR column AS column - delay."""

    column: Name
    delay_us: int
    place: Place


@dataclass(frozen=True)
class Assignment:
    """One `column = value` of an UPDATE; the value may be DEFAULT (nodes.Default)."""

    column: Name
    value: exp.Expression


@dataclass(frozen=True)
class Conflict:
    """ON CONFLICT (columns) DO UPDATE SET ... [WHERE ...], or DO NOTHING, where there are no assignments."""

    columns: tuple[Name, ...]
    assignments: tuple[Assignment, ...]
    where: exp.Expression | None
    place: Place


class When(StrEnum):
    """To which rows a branch of a MERGE applies."""

    MATCHED = "MATCHED"  # a row of the source and one of the table
    NOT_MATCHED = "NOT MATCHED"  # a row of the source
    BY_SOURCE = "NOT MATCHED BY SOURCE"  # a row of the table


@dataclass(frozen=True)
class WhenClause:
    """WHEN ... [AND condition] THEN: `assignments` of an UPDATE, `columns` and `values` of an INSERT, neither for a
    DELETE. `star` is that of UPDATE SET * and INSERT *: every column from the source's of the same name."""

    when: When
    place: Place
    condition: exp.Expression | None = None
    assignments: tuple[Assignment, ...] = ()
    columns: tuple[Name, ...] | None = None
    values: tuple[exp.Expression, ...] = ()
    star: exp.Star | None = None
    deletes: bool = False


@dataclass(frozen=True, kw_only=True)
class Statement:
    """`text` identifies the statement: without comments and extra spaces, with variables substituted. `code` is the
    same in its original case. `core` is the text without WITH (...), and `given` are the options in them. All may
    contain secrets: print statements through `render` only."""

    place: Place
    text: str = field(repr=False)
    code: str = field(default="", repr=False, compare=False)
    core: str = field(default="", repr=False, compare=False)
    given: tuple[tuple[str, str], ...] = field(default=(), repr=False, compare=False)


@dataclass(frozen=True, kw_only=True)
class CreateStream(Statement):
    """CREATE STREAM name (columns) FROM uri WITH (...), or CREATE STREAM name AS query; one of source, query is set."""

    name: Name
    columns: tuple[ColumnDef, ...] | None = None
    watermark: Watermark | None = None
    source: SourceRef | None = None
    query: exp.Query | None = None
    options: OptionGroup = NO_OPTIONS
    or_replace: bool = False
    if_not_exists: bool = False


@dataclass(frozen=True, kw_only=True)
class CreateTable(Statement):
    """CREATE TABLE name (columns), or CREATE TABLE name [PRIMARY KEY (...)] AS query; one of columns, query is set."""

    name: Name
    columns: tuple[ColumnDef, ...] | None = None
    key: tuple[Name, ...] = ()
    indexes: tuple[tuple[Name, ...], ...] = ()
    checks: tuple[CheckDef, ...] = ()
    query: exp.Query | None = None
    options: OptionGroup = NO_OPTIONS
    or_replace: bool = False
    if_not_exists: bool = False


@dataclass(frozen=True, kw_only=True)
class CreateView(Statement):
    """CREATE VIEW name AS query."""

    name: Name
    query: exp.Query
    options: OptionGroup = NO_OPTIONS
    or_replace: bool = False
    if_not_exists: bool = False


@dataclass(frozen=True, kw_only=True)
class CreateIndex(Statement):
    """CREATE INDEX [name] ON table (columns)."""

    table: Name
    columns: tuple[Name, ...]
    name: Name | None = None
    if_not_exists: bool = False


@dataclass(frozen=True, kw_only=True)
class Drop(Statement):
    """DROP TABLE | STREAM | VIEW | INDEX [IF EXISTS] name."""

    kind: str
    name: Name
    if_exists: bool = False


@dataclass(frozen=True, kw_only=True)
class Insert(Statement):
    """INSERT INTO target [(columns)] VALUES ... | query [ON CONFLICT ...]; `target` is a name or a URI."""

    target: Name | SourceRef
    columns: tuple[Name, ...] | None = None
    rows: tuple[tuple[exp.Expression, ...], ...] | None = None
    query: exp.Query | None = None
    conflict: Conflict | None = None
    options: OptionGroup = NO_OPTIONS


@dataclass(frozen=True, kw_only=True)
class Upsert(Statement):
    """UPSERT INTO table [(columns)] VALUES ... | query [ON condition]."""

    target: Name
    columns: tuple[Name, ...] | None = None
    rows: tuple[tuple[exp.Expression, ...], ...] | None = None
    query: exp.Query | None = None
    on: exp.Expression | None = None
    options: OptionGroup = NO_OPTIONS


@dataclass(frozen=True, kw_only=True)
class Update(Statement):
    """UPDATE table [alias] SET ... [FROM source [joins]] [WHERE ...]; `source` is SELECT * FROM it, without WHERE."""

    table: Name
    alias: Name | None = None
    assignments: tuple[Assignment, ...]
    source: exp.Select | None = None
    where: exp.Expression | None = None
    options: OptionGroup = NO_OPTIONS


@dataclass(frozen=True, kw_only=True)
class Delete(Statement):
    """DELETE FROM table [alias] [USING | FROM source [joins]] [WHERE ...]; `source` as in Update."""

    table: Name
    alias: Name | None = None
    source: exp.Select | None = None
    where: exp.Expression | None = None
    options: OptionGroup = NO_OPTIONS


@dataclass(frozen=True, kw_only=True)
class Merge(Statement):
    """MERGE INTO table [alias] USING source ON condition WHEN ... ; `source` is SELECT * FROM it."""

    table: Name
    alias: Name | None = None
    source: exp.Select
    on: exp.Expression
    clauses: tuple[WhenClause, ...]
    options: OptionGroup = NO_OPTIONS


@dataclass(frozen=True, kw_only=True)
class Select(Statement):
    """A bare query."""

    query: exp.Query
    options: OptionGroup = NO_OPTIONS


@dataclass(frozen=True, kw_only=True)
class Begin(Statement):
    """BEGIN [TRANSACTION | WORK], START TRANSACTION."""


@dataclass(frozen=True, kw_only=True)
class Commit(Statement):
    """COMMIT [TRANSACTION | WORK]."""


@dataclass(frozen=True, kw_only=True)
class Rollback(Statement):
    """ROLLBACK [TRANSACTION | WORK]."""


@dataclass(frozen=True, kw_only=True)
class Show(Statement):
    """SHOW [ALL] TABLES | STREAMS | FLOWS | STATEMENTS | VIEWS | SOURCES | CONNECTORS | OPTIONS FOR subject |
    CHANGES subject [LIMIT n]."""

    kind: str
    subject: Name | None = None
    limit: int | None = None
    with_hidden: bool = False


@dataclass(frozen=True, kw_only=True)
class Describe(Statement):
    """DESCRIBE [EXTENDED] name."""

    name: Name
    extended: bool = False


@dataclass(frozen=True, kw_only=True)
class Explain(Statement):
    """EXPLAIN statement."""

    statement: Statement


@dataclass(frozen=True, kw_only=True)
class SetOption(Statement):
    """SET name = value."""

    name: Name
    value: str = field(repr=False)
