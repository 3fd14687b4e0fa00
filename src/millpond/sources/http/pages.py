"""The pages of a response: requested one after another, stored as files of records, and recognized if unchanged."""

from __future__ import annotations

import codecs
import hashlib
import json
import re
import shutil
import tempfile
from dataclasses import dataclass, field
from mmap import ACCESS_READ, mmap
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, urlencode, urlsplit, urlunsplit

from millpond.contracts.source import SourceSpec
from millpond.sources.http.client import Answer, Client, Validators
from millpond.sources.http.json_text import NotJson, locate, skip_blank, start_of, value_at, values_of
from millpond.sources.records.formats import FileFormat, ending_format, file_format
from millpond.sources.records.text_reader import BLANKS, is_json

COPY_BYTES = 1 << 20
LAST_LINE_BYTES = 1 << 20
TYPES = {
    "application/json": "json",
    "application/x-ndjson": "jsonl",
    "application/ndjson": "jsonl",
    "application/jsonl": "jsonl",
    "application/jsonlines": "jsonl",
    "application/x-jsonlines": "jsonl",
    "text/csv": "csv",
    "application/csv": "csv",
}


@dataclass(frozen=True)
class ResponseState:
    """What is stored of a response: its pages with their validators, and a digest."""

    pages: tuple[tuple[str, str | None, str | None], ...]
    digest: str

    @classmethod
    def of(cls, stored: Any) -> ResponseState | None:
        if not stored:
            return None
        return cls(tuple((url, etag, modified) for url, etag, modified in stored["pages"]), stored["digest"])

    def stored(self) -> dict[str, Any]:
        """As JSON."""
        return {"pages": [list(page) for page in self.pages], "digest": self.digest}

    def validators(self, page: int) -> Validators | None:
        _, etag, modified = self.pages[page]
        return Validators(etag, modified) if etag or modified else None


@dataclass(frozen=True)
class Page:
    """The records of one page: `path` is a file in UTF-8 with nothing else in it."""

    path: Path
    url: str
    form: FileFormat


@dataclass
class Look:
    """One poll of the server. Without `pages`, nothing has changed. The files exist until `close`."""

    state: ResponseState
    pages: list[Page] = field(default_factory=list)
    folder: Path | None = None
    bytes: int = 0

    def close(self) -> None:
        if self.folder is not None:
            shutil.rmtree(self.folder, ignore_errors=True)
            self.folder = None


