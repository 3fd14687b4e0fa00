"""The records of pages: read like those of files, and named by the address of their page."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace

from millpond.contracts.source import Found, SourceSpec
from millpond.errors import SourceError
from millpond.redact import redact
from millpond.sources.files.contents import Chunk, TextContents
from millpond.sources.files.discovery import check_all_names, sampled_columns
from millpond.sources.http.pages import Page, Pages
from millpond.sources.records.text_reader import Piece, Tail


def contents_of(spec: SourceSpec, pages: Sequence[Page]) -> TextContents:
    """How the records of these pages are read."""
    assert spec.columns is not None, "a source is read only when its columns are known"
    return TextContents(pages[0].form, spec.columns, declared=spec.declared)


def chunks_of(
    contents: TextContents, page: Page, major: int, keep: Callable[[Piece], Piece] | None = None
) -> Iterator[Chunk]:
    """The records of a page, or those of them that `keep` returns."""
    with _named(page):
        opening = contents.opening(page.path, Tail.TAKE)
        if opening is not None:
            opening = replace(opening, source=redact(page.url))
            yield from contents.chunks(page.path, opening, Tail.TAKE, major, keep)


@contextmanager
def _named(page: Page) -> Iterator[None]:
    """Errors name the address, not the file in which its answer was stored."""
    try:
        yield
    except SourceError as error:
        problem = error.problems[0]
        message = problem.message.replace(str(page.path), redact(page.url))
        raise SourceError(problem.code, message, hint=problem.hint) from error


def discovered(spec: SourceSpec) -> Found:
    """The columns of the records in the current response. A server that cannot be reached is reported when its source
    is opened."""
    try:
        look = Pages(spec).look(None)
    except SourceError as error:
        return Found(missing=True, detail=error.problems[0].message)
    try:
        files, form = [page.path for page in look.pages], look.pages[0].form
        with _named(look.pages[0]):
            if spec.columns is not None:
                check_all_names(files, form, spec.columns)
                return Found(spec.columns)
            columns = sampled_columns(files, form, spec)
            return Found(columns, detail="" if columns else f"the answer of {spec.shown} contains no records")
    finally:
        look.close()
