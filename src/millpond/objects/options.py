"""The options of S3, for the source and the sink."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from millpond.options import SPAN, TEXT, Option
from millpond.uris import Uri

S3_OPTIONS = (
    Option(
        "s3.endpoint",
        TEXT,
        None,
        "The address of an S3 server; by default that of AWS.",
        environment="AWS_ENDPOINT_URL",
    ),
    Option("s3.region", TEXT, None, "The region of the bucket; by default that of the environment."),
    Option("s3.access.key", TEXT, None, "The access key; by default the credentials of the environment.", secret=True),
    Option("s3.secret.key", TEXT, None, "The secret key of the access key.", secret=True),
    Option("s3.session.token", TEXT, None, "The session token of temporary credentials.", secret=True),
    Option("s3.timeout", SPAN, "30s", "How long to wait for a connection, and for the whole answer to a request."),
)

NOTIFICATIONS = (
    Option(
        "s3.notifications",
        TEXT,
        None,
        "The queue that announces objects, sqs://NAME or its address; the bucket is then rarely listed.",
    ),
    Option("sqs.endpoint", TEXT, None, "The address of the server of that queue; by default 's3.endpoint'."),
    Option("s3.list.interval", SPAN, "10m", "How often the bucket is listed beside the queue, for lost messages."),
)


def wrong_bucket(uri: Uri, values: Mapping[str, Any]) -> str | None:
    """What is wrong with a URI or the credentials, as a sentence."""
    if not uri.hosts or uri.user is not None:
        return "An S3 URI requires a bucket, such as s3://bucket/logs/*.jsonl; credentials are options."
    if (values.get("s3.access.key") is None) != (values.get("s3.secret.key") is None):
        return "'s3.access.key' and 's3.secret.key' must be given together."
    endpoint = values.get("s3.endpoint")
    if endpoint is not None and not endpoint.startswith(("http://", "https://")):
        return "'s3.endpoint' must be an address, such as http://localhost:9000."
    queue = values.get("s3.notifications")
    if queue is not None and not queue.startswith(("sqs://", "http://", "https://")):
        return "'s3.notifications' must be a queue, such as sqs://uploads."
    return None