class Pages:
    """Requests the pages of one source; used by one thread at a time."""

    def __init__(self, spec: SourceSpec) -> None:
        self._spec, self._client = spec, Client(spec)
        self._rows = _path(spec.values["rows"])
        self._next = _path(spec.values["http.page.next"])

    def look(self, known: ResponseState | None) -> Look:
        """The current content; unchanged if the server, or a digest of the content, shows it."""
        number = 0
        while known is not None and number < len(known.pages):
            with self._client.get(known.pages[number][0], known.validators(number)) as answer:
                if answer.is_unchanged:
                    number += 1
                    continue
                # If the first page has changed, all are requested; else those before a changed one must be requested
                # again.
                return self._read(answer if number == 0 else None, known)
        if known is not None:
            return Look(known)
        return self._read(None, None)

    def _read(self, first: Answer | None, known: ResponseState | None) -> Look:
        look = Look(ResponseState((), ""), folder=Path(tempfile.mkdtemp(prefix="millpond-http-")))
        try:
            marks: list[tuple[str, str | None, str | None]] = []
            digest = hashlib.sha256()
            url: str | None = self._client.url
            while url is not None:
                self._require_bounded(url, marks)
                if first is not None:
                    asked, url = url, self._page(first, look, digest, len(marks))
                    validators, first = first.validators, None
                else:
                    with self._client.get(url) as answer:
                        asked, url = url, self._page(answer, look, digest, len(marks))
                        validators = answer.validators
                marks.append((asked, validators.etag, validators.modified))
            look.state = ResponseState(tuple(marks), digest.hexdigest())
        except BaseException:
            look.close()
            raise
        if known is not None and known.digest == look.state.digest:
            look.close()
            return Look(ResponseState(tuple(marks), known.digest))
        return look

    def _require_bounded(self, url: str, marks: list[tuple[str, str | None, str | None]]) -> None:
        most = self._spec.values["http.page.max"]
        if any(url == before for before, *_ in marks):
            raise self._client.refused_body("names a page as the next that was read already", url, None)
        if len(marks) >= most:
            raise self._client.refused_body(f"has more than {most:,} pages ('http.page.max')", self._client.url, None)

    def _page(self, answer: Answer, look: Look, digest: Any, number: int) -> str | None:
        """Store one page; returns the address of the next."""
        assert look.folder is not None
        path = look.folder / f"{number}.body"
        with path.open("wb") as out:
            answer.save(out)
        self._to_utf8(answer, path)
        with path.open("rb") as body:
            while part := body.read(COPY_BYTES):
                digest.update(part)
        look.bytes += path.stat().st_size
        form = look.pages[0].form if look.pages else self._form(answer)
        following = self._sound(answer, path, form)
        has_records = _has_records(path, form)
        look.pages.append(Page(path, answer.url, form))
        return self._following(answer, following, has_records, number)

    def _form(self, answer: Answer) -> FileFormat:
        named = Path(urlsplit(answer.url).path)
        kind = answer.header("Content-Type").partition(";")[0].strip().lower()
        ending = ending_format(named)
        name = self._spec.values["format"] or (ending if ending != "parquet" else None) or TYPES.get(kind, "json")
        return file_format({**self._spec.values, "format": name, "encoding": "utf-8"}, named, [], self._spec.shown)

    def _to_utf8(self, answer: Answer, path: Path) -> None:
        """Text of another encoding is stored as UTF-8; MP502 where it is not text in it."""
        parameters = (kind.partition("=") for kind in answer.header("Content-Type").split(";")[1:])
        reported = [v.strip().strip('"') for n, _, v in parameters if n.strip().lower() == "charset"]
        encoding = self._spec.values["encoding"] or (reported[0] if reported else "utf-8")
        try:
            if codecs.lookup(encoding).name in ("utf-8", "ascii"):
                return
            other = path.with_suffix(".utf8")
            with path.open(encoding=encoding, newline="") as text, other.open("w", encoding="utf-8", newline="") as out:
                shutil.copyfileobj(text, out, COPY_BYTES)
            other.replace(path)
        except (LookupError, UnicodeError) as error:
            raise self._client.refused_body(f"is not text in '{encoding}'", answer.url, _head(path)) from error

    def _sound(self, answer: Answer, path: Path, form: FileFormat) -> Any:
        """MP502 unless the body is what was promised; of JSON, the rows are cut out. Returns what names the next."""
        head = _head(path).lstrip(b"\xef\xbb\xbf" + BLANKS)
        if form.name != "json":
            if head.startswith(b"<"):
                raise self._client.refused_body(f"is not {form.name}", answer.url, head)
            if form.name == "jsonl" and not _ends_whole(path):
                raise self._client.refused_body("is cut off within a line", answer.url, head)
            return None
        if not head:
            raise self._client.refused_body("is not JSON", answer.url, head)
        try:
            with path.open("rb") as file, mmap(file.fileno(), 0, access=ACCESS_READ) as text:
                following = self._value(text, self._next) if self._next else None
                if not self._rows:
                    _require_records(text)
                    return following
                place = locate(text, self._rows)
                _require_whole(text)
                if place is None or text[place[0] : place[0] + 1] != b"[":
                    what = "does not exist" if place is None else "is not a list"
                    why = f"is not as expected: the value of 'rows' = '{self._spec.values['rows']}' {what}"
                    raise self._client.refused_body(why, answer.url, head)
                self._cut(text, place, path)
                return following
        except NotJson as error:
            raise self._client.refused_body(f"is not JSON: {error}", answer.url, head) from error

    def _value(self, text: mmap, path: tuple[str, ...]) -> Any:
        place = locate(text, path)
        return None if place is None else value_at(text, place)

    def _cut(self, text: mmap, place: tuple[int, int], path: Path) -> None:
        """Keep of a body only the list of rows."""
        other = path.with_suffix(".rows")
        with other.open("wb") as out:
            for start in range(*place, COPY_BYTES):
                out.write(text[start : min(start + COPY_BYTES, place[1])])
        other.replace(path)

    def _following(self, answer: Answer, following: Any, has_records: bool, number: int) -> str | None:
        """The address of the next page."""
        how, parameter = self._spec.values["http.page"], self._spec.values["http.page.parameter"]
        if how == "link":
            target = next_link(answer.header("Link"))
            return None if target is None else self._at(answer, target)
        if how == "next" and following not in (None, "", False):
            if parameter:
                return with_parameter(self._client.url, parameter, _spelled(following))
            if not isinstance(following, str):
                why = f"has no address at 'http.page.next' = '{self._spec.values['http.page.next']}'"
                raise self._client.refused_body(why, answer.url, None)
            return self._at(answer, following)
        if how == "number" and has_records:
            name, first = parameter or "page", self._first_number(parameter or "page")
            return with_parameter(self._client.url, name, str(first + number + 1))
        return None

    def _first_number(self, name: str) -> int:
        """The number of the first page: as the URI has it, else 1."""
        found = dict(parse_qsl(urlsplit(self._client.url).query)).get(name, "")
        return int(found) if found.isdigit() else 1

    def _at(self, answer: Answer, target: str) -> str:
        return self._client.allowed(answer.url, target, "names as its next page")


