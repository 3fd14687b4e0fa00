"""A bucket: its options, how it is opened, and its failures as coded errors."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

import obstore
from obstore.exceptions import BaseError, NotFoundError, PermissionDeniedError, PreconditionError, UnauthenticatedError
from obstore.store import S3Store

from millpond.errors import MillpondError
from millpond.uris import Uri

COPY_BYTES = 4 << 20
# A request is repeated within this time before the engine hears of it.
RETRIES_MAX, RETRY_S = 3, 10
UNREACHABLE = "MP506"
# What servers answer, and what it means: the code of the error, and a hint.
MEANINGS = (
    ("RequestTimeTooSkewed", "MP508", "The clock of this machine is wrong: set it."),
    (
        r"PermanentRedirect|AuthorizationHeaderMalformed|IncorrectEndpoint|status 301|missing region|redirect",
        "MP508",
        "Set the region of the bucket, 's3.region', and its address, 's3.endpoint'.",
    ),
    (
        r"InvalidAccessKeyId|SignatureDoesNotMatch|AccessDenied|ExpiredToken|InvalidToken|status 40[13]|credential",
        "MP507",
        "Set 's3.access.key' and 's3.secret.key', and check what they permit.",
    ),
    (
        "invalid path",
        "MP502",
        "Read another folder, or rename the object: without control characters, empty parts (//) and parts of dots.",
    ),
    (r"NoSuchBucket|status 404", "MP501", "Check the bucket and the key."),
    (r"status (408|429|5\d\d)|SlowDown", UNREACHABLE, "The request is repeated later."),
    (r"status 4\d\d", "MP502", "Check the address and the options."),
    (
        r"invalid (list )?response",
        "MP502",
        "Check that 's3.endpoint' is the address of an S3 server.",
    ),
)
# The library raises one or the other.
MISSING = (NotFoundError, FileNotFoundError)

Failure = Callable[[str, str, str], MillpondError]


@dataclass(frozen=True)
class Listed:
    """An object as a listing shows it."""

    key: str
    size: int
    etag: str
    modified_ns: int


class Bucket:
    """The objects of one bucket; `failure` makes the error of a code, a message and a hint."""

    def __init__(self, uri: Uri, values: Mapping[str, Any], failure: Failure) -> None:
        self.name, self._shown, self._failure = uri.hosts, uri.shown, failure
        self._store = _store(self.name, values)

    def url(self, key: str) -> str:
        return f"s3://{self.name}/{key}"

    def list(self, prefix: str) -> Iterator[Listed]:
        """All objects whose key is below a prefix, which is a folder."""
        with self._coded(prefix):
            for batch in obstore.list(self._store, prefix=prefix or None, chunk_size=1000):
                yield from map(_listed, batch)

    def head(self, key: str) -> Listed | None:
        """One object; None if there is none."""
        try:
            with self._coded(key):
                return _listed(obstore.head(self._store, key))
        except MISSING:
            return None

    def get(self, found: Listed, path: Path) -> None:
        """Store an object in a file; FileNotFoundError if it is no longer as it was listed."""
        try:
            with self._coded(found.key):
                response = obstore.get(self._store, found.key, options={"if_match": found.etag} if found.etag else None)
                with path.open("wb") as out:
                    size = sum(out.write(part) for part in response.stream(min_chunk_size=COPY_BYTES))
        except (*MISSING, PreconditionError) as error:
            raise FileNotFoundError(self.url(found.key)) from error
        if size != found.size:
            path.unlink()
            message = f"'{self.url(found.key)}' was sent with {size:,} bytes; the listing has {found.size:,}."
            raise self._failure(UNREACHABLE, message, "It is read again later.")

    def put(self, path: Path, key: str) -> None:
        """Write a file as an object, which exists as a whole or not at all."""
        try:
            with self._coded(key):
                obstore.put(self._store, key, path)
        except MISSING as error:
            raise self._failure("MP501", f"There is no bucket '{self.name}'.", "Create it.") from error

    def delete(self, keys: Sequence[str]) -> None:
        """Remove objects; one that does not exist is not an error."""
        if keys:
            with self._coded(keys[0]):
                obstore.delete(self._store, list(keys))

    @contextmanager
    def _coded(self, key: str) -> Iterator[None]:
        try:
            yield
        except (*MISSING, PreconditionError) as error:
            if "NoSuchBucket" in str(error):
                raise self._failure("MP501", f"There is no bucket '{self.name}'.", "Check its name.") from error
            raise
        except (BaseError, OSError) as error:
            raise self._meaning(str(error), self.url(key), error) from error

    def _meaning(self, text: str, shown: str, error: BaseException) -> MillpondError:
        denied = isinstance(error, PermissionDeniedError | UnauthenticatedError | PermissionError)
        reported = _reported(text)
        for pattern, code, hint in MEANINGS:
            if re.search(pattern, reported) or (denied and code == "MP507"):
                return self._failure(code, f"'{shown}' is refused: {_reason(reported)}.", hint)
        return self._failure(
            UNREACHABLE, f"'{shown}' cannot be reached: {_reason(reported)}.", "Check 's3.endpoint' and the network."
        )


def _listed(meta: Any) -> Listed:
    modified = int(meta["last_modified"].timestamp() * 1_000_000) * 1000
    return Listed(meta["path"], meta["size"], meta["e_tag"] or "", modified)


def _store(bucket: str, values: Mapping[str, Any]) -> S3Store:
    given: dict[str, Any] = {"virtual_hosted_style_request": not values["s3.endpoint"]}
    for name, option in (
        ("endpoint", "s3.endpoint"),
        ("region", "s3.region"),
        ("access_key_id", "s3.access.key"),
        ("secret_access_key", "s3.secret.key"),
        ("session_token", "s3.session.token"),
    ):
        if values[option] is not None:
            given[name] = values[option]
    if values["s3.access.key"] is None or values["s3.region"] is None:
        given |= _environment(values)
    retry = {"max_retries": RETRIES_MAX, "retry_timeout": timedelta(seconds=RETRY_S)}
    options = {"allow_http": True, "timeout": timedelta(microseconds=values["s3.timeout"])}
    return S3Store(bucket, client_options=options, retry_config=retry, **given)  # type: ignore[arg-type]


def _environment(values: Mapping[str, Any]) -> dict[str, Any]:
    """Credentials and region, where they are not given, as AWS' tools find them: environment, files, roles."""
    import boto3
    from obstore.auth.boto3 import Boto3CredentialProvider

    session = boto3.Session(region_name=values["s3.region"])
    found: dict[str, Any] = {}
    if values["s3.region"] is None and session.region_name:
        found["region"] = session.region_name
    if values["s3.access.key"] is None and session.get_credentials() is not None:
        found["credential_provider"] = Boto3CredentialProvider(session)
    return found


def _reported(text: str) -> str:
    """The part of an error that comes from the server: without the request, whose address and times are numbers that
    could be taken for a status, and without the library's own view of it."""
    first = re.split(r"\n\s*\n?Debug source|, source:", text.strip())[0]
    answered = re.sub(
        r"^.*?Error performing (?:[a-z ]+: Error performing )?[A-Z]+ \S+ in .*? - ", "", first, flags=re.S
    )
    return re.sub(r"Server returned non-2xx status code: ", "status ", answered)


def _reason(reported: str) -> str:
    """The message of an error in one line."""
    code = re.search(r"<Code>(\w+)</Code>", reported)
    message = re.search(r"<Message>([^<]*)</Message>", reported)
    if code is not None:
        return f"{code[1]}: {message[1]}".rstrip(". ") if message is not None else code[1]
    return re.sub(r"\s+", " ", reported)[:200].rstrip(".: ")
