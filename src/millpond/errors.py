"""What can go wrong, as one tree: every error has a stable code, a sentence, a place and a hint."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import StrEnum

CODES: dict[str, str] = {
    # 1xx: the text
    "MP101": "The text is not SQL as Millpond reads it",
    "MP102": "Words are left over after the end of a statement",
    "MP103": "A quote, bracket or comment is never closed",
    "MP104": "A variable has no value",
    "MP105": "A URI cannot be read",
    "MP106": "A duration cannot be read",
    "MP107": "A size cannot be read",
    "MP108": "A type cannot be read",
    "MP109": "A statement of this kind does not exist",
    "MP110": "The SQL file cannot be read",
    # 2xx: names, types and shape
    "MP201": "A stream, table or view has no such name",
    "MP202": "A column has no such name",
    "MP203": "Two streams are joined without a time bound",
    "MP204": "A column name fits several relations",
    "MP205": "A name is declared twice",
    "MP206": "Types do not fit each other",
    "MP207": "The number of columns does not fit",
    "MP208": "A key is missing or wrong",
    "MP209": "Two output columns have the same name",
    "MP210": "A column is neither grouped nor aggregated",
    "MP211": "A window is wrong here",
    "MP212": "Statements depend on each other in a circle",
    "MP213": "A stream feeds itself",
    "MP214": "A table defined by a query cannot be changed by another statement",
    "MP215": "A stream stands where only a table can, or a table where only a stream can",
    "MP216": "A join or UNION ALL emits rows of a table in every batch",
    "MP217": "A transaction is wrong here",
    "MP218": "Two streams are mixed in one statement",
    "MP219": "A function has no such name, takes other arguments or is refused",
    "MP220": "An aggregate or window function stands where none can",
    "MP221": "Something could not be verified without running",
    "MP222": "Two flows feed each other's tables",
    "MP223": "A statement cannot be changed back or does nothing",
    "MP224": "A subquery is wrong here",
    "MP225": "A default or constraint is wrong",
    "MP226": "A hint does not exist or names no table of the statement",
    "MP228": "A name is reserved",
    "MP229": "The order of events costs time, or what a statement reads depends on batches",
    # 3xx: options, settings, plug-ins
    "MP301": "An option has no such name",
    "MP302": "An option has a value that it cannot take",
    "MP303": "An option stands where it does not belong",
    "MP304": "An option could belong to two owners",
    "MP305": "An option is missing",
    "MP306": "An option is given twice",
    "MP307": "A setting is wrong",
    "MP308": "There is no plug-in of this name",
    "MP309": "A plug-in needs something that is not installed",
    "MP310": "The command line is wrong",
    # 4xx: tables
    "MP401": "A column that must not be NULL is",
    "MP402": "A key is there already",
    "MP403": "A key column is NULL",
    "MP404": "A value does not fit its column",
    "MP405": "Another transaction changed the same rows first",
    "MP406": "A table is full",
    "MP407": "A stored table is damaged",
    "MP408": "An expression failed on a row",
    "MP409": "A table cannot do this",
    "MP410": "A transaction has ended",
    "MP411": "A parameter is missing or one too many",
    "MP412": "A row would be set to several values at once",
    "MP413": "A row breaks a CHECK constraint",
    # 5xx: sources
    "MP501": "A source is not there",
    "MP502": "A source cannot be read",
    "MP503": "A source's columns are not the declared ones",
    "MP504": "A record cannot be read",
    "MP505": "A source's columns cannot be found out",
    "MP506": "A source cannot be reached",
    "MP507": "A source refuses the login",
    "MP508": "A source is configured wrongly",
    "MP509": "A table's loading was stopped by its limit",
    "MP510": "A file was rewritten and is read again",
    "MP511": "Messages were gone before they were read",
    "MP512": "A dead letter cannot be sent again",
    # 6xx: sinks
    "MP601": "A sink cannot be written",
    "MP602": "A sink cannot be reached",
    # 7xx: running
    "MP701": "A statement failed while running",
    "MP702": "A scalar subquery found more than one row",
    "MP703": "A table was not ready in time",
    "MP704": "A joined row is missing",
    "MP705": "Spark failed",
    "MP706": "A row came after its window had closed",
    "MP707": "Nothing feeds this source",
    "MP708": "Something did not run because of a failure before it",
    "MP709": "A statement waits for a table, or goes on without it",
    "MP710": "The app was stopped",
    "MP711": "A running app does not answer",
    "MP712": "What was sent is not in the tables in time",
    "MP713": "A running app cannot do this now",
    # 8xx: state
    "MP801": "The state directory is in use by another process",
    "MP802": "The state directory belongs to another app",
    "MP803": "The state directory was written by another version",
    "MP804": "The state directory is damaged",
    "MP805": "The disk is full or cannot be written",
    "MP806": "The changed SQL file would lose data",
    "MP807": "There is no state yet",
    "MP808": "A torn end of the commit log was cut off",
    "MP809": "The checkpoint and the state directory disagree",
    "MP810": "A commit is in the log but not in the tables; a restart does it",
    "MP811": "A statement was added to a stream that has been read",
    "MP812": "A file of the state directory was missing and was made again",
    "MP813": "A view or loaded table is defined otherwise and is made again",
    "MP814": "Aggregates that were added to a table count what comes from now on",
    "MP815": "A table cannot be computed again from the beginning of its source",
    "MP816": "Rows were refused while a table was computed again",
    # 9xx: this installation
    "MP901": "This is understood but cannot run yet in this version",
    "MP902": "Java is missing or too old",
    "MP903": "A connector's jars are missing",
    "MP999": "A bug in Millpond",
}


@dataclass(frozen=True)
class Place:
    """A spot in a SQL file; `excerpt` is its line with secrets masked, for the caret below it."""

    file: str
    line: int
    column: int
    length: int = 1
    excerpt: str = field(default="", compare=False, repr=False)

    def __str__(self) -> str:
        return f"{self.file}:{self.line}:{self.column}"


class Severity(StrEnum):
    """How much a problem matters: an error stops, a warning does not, a note says what could not be verified."""

    ERROR = "error"
    WARNING = "warning"
    NOTE = "note"


@dataclass(frozen=True)
class Problem:
    """One finding, as data: what checks return, what errors carry, what the command line prints."""

    code: str
    message: str
    place: Place | None = None
    hint: str = ""
    severity: Severity = Severity.ERROR

    def __post_init__(self) -> None:
        assert self.code in CODES, self.code

    def __str__(self) -> str:
        where = f" {self.place}" if self.place else ""
        word = "" if self.severity is Severity.ERROR else f"{self.severity}: "
        head = f"{self.code}{where}  {word}{self.message}"
        return "\n".join([head, *self._excerpt(), *([f"  hint: {self.hint}"] if self.hint else [])])

    def _excerpt(self) -> list[str]:
        if not self.place or not self.place.excerpt.strip():
            return []
        number = f"{self.place.line:>5} | "
        before = self.place.excerpt[: self.place.column - 1]
        blank = "".join("\t" if c == "\t" else " " for c in before)
        room = max(1, len(self.place.excerpt) - len(before))
        caret = "^" * max(1, min(self.place.length, room))
        return [f"{number}{self.place.excerpt}", f"{'':>5} | {blank}{caret}"]

    def as_json(self) -> dict[str, object]:
        """The finding for `--json`."""
        place = self.place
        return {
            "severity": str(self.severity),
            "code": self.code,
            "message": self.message,
            "file": place.file if place else None,
            "line": place.line if place else None,
            "column": place.column if place else None,
            "hint": self.hint or None,
        }


class MillpondError(Exception):
    """Anything Millpond raises on purpose; `problems` has one entry, or several when a file has several mistakes."""

    exit_code = 1

    def __init__(self, code: str, message: str, *, place: Place | None = None, hint: str = "") -> None:
        self.problems: tuple[Problem, ...] = (Problem(code, message, place, hint),)
        super().__init__(message)

    @classmethod
    def of(cls, problems: Iterable[Problem]) -> MillpondError:
        """One error for several findings, in their order."""
        found = tuple(problems)
        assert found, "an error needs a problem"
        error = cls(found[0].code, found[0].message, place=found[0].place, hint=found[0].hint)
        error.problems = found
        return error

    @property
    def code(self) -> str:
        return self.problems[0].code

    @property
    def place(self) -> Place | None:
        return self.problems[0].place

    @property
    def hint(self) -> str:
        return self.problems[0].hint

    def at(self, place: Place | None) -> MillpondError:
        """The same error with a place, unless it has one already."""
        if place is None or self.place is not None:
            return self
        first = self.problems[0]
        self.problems = (Problem(first.code, first.message, place, first.hint), *self.problems[1:])
        return self

    def __str__(self) -> str:
        return "\n".join(str(p) for p in self.problems)


class InputError(MillpondError):
    """The user wrote something wrong that `check` could have told: exit code 2."""

    exit_code = 2


class SqlError(InputError):
    """The text cannot be parsed (MP1xx)."""


class BindError(InputError):
    """Names, types or shape are wrong (MP2xx)."""


class OptionError(InputError):
    """An option, setting or plug-in name is wrong (MP3xx)."""


class NotYetError(InputError):
    """Understood, but not runnable in this version (MP901); `check` reports it too."""


class RunError(MillpondError):
    """Something failed while running: exit code 1."""


class TableError(RunError):
    """A table refused or failed (MP4xx)."""


class ConstraintError(TableError):
    """A value breaks NOT NULL, the key or a type; nothing was changed."""


class ConflictError(TableError):
    """Another transaction changed the same rows first; the caller may try again."""

    retryable = True


class SourceError(RunError):
    """A source failed (MP5xx)."""


class SinkError(RunError):
    """A sink failed (MP6xx)."""


class FlowError(RunError):
    """A statement of a flow failed (MP7xx)."""


class StateError(RunError):
    """The state directory cannot be used (MP8xx)."""


class SetupError(RunError):
    """This installation lacks something (MP9xx)."""