def _spelled(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)


def _path(text: str | None) -> tuple[str, ...]:
    return tuple(part for part in (text or "").split(".") if part)


def _head(path: Path) -> bytes:
    with path.open("rb") as file:
        return file.read(COPY_BYTES)


def _require_whole(text: mmap) -> None:
    for count, _ in enumerate(values_of(text)):
        if count:
            raise NotJson("something follows the first value")


def _require_records(text: mmap) -> None:
    """NotJson unless the text is one list, one object, or objects one after another."""
    firsts = (text[start : start + 1] for start, _ in values_of(text))
    for count, first in enumerate(firsts):
        if first != b"{" and (count or first != b"["):
            raise NotJson("it is neither a list nor an object")


def _ends_whole(path: Path) -> bool:
    """Whether the last line has its end, or is JSON as it is."""
    size = path.stat().st_size
    with path.open("rb") as file:
        file.seek(max(size - LAST_LINE_BYTES, 0))
        last = file.read().rpartition(b"\n")[2]
    return not last.strip(BLANKS) or len(last) >= LAST_LINE_BYTES or is_json(last)


def _has_records(path: Path, form: FileFormat) -> bool:
    head = _head(path)
    if form.name == "json":
        at = start_of(head)
        return head[at : at + 1] != b"[" or head[skip_blank(head, at + 1) :][:1] != b"]"
    lines = [line for line in head.splitlines()[:3] if line.strip()]
    return len(lines) > (form.name == "csv" and form.header)


LINK = re.compile(r"<(?P<target>[^>]*)>(?P<parameters>(?:\s*;\s*[^\s=;,]+\s*(?:=\s*(?:\"[^\"]*\"|[^\s;,]*))?)*)")
RELATION = re.compile(r";\s*rel\s*=\s*(?:\"(?P<quoted>[^\"]*)\"|(?P<bare>[^\s;,]*))", re.IGNORECASE)


def next_link(header: str) -> str | None:
    """The target of the link whose relation is `next`."""
    for link in LINK.finditer(header):
        relation = RELATION.search(link["parameters"])
        if relation is not None and "next" in (relation["quoted"] or relation["bare"] or "").lower().split():
            return link["target"]
    return None


def with_parameter(url: str, name: str, value: str) -> str:
    """An address with one parameter set."""
    parts = urlsplit(url)
    others = [(n, v) for n, v in parse_qsl(parts.query, keep_blank_values=True) if n != name]
    return urlunsplit(parts._replace(query=urlencode([*others, (name, value)])))
