"""Addresses of pages: the Link header (RFC 8288), and parameters."""

from __future__ import annotations

import re
from urllib.parse import parse_qsl, urlencode, urlsplit, urlunsplit

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
