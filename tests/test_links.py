"""Links of README, docs/ and examples/: each leads to a file that exists, and so does the menu of the site."""

from __future__ import annotations

import re
from pathlib import Path

import markdown
import pytest
import yaml
from scripts.site import on_page_markdown

ROOT = Path(__file__).parents[1]
PAGES = [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *(ROOT / "examples").rglob("*.md")]
_FENCED = re.compile(r"^(`{3,})[^\n]*\n.*?^\1\s*$", re.M | re.S)
_LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
_HEADING = re.compile(r"^#+\s+(.*?)\s*$", re.M)


def anchors(page: Path) -> set[str]:
    """The names of headings, as sites write them: the second of the same name ends with -1."""
    plain = _FENCED.sub("", page.read_text("utf-8"))
    found: list[str] = []
    for heading in _HEADING.findall(plain):
        name = re.sub(r"[^\w\- ]", "", heading.lower()).strip().replace(" ", "-")
        count = sum(name == other or re.fullmatch(rf"{re.escape(name)}-\d+", other) is not None for other in found)
        found.append(f"{name}-{count}" if count else name)
    return set(found)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page: Path) -> None:
    broken = []
    for link in _LINK.findall(re.sub(r"`[^`\n]*`", "", _FENCED.sub("", page.read_text("utf-8")))):
        if link.startswith(("http://", "https://", "mailto:")):
            continue
        file, _, anchor = link.partition("#")
        target = (page.parent / file).resolve() if file else page
        if not target.exists() or (anchor and target.suffix == ".md" and anchor not in anchors(target)):
            broken.append(link)
    assert broken == []


def listed(value: object) -> set[str]:
    if isinstance(value, str):
        return {value}
    parts = value.values() if isinstance(value, dict) else value
    assert not isinstance(parts, str)
    return {name for part in parts for name in listed(part)}  # type: ignore[attr-defined]


def test_the_site_lists_pages_that_exist() -> None:
    site = yaml.safe_load((ROOT / "mkdocs.yml").read_text("utf-8"))
    assert listed(site["nav"]) - {page.name for page in (ROOT / "docs").glob("*.md")} == set()


def test_the_site_shows_every_block_as_code_and_every_link_leads_somewhere() -> None:
    """Rendered as `make site` does, because Python-Markdown accepts less than GitHub."""
    site = yaml.safe_load((ROOT / "mkdocs.yml").read_text("utf-8"))
    render = markdown.Markdown(extensions=site["markdown_extensions"])
    pages = {}
    for file in (ROOT / "docs").rglob("*.md"):
        pages[file] = render.reset().convert(on_page_markdown(file.read_text("utf-8")))
    assert [file.name for file, html in pages.items() if re.search(r"<p>(.*\n)*```", html)] == []
    broken = []
    for file, html in pages.items():
        for link in re.findall(r'href="([^"]+)"', html):
            name, _, anchor = link.partition("#")
            target = (file.parent / name).resolve() if name else file
            if "://" in link or (target.exists() and not anchor):
                continue
            if f'id="{anchor}"' not in pages.get(target, ""):
                broken.append(f"{file.name}: {link}")
    assert broken == []
