"""The WITH clauses of one statement: determines the owner of each option."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from sqlglot import exp

from millpond import registry
from millpond.errors import MillpondError
from millpond.options import TEXT, Option, find_option
from millpond.plan.catalog import Catalog
from millpond.plan.findings import Findings
from millpond.plan.option_owners import JOIN, JOIN_OPTIONS, STATEMENT, TABLE_OPTIONS, Owner, Shares, read_entries, share
from millpond.redact import redact
from millpond.sql import nodes
from millpond.sql.statements import CreateStream, CreateTable, Insert, OptionEntry, OptionGroup, SourceRef, Statement
from millpond.uris import parse_uri


@dataclass(frozen=True)
class Clauses:
    """The options of a statement by owner; `statement` has parsed values, the rest is parsed by its owner."""

    shares: Shares
    statement: Mapping[str, Any]
    table: tuple[OptionEntry, ...] = ()
    sink: tuple[OptionEntry, ...] = ()

    def of_source(self, node: object) -> tuple[OptionEntry, ...]:
        """The entries of a relation of FROM, or of a stream's own URI."""
        return self.shares.of("source", id(node))


@dataclass(frozen=True)
class _Parts:
    """The possible owners in a statement."""

    sources: Mapping[int, Owner]
    sink: Owner | None
    table: Owner | None
    joins: bool
    statement: Owner | None = STATEMENT

    def at_end(self, adjacent: Owner | None) -> list[Owner]:
        """The possible owners of the WITH at the end: the statement, the table, and the adjacent or only source."""
        source = adjacent or (next(iter(self.sources.values())) if len(self.sources) == 1 else None)
        return [o for o in (source, self.statement, self.table) if o is not None]

    def others(self, owners: list[Owner]) -> list[Owner]:
        known = [*self.sources.values(), self.sink, self.table, JOIN if self.joins else None]
        return [o for o in known if o is not None and o not in owners]


def read_clauses(statement: Statement, query: exp.Expr | None, catalog: Catalog, findings: Findings) -> Clauses:
    """Assign every option of a statement to its owner; unknown, misplaced and ambiguous ones are findings."""
    tables = list(query.find_all(exp.Table)) if query is not None else []
    joins = list(query.find_all(exp.Join)) if query is not None else []
    # A declaration runs nothing that could fail or wait.
    own = None if isinstance(statement, CreateTable) and statement.query is None else STATEMENT
    parts = _Parts(_sources(statement, tables, catalog), _sink(statement), _table(statement), bool(joins), own)
    shares = Shares()
    for node in tables:
        _relation_group(node, parts, shares, findings)
    for join in joins:
        _join_group(join, parts, shares, findings)
    if isinstance(statement, CreateStream) and statement.source is not None:
        adjacent = parts.sources.get(id(statement.source))
        _end_group(statement.source.options, adjacent, parts, shares, findings)
    if isinstance(statement, Insert) and isinstance(statement.target, SourceRef) and parts.sink is not None:
        group = statement.target.options
        share(group, [parts.sink], parts.others([parts.sink]), shares, findings)
    _end_group(getattr(statement, "options", OptionGroup()), None, parts, shares, findings)
    given = read_entries(shares.of(STATEMENT.kind), STATEMENT.options, findings)
    return Clauses(shares, given, shares.of("table"), shares.of("sink"))


def _sources(statement: Statement, tables: list[exp.Table], catalog: Catalog) -> dict[int, Owner]:
    owners = {id(t): owner for t in tables if (owner := _source(t, catalog)) is not None}
    if isinstance(statement, CreateStream) and statement.source is not None:
        own = _uri_owner(statement.source.uri, statement.source)
        if own is not None:
            owners[id(statement.source)] = own
    return owners


