"""Completion in the shell: of commands, names, options and their values."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from prompt_toolkit.completion import CompleteEvent, Completer, Completion
from prompt_toolkit.document import Document

_TABLES_AFTER = frozenset(["FROM", "JOIN", "INTO", "UPDATE", "TABLE", "DESCRIBE", "UPSERT", "VIEW", "ON"])
_WORD = re.compile(r"[\w.]*$")
_LAST_WORDS = re.compile(r"(\w+)\s+[\w.]*$")
_NAMED = re.compile(r"\b(?:from|join|into|update|merge\s+into)\s+(\w+)(?:\s+(?:as\s+)?(\w+))?", re.I)
_OPTION = re.compile(r"(?:with|options)\s*\([^)]*?'([\w.]*)$", re.I | re.S)
_OPTION_VALUE = re.compile(r"'([\w.]+)'\s*=\s*'([\w.-]*)$")


class NameCompleter(Completer):
    """Completes commands, tables, columns, functions, keywords, options and their values."""

    def __init__(self, names: Callable[[], Mapping[str, Any]], commands: Iterable[str]) -> None:
        self._names = names
        self._commands = tuple(commands)

    def get_completions(self, document: Document, complete_event: CompleteEvent) -> Iterator[Completion]:
        before = document.text_before_cursor
        if before.lstrip().startswith("\\") and " " not in before.lstrip():
            yield from _matching(before.lstrip(), self._commands)
            return
        names = self._names()
        tables: Mapping[str, list[str]] = {**names.get("tables", {}), **names.get("streams", {})}
        options: Mapping[str, list[str]] = names.get("options", {})
        if value := _OPTION_VALUE.search(before):
            yield from _matching(value[2], options.get(value[1], []))
        elif option := _OPTION.search(before):
            yield from _matching(option[1], options)
        else:
            yield from _words(before, document.text, names, tables)


def _words(before: str, text: str, names: Mapping[str, Any], tables: Mapping[str, list[str]]) -> Iterator[Completion]:
    typed = (_WORD.search(before) or [""])[0]
    columns = {table.lower(): found for table, found in tables.items()}
    mentioned = {name.lower(): alias.lower() for name, alias in _NAMED.findall(text)}
    if "." in typed:
        qualifier, _, start = typed.rpartition(".")
        table = next((t for t, alias in mentioned.items() if alias == qualifier.lower()), qualifier.lower())
        yield from _matching(start, columns.get(table, []))
        return
    last = _LAST_WORDS.search(before)
    word = last[1].upper() if last else ""
    if word in _TABLES_AFTER or before.lstrip().startswith("\\d "):
        yield from _matching(typed, tables)
    elif typed:
        own = dict.fromkeys(column for table in mentioned for column in columns.get(table, []))
        anywhere = dict.fromkeys(column for found in tables.values() for column in found)
        yield from _matching(typed, {**own, **anywhere, **dict.fromkeys(tables)})
        yield from _matching(typed, names.get("functions", []))
        yield from _matching(typed, names.get("keywords", []))


def _matching(start: str, words: Iterable[str]) -> Iterator[Completion]:
    for word in words:
        if word.lower().startswith(start.lower()) and word.lower() != start.lower():
            shown = word.lower() if word.isupper() and start.islower() else word
            yield Completion(shown, start_position=-len(start))
