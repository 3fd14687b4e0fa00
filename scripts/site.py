"""A hook of mkdocs: pages are written for GitHub and the tests, and changed here into what the site shows.

The tests read words after the language of a block, which Python-Markdown does not accept: the name of a file becomes
the block's title, and other words are removed. Headings of the same name have other anchors than on GitHub."""

from __future__ import annotations

import re
import shlex

# What blocks of tests are shown as.
LANGUAGES = {"output": "text", "jsonl": "json", "postgresql": "sql", "sqlite": "sql", "says": "text", "csv": "text"}
_FENCE = re.compile(r"^(`{3,})(.*)$")
_REPEATED = re.compile(r"(\]\([\w./-]*#[\w-]+)-(\d+)\)")
_OUTSIDE = re.compile(r"\[([^\]]+)\]\(\.\./(?!\w+\.md)([^)]+)\)")


def on_page_markdown(markdown: str, page: object = None, **more: object) -> str:
    """Called by mkdocs for each page."""
    lines, open_fence = [], ""
    for line in markdown.split("\n"):
        found = _FENCE.match(line)
        if open_fence:
            open_fence = "" if line.rstrip() == open_fence else open_fence
        elif found is not None:
            open_fence = found[1]
            line = open_fence + _header(found[2])
        else:
            line = _OUTSIDE.sub(r"\1 (`\2` in the source tree)", _REPEATED.sub(r"\1_\2)", line))
        lines.append(line)
    return "\n".join(lines)


def _header(text: str) -> str:
    language, *words = shlex.split(text) or [""]
    titles = [word.partition("=")[2] for word in words if word.startswith("title=")]
    shown = "json" if language == "output" and "json" in words else LANGUAGES.get(language, language)
    title = titles[0] if titles else "Output" if language == "output" else ""
    return f'{shown} title="{title}"' if title else shown
