"""A queue of SQS that announces the objects of a bucket: events as S3 sends them, directly or through SNS.

A message is deleted after the records of its objects are durable. Messages may come twice, late or not at all: what
they announce is looked at, and a listing of the whole bucket finds the rest.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any
from urllib.parse import unquote_plus

import boto3
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError

from millpond.errors import MillpondError

SCHEME = "sqs://"
# What one request returns and deletes at most, and how many requests one look makes.
MESSAGES_MAX, RECEIVES_MAX = 10, 100
MISSING = ("QueueDoesNotExist", "NonExistentQueue")
DENIED = ("AccessDenied", "InvalidClientTokenId", "SignatureDoesNotMatch", "InvalidAccessKeyId", "ExpiredToken")

Failure = Callable[[str, str, str], MillpondError]


@dataclass(frozen=True)
class Announced:
    """An object that was written or removed."""

    bucket: str
    key: str
    removed: bool


class Queue:
    """One queue; used by one thread."""

    def __init__(self, values: Mapping[str, Any], failure: Failure) -> None:
        self._named: str = values["s3.notifications"]
        self._failure = failure
        credentials = {
            "aws_access_key_id": values["s3.access.key"],
            "aws_secret_access_key": values["s3.secret.key"],
            "aws_session_token": values["s3.session.token"],
        }
        given = {name: value for name, value in credentials.items() if value is not None}
        endpoint = values["sqs.endpoint"] or values["s3.endpoint"]
        config = Config(connect_timeout=10, read_timeout=30, retries={"max_attempts": 2})
        with self._coded():
            self._client = boto3.client(
                "sqs", endpoint_url=endpoint, region_name=values["s3.region"], config=config, **given
            )
        self._url: str | None = None
        # What each message announced that was received and not deleted yet, by its receipt.
        self._received: dict[str, tuple[Announced, ...]] = {}

    def receive(self) -> Iterator[Announced]:
        """What was announced since, request by request; the messages are kept until `confirm`."""
        for _ in range(RECEIVES_MAX):
            with self._coded():
                answer = self._client.receive_message(QueueUrl=self._address(), MaxNumberOfMessages=MESSAGES_MAX)
            messages = answer.get("Messages", ())
            for message in messages:
                self._received[message["ReceiptHandle"]] = found = announced(message["Body"])
                yield from found
            if not messages:
                return

    def confirm(self, unread: Collection[str] = ()) -> None:
        """What was received is durable: its messages are deleted, except those that announce an `unread` key."""
        done = [one for one, found in self._received.items() if not any(said.key in unread for said in found)]
        with self._coded():
            for start in range(0, len(done), MESSAGES_MAX):
                some = done[start : start + MESSAGES_MAX]
                entries = [{"Id": str(number), "ReceiptHandle": one} for number, one in enumerate(some)]
                self._client.delete_message_batch(QueueUrl=self._address(), Entries=entries)
                for one in some:
                    del self._received[one]

    def _address(self) -> str:
        if self._url is None:
            name = self._named.removeprefix(SCHEME)
            is_name = self._named.startswith(SCHEME)
            self._url = self._client.get_queue_url(QueueName=name)["QueueUrl"] if is_name else self._named
        return self._url

    @contextmanager
    def _coded(self) -> Iterator[None]:
        try:
            yield
        except ClientError as error:
            code = error.response.get("Error", {}).get("Code", "")
            message = f"The queue '{self._named}' refuses the request: {code}."
            if any(word in code for word in MISSING):
                raise self._failure("MP508", message, "Check the name of the queue and 's3.region'.") from error
            if any(word in code for word in DENIED):
                raise self._failure("MP507", message, "Check what the credentials permit.") from error
            raise self._failure("MP506", message, "It is asked again later.") from error
        except BotoCoreError as error:
            message = f"The queue '{self._named}' cannot be reached: {str(error).splitlines()[0].rstrip('.')}."
            raise self._failure("MP506", message, "Check 'sqs.endpoint' and the network.") from error


def announced(body: str) -> tuple[Announced, ...]:
    """The objects that a message announces; none for a test event, or a message of something else."""
    try:
        event = json.loads(body)
        if isinstance(event, dict) and isinstance(event.get("Message"), str):
            event = json.loads(event["Message"])
        records = event.get("Records", ()) if isinstance(event, dict) else ()
        return tuple(
            # Keys are encoded as in a form.
            Announced(
                record["s3"]["bucket"]["name"],
                unquote_plus(record["s3"]["object"]["key"]),
                "ObjectRemoved" in record.get("eventName", ""),
            )
            for record in records
        )
    except (ValueError, KeyError, TypeError, AttributeError):
        return ()
