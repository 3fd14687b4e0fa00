"""Markdown documents as tests: the fenced blocks of a page or section, with their language and attributes."""

from __future__ import annotations

import shlex
from dataclasses import dataclass, field
from pathlib import Path


@dataclass(frozen=True)
class Block:
    """One fenced block: ```` ```csv title=users.csv ```` has the language csv and the attribute title."""

    language: str
    attributes: dict[str, str]
    body: str
    line: int

    @property
    def title(self) -> str | None:
        """The file name of the block, if it has one."""
        return self.attributes.get("title")

    def has(self, flag: str) -> bool:
        return flag in self.attributes


@dataclass(frozen=True)
class Section:
    """The content under one `## heading`; the content before the first is a section with an empty heading."""

    file: Path
    heading: str
    blocks: tuple[Block, ...] = field(repr=False)

    @property
    def name(self) -> str:
        """The heading as the name of a test."""
        return f"{self.file.stem}: {self.heading}"


def read_sections(file: Path) -> tuple[Section, ...]:
    """The sections of a document that have blocks, in order."""
    found: list[tuple[str, list[Block]]] = [("", [])]
    lines = file.read_text("utf-8").splitlines()
    at = 0
    while at < len(lines):
        line = lines[at]
        if line.startswith("## "):
            found.append((line[3:].strip(), []))
        elif line.startswith("```"):
            block, at = _read_block(lines, at, file)
            found[-1][1].append(block)
        at += 1
    return tuple(Section(file, heading, tuple(blocks)) for heading, blocks in found if blocks)


def _read_block(lines: list[str], start: int, file: Path) -> tuple[Block, int]:
    """The block that opens at `start`, and the line that closes it."""
    fence = lines[start][: len(lines[start]) - len(lines[start].lstrip("`"))]
    end = next((n for n in range(start + 1, len(lines)) if lines[n].rstrip() == fence), None)
    if end is None:
        raise ValueError(f"{file.name}:{start + 1}: a fenced block is never closed")
    language, *words = shlex.split(lines[start][len(fence) :]) or [""]
    attributes = {name: value for name, _, value in (word.partition("=") for word in words)}
    body = "".join(f"{line}\n" for line in lines[start + 1 : end])
    return Block(language, attributes, body, start + 1), end
