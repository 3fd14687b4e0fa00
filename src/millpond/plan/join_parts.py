"""The parts of a SELECT over several streams: the stream that each join adds, its conditions, and tables joined before.

Streams are joined pairwise, tables afterwards. Only a table that is needed for the condition of a join is joined before
that stream: in ON of a LEFT JOIN, or if no other equality connects the stream with the others.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from sqlglot import exp

from millpond.plan.bound import BoundSelect, Item
from millpond.plan.model import VERSIONS, reads_versions
from millpond.sql.conditions import all_of

# Separates the alias of a table that was joined early from its column, in the rows that are passed to the join.
OF = "$"


@dataclass(frozen=True)
class Refusal:
    """Why a join of streams is not supported, and a hint."""

    at: Item
    message: str
    hint: str


@dataclass(frozen=True)
class Early:
    """A table that is joined before a stream: `kind` is left or inner, and `columns` are those that are read."""

    item: Item
    join: exp.Join
    columns: tuple[str, ...]


@dataclass(frozen=True)
class Part:
    """One join: the stream that it adds, its kind (inner, left, semi or anti) and conditions, and the tables that these
    read."""

    item: Item
    kind: str
    conditions: tuple[exp.Expr, ...]
    tables: tuple[Early, ...] = ()


@dataclass(frozen=True)
class Apart:
    """A SELECT over streams: its parts in order, and the conditions of their ON that are evaluated on the joined
    rows."""

    select: BoundSelect
    parts: tuple[Part, ...]
    rest: tuple[exp.Expr, ...]

    @property
    def streams(self) -> tuple[Item, ...]:
        return self.select.streams


def take_apart(select: BoundSelect) -> Apart | Refusal | None:
    """The parts of a SELECT over several streams; None for one that other checks reject: RIGHT and FULL JOIN,
    CHANGES."""
    if any(len(i.drivers) != 1 or i.drivers[0].startswith("changes(") for i in select.streams):
        return None
    if reads_versions(select.node):
        message = f"'{VERSIONS.name}' is not supported in a join of streams."
        return Refusal(select.streams[0], message, "Read it in a statement over one stream.")
    entries = _entries(select)
    if isinstance(entries, Refusal):
        return entries
    sides = [_words(join) for item, join in entries if join is not None and item.drivers]
    if any(word in ("RIGHT", "FULL") for words in sides for word in words):
        return None
    return _Taking(select, entries).apart()


Entry = tuple[Item, exp.Join | None]


def _entries(select: BoundSelect) -> list[Entry] | Refusal:
    """The relations of FROM with their joins, in order."""
    items = {id(i.node): i for i in select.scope.items}
    found: list[Entry] = []
    for node, join in [
        (select.node.args["from_"].this, None),
        *((j.this, j) for j in select.node.args.get("joins") or ()),
    ]:
        if id(node) in items:
            found.append((items[id(node)], join))
    placed = {id(item) for item, _ in found}
    inside = next((i for i in select.streams if id(i) not in placed), None)
    if inside is None:
        return found
    message = f"A join of streams in brackets is not supported: {inside.label} is inside."
    return Refusal(inside, message, "Write the joins one after another: FROM a JOIN b ON ... JOIN c ON ...")


def _words(join: exp.Join) -> set[str]:
    return set(f"{join.args.get('side') or ''} {join.args.get('kind') or ''}".upper().split())


def is_inner(join: exp.Join) -> bool:
    return _words(join) <= {"INNER", "CROSS"}


@dataclass
class _Taking:
    """Processes the joins of one SELECT from left to right."""

    select: BoundSelect
    entries: Sequence[Entry]
    known: set[str] = field(default_factory=set)
    early: set[str] = field(default_factory=set)
    rest: list[exp.Expr] = field(default_factory=list)

    def apart(self) -> Apart | Refusal:
        first = self.select.streams[0]
        self.known.add(first.alias)
        before = self._before(first)
        if isinstance(before, Refusal):
            return before
        parts: list[Part] = []
        for item, join in self.entries:
            if join is None or not item.drivers or item is first:
                continue
            part = self._part(item, join, [] if parts else before)
            if isinstance(part, Refusal):
                return part
            parts.append(part)
        refusal = self._misplaced()
        return refusal or Apart(self.select, tuple(parts), tuple(self.rest))

    def _misplaced(self) -> Refusal | None:
        """Reject a join of a table that would add rows: tables are joined later than written."""
        last = max(n for n, (item, _) in enumerate(self.entries) if item.drivers)
        for number, (item, join) in enumerate(self.entries):
            words = _words(join) & {"RIGHT", "FULL"} if join is not None else set()
            if words and (number < last or self.rest):
                message = f"{words.pop()} JOIN of a table is not supported in a join of streams."
                return Refusal(item, message, "Use JOIN or LEFT JOIN, or store the joined events in a table first.")
        return None

    def _before(self, first: Item) -> list[str] | Refusal:
        """The tables before the first stream."""
        found: list[Item] = []
        for item, join in self.entries:
            if found and join is not None and not is_inner(join):
                message = f"A join of streams cannot start from {found[0].label}."
                return Refusal(item, message, f"Write the stream first: FROM {first.alias} JOIN ... ON ...")
            if item is first:
                self.rest += all_of(join.args.get("on")) if join is not None else ()
                break
            found.append(item)
        return [item.alias for item in found]

    def _part(self, item: Item, join: exp.Join, before: list[str]) -> Part | Refusal:
        self.known.add(item.alias)
        words = _words(join)
        kind = next((word for word in ("SEMI", "ANTI", "LEFT") if word in words), "INNER")
        conditions = list(all_of(join.args.get("on")))
        if is_inner(join):
            needed = self._sorted_out(item, conditions)
        else:
            inside = next((c for c in conditions if c.find(exp.Query) is not None), None)
            if inside is not None:
                message = f"A subquery is not supported in ON of the {kind} JOIN with {item.label}."
                return Refusal(item, message, "Use it in a derived stream before the join, or in WHERE.")
            needed = _named(conditions) - self.known
        tables = self._tables([*before, *needed], item)
        if isinstance(tables, Refusal):
            return tables
        return Part(item, kind.lower(), tuple(conditions), tuple(tables))

    def _sorted_out(self, item: Item, conditions: list[exp.Expr]) -> set[str]:
        """Keep the conditions that the join itself evaluates; the rest is evaluated on the joined rows. Returns the
        tables that the join needs."""
        inner, apart = list(conditions), [c for c in self._where() if item.alias in _named([c])]
        # A time bound may be in WHERE, but Spark removes state only by the conditions of the join.
        conditions[:] = [c for c in (*inner, *apart) if self._asks(c, self.known | self.early)]
        needed: set[str] = set()
        if not any(_ties(c, item.alias) for c in conditions):
            tables = {i.alias for i, _ in self.entries if not i.drivers}
            tying = [c for c in (*inner, *apart) if _ties(c, item.alias) and self._asks(c, self.known | tables)]
            conditions += tying
            needed = _named(tying) - self.known
        self.rest += [c for c in inner if all(c is not asked for asked in conditions)]
        return needed

    def _where(self) -> list[exp.Expr]:
        where = self.select.node.args.get("where")
        return list(all_of(where.this)) if where is not None else []

    def _asks(self, condition: exp.Expr, known: set[str]) -> bool:
        return condition.find(exp.Query) is None and _named([condition]) <= known

    def _tables(self, wanted: Sequence[str], stream: Item) -> list[Early] | Refusal:
        """The tables that are joined before a stream, with those that they depend on, in their order."""
        needed = set(wanted) - self.early
        joins = {item.alias: join for item, join in self.entries if join}
        while more := {a for n in needed & {*joins} for a in self._needs(joins[n])} - needed - self.known - self.early:
            needed |= more
        made = []
        for item, join in self.entries:
            if item.alias not in needed:
                continue
            if item.drivers or not isinstance(item.node, exp.Table | exp.Subquery):
                message = f"{item.label} and {stream.label} are each joined by a condition that requires the other."
                return Refusal(stream, message[0].upper() + message[1:], "Join it in a derived stream first.")
            self.early.add(item.alias)
            made.append(Early(item, self._joined_early(item, join), tuple(self._read(item))))
        return made

    def _needs(self, join: exp.Join | None) -> set[str]:
        return _named(list(all_of(join.args.get("on")))) if join is not None else set()

    def _joined_early(self, item: Item, join: exp.Join | None) -> exp.Join:
        """The join of a table, with all conditions that can be evaluated at that point."""
        if join is not None and not is_inner(join):
            return join.copy()
        pool = [c for i, j in self.entries if j is not None and is_inner(j) for c in all_of(j.args.get("on"))]
        known = (self.known - self._later()) | self.early
        due = [c for c in (*pool, *self._where()) if item.alias in _named([c]) and self._asks(c, known)]
        own = all_of(join.args.get("on")) if join is not None else ()
        self.rest += [c for c in own if all(c is not asked for asked in due)]
        made = exp.Join(this=item.node.copy()) if join is None else join.copy()
        made.set("kind", None if due else "CROSS")
        made.set("on", exp.and_(*(c.copy() for c in due)) if due else None)
        return made

    def _later(self) -> set[str]:
        """The stream that is being added, to which conditions of earlier tables cannot refer."""
        streams = [i.alias for i in self.select.streams if i.alias in self.known]
        return {streams[-1]} if len(streams) > 1 else set()

    def _read(self, item: Item) -> Iterator[str]:
        """The columns of a table that the statement reads."""
        root = self.select.node
        yield from dict.fromkeys(c.name for c in root.find_all(exp.Column) if c.table == item.alias)


def _named(conditions: Sequence[exp.Expr]) -> set[str]:
    return {c.table for condition in conditions for c in condition.find_all(exp.Column)}


def _ties(condition: exp.Expr, alias: str) -> bool:
    """Whether it is an equality between one relation and others."""
    if not isinstance(condition, exp.EQ):
        return False
    sides = [_named([side]) for side in (condition.this, condition.expression)]
    return any(one == {alias} and two and alias not in two for one, two in (sides, sides[::-1]))
