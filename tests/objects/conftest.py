"""An S3 server of its own for each test process."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path
from typing import Any

import boto3
import pytest
from moto.server import ThreadedMotoServer

import millpond as mp

REGION = "us-east-1"
KEYS = {"aws_access_key_id": "test", "aws_secret_access_key": "test", "region_name": REGION}
_numbers = count()


@pytest.fixture(scope="session")
def endpoint() -> Iterator[str]:
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    yield f"http://{host}:{port}"
    server.stop()


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
        given = {"s3.endpoint": self.endpoint, "s3.region": REGION, "s3.access.key": "test", "s3.secret.key": "test"}
        given |= {name.replace("_", "."): value for name, value in more.items()}
        return "WITH (" + ", ".join(f"'{name}' = '{value}'" for name, value in given.items()) + ")"


@pytest.fixture
def bucket(endpoint: str) -> Bucket:
    return Bucket(endpoint)


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
