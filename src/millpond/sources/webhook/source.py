"""The webhook source: `POST /hooks/<name>` on the app's own port.

Guarantee: exactly once of each request that was answered 200: it is durable then. Order: of each connection.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from concurrent.futures import Future
from typing import TYPE_CHECKING, cast

from millpond.contracts.feeder import Feeder
from millpond.contracts.source import (
    HIDDEN_OFFSET,
    HIDDEN_PARTITION,
    HIDDEN_SOURCE,
    Found,
    Hook,
    Mode,
    Posted,
    Reply,
    SourcePlugin,
    SourceSpec,
)
from millpond.options import DURATION, POSITIVE, SIZE, TEXT, Beside, Option
from millpond.sources.webhook.requests import UNSENT

if TYPE_CHECKING:
    from millpond.sources.webhook.feeder import WebhookFeeder

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._~-]*")
SIGNED = (Beside("signature.secret"),)

OPTIONS = (
    Option("token", TEXT, None, "The token that requests must have: Authorization: Bearer TOKEN.", secret=True),
    Option("signature.secret", TEXT, None, "The secret with which requests are signed (HMAC-SHA256).", secret=True),
    Option(
        "signature.header",
        TEXT,
        "X-Hub-Signature-256",
        "The header with the signature, as GitHub or as Stripe (Stripe-Signature) writes it.",
        only_with=SIGNED,
    ),
    Option(
        "signature.tolerance", DURATION, "5m", "How old a signature may be that contains its time.", only_with=SIGNED
    ),
    Option(
        "id.header",
        TEXT,
        "Idempotency-Key",
        "The header with the id of a request; one with the same id is accepted once a day.",
    ),
    Option("max.bytes", SIZE, "10MB", "The largest body of a request; the response to a larger one is 413."),
    Option(
        "max.rows.waiting", POSITIVE, "1000000", "The most rows that wait to be read; beyond them the response is 503."
    ),
    Option("sample.rows", POSITIVE, "1000", "Rows that are read to discover the columns."),
    Option("max.rows.per.batch", POSITIVE, "1000000", "The maximal number of rows of a batch."),
)


def name_of(spec: SourceSpec) -> str:
    return spec.uri.hosts or spec.uri.path


def validate(spec: SourceSpec) -> str | None:
    """The error of a URI as a sentence, or None."""
    both = bool(spec.uri.hosts) and bool(spec.uri.path.strip("/"))
    if both or not NAME.fullmatch(name_of(spec)):
        return "A webhook URI requires one name of letters, digits, '-', '_' and '.', such as webhook://clicks."
    return None


def open_feeder(spec: SourceSpec) -> Feeder:
    from millpond.sources.webhook.feeder import WebhookFeeder

    return WebhookFeeder(spec)


def hook(spec: SourceSpec) -> Hook:
    return Hook(name_of(spec), spec.values["max.bytes"], _take)


def _take(feeders: Sequence[Feeder], posted: Posted) -> Future[Reply]:
    from millpond.sources.webhook.feeder import take

    return take(cast("Sequence[WebhookFeeder]", feeders), posted)


PLUGIN = SourcePlugin(
    name="webhook",
    options=OPTIONS,
    stream_mode=Mode.APPEND,
    table_mode=Mode.APPEND,
    hidden=(HIDDEN_SOURCE, HIDDEN_PARTITION, HIDDEN_OFFSET),
    local=True,
    counts_every_record=True,
    discover=lambda spec: Found(detail=UNSENT),
    validate=validate,
    open_feeder=open_feeder,
    pace=(
        "signature.*",
        "id.header",
        "max.bytes",
        "max.rows.waiting",
        "sample.rows",
        "max.rows.per.batch",
    ),
    receives_records=True,
    hook=hook,
)
