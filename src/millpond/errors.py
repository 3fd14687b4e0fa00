"""The exception classes, the error codes, and `Problem`: a code, a message, a place in the SQL file and a hint."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from difflib import get_close_matches
from enum import StrEnum

CODES: dict[str, str] = {
    # 1xx: the text
    "MP101": "The text is not valid SQL",
    "MP102": "A statement is followed by unexpected words",
    "MP103": "A quote, bracket or comment is never closed",
    "MP104": "A variable has no value",
    "MP105": "A URI cannot be parsed",
    "MP106": "A duration cannot be parsed",
    "MP107": "A size cannot be parsed",
    "MP108": "A type cannot be parsed",
    "MP109": "Millpond has no such statement",
    "MP110": "The SQL file cannot be read",
    # 2xx: names, types and shape
    "MP201": "A stream, table or view does not exist",
    "MP202": "A column does not exist",
    "MP203": "Two streams are joined without a time bound",
    "MP204": "A column name is ambiguous",
    "MP205": "A name is declared twice",
    "MP206": "Types are not compatible",
    "MP207": "The number of columns does not match",
    "MP208": "A key is missing or invalid",
    "MP209": "Two output columns have the same name",
    "MP210": "A column is neither grouped nor aggregated",
    "MP211": "A window is not allowed here, or is invalid",
    "MP212": "Statements depend on each other in a cycle",
    "MP213": "A stream feeds itself",
    "MP214": "A table defined by a query cannot be changed by another statement",
    "MP215": "A stream is used where a table is required, or a table where a stream is required",
    "MP216": "A join or UNION ALL emits rows of a table in every batch",
    "MP217": "A transaction is not allowed here, or is invalid",
    "MP218": "One statement or transaction mixes two streams",
    "MP219": "A function does not exist, takes other arguments or is not supported",
    "MP220": "An aggregate or window function is not allowed here",
    "MP221": "Something cannot be verified before the app runs",
    "MP222": "Two flows feed each other's tables",
    "MP223": "A statement cannot be undone or has no effect",
    "MP224": "A subquery is not allowed here, or is invalid",
    "MP225": "A default or constraint is invalid",
    "MP226": "A hint does not exist or names no table of the statement",
    "MP228": "A name is reserved",
    "MP229": "Keeping the order of events is slow, or a result depends on how events are batched",
    # 3xx: options, settings, plug-ins
    "MP301": "An option does not exist",
    "MP302": "An option has an invalid value",
    "MP303": "An option is not allowed here",
    "MP304": "An option could belong to two owners",
    "MP305": "An option is missing",
    "MP306": "An option is given twice",
    "MP307": "A setting does not exist or is invalid",
    "MP308": "A plug-in does not exist",
    "MP309": "A plug-in requires something that is not installed",
    "MP310": "The command line is invalid",
    # 4xx: tables
    "MP401": "A NOT NULL column is NULL",
    "MP402": "A key exists already",
    "MP403": "A key column is NULL",
    "MP404": "A value cannot be stored in its column",
    "MP405": "Another transaction changed the same rows first",
    "MP406": "A table is full",
    "MP407": "A stored table is damaged",
    "MP408": "An expression failed on a row",
    "MP409": "A table does not support this",
    "MP410": "A transaction has already ended",
    "MP411": "A parameter is missing, or there are too many",
    "MP412": "A row would be set to several values at once",
    "MP413": "A row violates a CHECK constraint",
    # 5xx: sources
    "MP501": "A source does not exist",
    "MP502": "A source cannot be read",
    "MP503": "A source's columns differ from the declared ones",
    "MP504": "A record cannot be read",
    "MP505": "A source's columns cannot be discovered",
    "MP506": "A source cannot be reached",
    "MP507": "A source rejects the login",
    "MP508": "A source's configuration is invalid",
    "MP509": "The load of a table was stopped by its limit",
    "MP510": "A file was rewritten and is read again",
    "MP511": "Messages were removed before they were read",
    "MP512": "A dead letter cannot be replayed",
    "MP513": "Changes of a table were removed before they were read",
    "MP514": "Changes of a table cannot be captured",
    "MP515": "Some changes of a source are not seen",
    "MP516": "A source that is looked up cannot be read in this way",
    # 6xx: sinks
    "MP601": "A sink cannot be written",
    "MP602": "A sink cannot be reached",
    "MP603": "A sink rejected a row",
    # 7xx: running
    "MP701": "A statement failed while running",
    "MP702": "A scalar subquery returned more than one row",
    "MP703": "A table was not ready in time",
    "MP704": "A joined row is missing",
    "MP705": "Spark failed",
    "MP706": "A row arrived after its window was closed",
    "MP707": "Nothing feeds this source",
    "MP708": "Something did not run because of an earlier failure",
    "MP709": "A statement waits for a table, or continues without it",
    "MP710": "The app was stopped",
    "MP711": "A running app does not respond",
    "MP712": "Sent records did not reach the tables in time",
    "MP713": "A running app cannot do this now",
    "MP714": "A query was cancelled or took too long",
    "MP715": "A request was rejected",
    "MP716": "The address to listen at cannot be used",
    # 8xx: state
    "MP801": "The state directory is in use by another process",
    "MP802": "The state directory belongs to another app",
    "MP803": "The state directory was written by another version",
    "MP804": "The state directory is damaged",
    "MP805": "The disk is full or cannot be written",
    "MP806": "The changed SQL file would lose data",
    "MP807": "There is no state yet",
    "MP808": "An incomplete record at the end of the commit log was removed",
    "MP809": "The checkpoint and the state directory disagree",
    "MP810": "A commit is in the log but not in the tables; a restart applies it",
    "MP811": "A statement was added to a stream that has already been read",
    "MP812": "A file of the state directory was missing and was rebuilt",
    "MP813": "The definition of a view or loaded table changed, and it is rebuilt",
    "MP814": "Aggregates added to a table count only events from now on",
    "MP815": "A table cannot be recomputed from the beginning of its source",
    "MP816": "Rows were rejected while a table was recomputed",
    "MP817": "The storage of an app on a cluster cannot be reached",
    # 9xx: this installation
    "MP901": "Not supported in this version",
    "MP902": "Java is missing or too old",
    "MP903": "A connector's jars are missing",
    "MP905": "A Spark cluster requires storage that its executors share",
    "MP904": "The archive of Java's classes cannot be made",
    "MP999": "A bug in Millpond",
}


@dataclass(frozen=True)
class Place:
    """A position in a SQL file; `excerpt` is its line with secrets masked, printed with a caret below it."""

    file: str
    line: int
    column: int
    length: int = 1
    excerpt: str = field(default="", compare=False, repr=False)

    def __str__(self) -> str:
        return f"{self.file}:{self.line}:{self.column}"


class Severity(StrEnum):
    """An error prevents the start, a warning does not, a note reports what cannot be verified before the app runs."""

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
    """Base class of every error that Millpond raises; `problems` has one entry per mistake in a file."""

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
    """A mistake in the SQL file, the options or the command line, most of which `check` reports: exit code 2."""

    exit_code = 2


class SqlError(InputError):
    """The text cannot be parsed (MP1xx)."""


class BindError(InputError):
    """Names, types or shape are wrong (MP2xx)."""


class OptionError(InputError):
    """An option, setting or plug-in name is wrong (MP3xx)."""


class NotYetError(InputError):
    """Valid SQL that this version does not support (MP901); `check` reports it too."""


class RunError(MillpondError):
    """A failure while the app runs: exit code 1."""


class TableError(RunError):
    """A table rejected a change, or failed (MP4xx)."""


class ConstraintError(TableError):
    """A value violates NOT NULL, the key or a type; nothing was changed."""


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
    """Something that Millpond requires is not installed (MP9xx)."""


def nearest(name: str, names: Iterable[str]) -> str | None:
    """The name most similar to `name`, or None when none is similar enough."""
    # Names are compared without regard to case, but the hint spells one as it was declared.
    by_key = {n.lower(): n for n in names}
    found = get_close_matches(name.lower(), list(by_key), n=1, cutoff=0.6)
    return by_key[found[0]] if found else None


def did_you_mean(name: str, names: Iterable[str]) -> str:
    """A sentence for a hint, or the empty string: `Did you mean 'users'?`"""
    found = nearest(name, names)
    return f"Did you mean '{found}'?" if found else ""