def _source(table: exp.Table, catalog: Catalog) -> Owner | None:
    if isinstance(table.this, nodes.Uri):
        return _uri_owner(table.this.text_, table)
    declaration = catalog.declaration(table.name) if isinstance(table.this, exp.Identifier) else None
    if not isinstance(declaration, CreateStream) or declaration.source is None:
        return None
    return _uri_owner(declaration.source.uri, table, f"stream '{declaration.name}'")


def _uri_owner(text: str, node: object, label: str = "") -> Owner | None:
    options = _uri_options("source", text)
    label = label or f"source {redact(text)}"
    where = f"right after {label.removeprefix('source ')} in FROM"
    return None if options is None else Owner("source", label, options, where, id(node))


def _uri_options(kind: str, text: str) -> tuple[Option, ...] | None:
    """The options of a URI's plug-in; None if there is none, which is reported where the URI is opened."""
    try:
        return registry.find(kind, parse_uri(text).scheme).options
    except MillpondError:
        return None


def _sink(statement: Statement) -> Owner | None:
    if not isinstance(statement, Insert) or not isinstance(statement.target, SourceRef):
        return None
    options = _uri_options("sink", statement.target.uri)
    label = f"sink {redact(statement.target.uri)}"
    where = f"right after {redact(statement.target.uri)} in INTO"
    return None if options is None else Owner("sink", label, options, where)


def _table(statement: Statement) -> Owner | None:
    if not isinstance(statement, CreateTable):
        return None
    return Owner("table", f"table '{statement.name}'", (*TABLE_OPTIONS, *_backend_options(statement)), "at the end")


def _backend_options(statement: CreateTable) -> tuple[Option, ...]:
    groups = [statement.options]
    if statement.query is not None:
        groups += [nodes.relation_options(n) for n in statement.query.find_all(exp.Table)]
        groups += [nodes.join_options(n) for n in statement.query.find_all(exp.Join)]
    entries = [e for g in groups for e in g.entries]
    named = [e.value for e in entries if e.name in ("backend", "extension")]
    name = named[0] if named else "memory"
    by_url = (Option("url", TEXT, None, ""),) if name.lower() == JDBC else ()
    try:
        found = registry.find("backend", backend_of_url(entries) if by_url else name).options
        return (*found, *(option for option in by_url if "url" not in {o.name for o in found}))
    except MillpondError:
        return by_url


# Not a backend of its own: the URL determines which.
JDBC = "jdbc"


def backend_of_url(entries: Iterable[OptionEntry]) -> str:
    """The backend of the option 'url', such as postgresql://... or sqlite:users.db; the empty string without one."""
    url = next((entry.value for entry in entries if entry.name == "url"), "")
    scheme = url.removeprefix("jdbc:").partition(":")[0].lower()
    return registry.SCHEME_ALIASES.get(scheme, scheme)


def _relation_group(node: exp.Table, parts: _Parts, shares: Shares, findings: Findings) -> None:
    group = nodes.relation_options(node)
    if not group.entries:
        return
    owner = parts.sources.get(id(node))
    if group.at_end:
        _end_group(group, owner, parts, shares, findings)
    elif owner is not None:
        share(group, [owner], parts.others([owner]), shares, findings)
    elif isinstance(node.this, exp.Identifier):
        share(group, [], parts.others([]), shares, findings)


def _join_group(join: exp.Join, parts: _Parts, shares: Shares, findings: Findings) -> None:
    group = nodes.join_options(join)
    if not group.entries:
        return
    if group.at_end and not all(find_option(e.name, JOIN_OPTIONS) for e in group.entries):
        join.set("mp_options", None)
        _end_group(group, None, parts, shares, findings)
        return
    own = Shares()
    share(group, [JOIN], parts.others([JOIN]), own, findings)
    read_entries(own.of(JOIN.kind), JOIN_OPTIONS, findings)


def _end_group(group: OptionGroup, adjacent: Owner | None, parts: _Parts, shares: Shares, findings: Findings) -> None:
    if group.entries:
        owners = parts.at_end(adjacent)
        share(group, owners, parts.others(owners), shares, findings)
