"""An S3 server of its own for each test process, and buckets of their own for each test."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path
from typing import Any

import boto3
import pytest
from tests.objects.servers import ACCESS, REGION, SECRET, Moto, Relay, Versity, s3_server

import millpond as mp

KEYS = {"aws_access_key_id": ACCESS, "aws_secret_access_key": SECRET, "region_name": REGION}
_numbers = count()


@pytest.fixture(scope="session")
def server() -> Iterator[Versity | Moto]:
    with s3_server() as found:
        yield found


@pytest.fixture(scope="session")
def queue_server() -> Iterator[Moto]:
    """A server whose buckets send their events to its queues."""
    found = Moto()
    yield found
    found.remove()


class Bucket:
    """A bucket of one test."""

    def __init__(self, endpoint: str) -> None:
        self.endpoint = endpoint
        self.client: Any = boto3.client("s3", endpoint_url=endpoint, **KEYS)
        self.name = f"bucket-{next(_numbers)}"
        self.client.create_bucket(Bucket=self.name)

    def put(self, key: str, body: bytes) -> None:
        self.client.put_object(Bucket=self.name, Key=key, Body=body)

    def get(self, key: str) -> bytes:
        return self.client.get_object(Bucket=self.name, Key=key)["Body"].read()

    def delete(self, key: str) -> None:
        self.client.delete_object(Bucket=self.name, Key=key)

    def all_keys(self) -> list[str]:
        return [found["Key"] for found in self.client.list_objects_v2(Bucket=self.name).get("Contents", ())]

    def options(self, **more: str) -> str:
        given = {"s3.endpoint": self.endpoint, "s3.region": REGION, "s3.access.key": ACCESS, "s3.secret.key": SECRET}
        given |= {name.replace("_", "."): value for name, value in more.items()}
        return "WITH (" + ", ".join(f"'{name}' = '{value}'" for name, value in given.items()) + ")"


@pytest.fixture
def bucket(server: Versity | Moto) -> Bucket:
    return Bucket(server.endpoint)


@pytest.fixture
def relay(server: Versity | Moto) -> Iterator[Relay]:
    found = Relay(server.endpoint)
    yield found
    found.close()


@pytest.fixture
def once(tmp_path: Path) -> Iterator[Callable[[str], mp.App]]:
    """Runs a text once, in the same state directory each time."""
    apps: list[mp.App] = []

    def run(sql: str) -> mp.App:
        if apps:
            apps[-1].stop()
        apps.append(mp.App(sql=sql, state=tmp_path / "state"))
        apps[-1].run_once()
        return apps[-1]

    yield run
    for app in apps:
        app.stop()
