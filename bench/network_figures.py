"""Sources on the network measured: an HTTP answer and S3 objects loaded into a table, and posts to a webhook.

Each has its peers beside it, measured in the same run: the same rows in a local file, and requested and parsed without
Millpond; the same server without it.
"""

from __future__ import annotations

import http.server
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import boto3
import pyarrow as pa
import pyarrow.json
from tests.objects.servers import ACCESS, REGION, SECRET, s3_server

import millpond as mp
from millpond.errors import SourceError
from millpond.objects.bucket import Bucket
from millpond.uris import parse_uri

ROWS = 1_000_000
OBJECTS = 10
LISTED = 100_000
KEYS = {"aws_access_key_id": ACCESS, "aws_secret_access_key": SECRET, "region_name": REGION}
CONNECTIONS = 16
POSTS = 20_000
ARRAY = 100
PATIENCE_S = 600.0
COLUMNS = "id BIGINT, symbol STRING, price DECIMAL(12,2)"

# The client is a process of its own: CONNECTIONS threads, each with a connection, send the same body again and again.
CLIENT = """
import http.client, socket, sys, threading, time
host, port, path, connections, posts, body = sys.argv[1], *sys.argv[2:7]
def send():
    connection = http.client.HTTPConnection(host, int(port), timeout=600)
    connection.connect()
    # Header and body are two packets; the second must not wait until the first was acknowledged.
    connection.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    for _ in range(int(posts) // int(connections)):
        connection.request("POST", path, body.encode())
        answer = connection.getresponse()
        answer.read()
        assert answer.status == 200, answer.status
threads = [threading.Thread(target=send) for _ in range(int(connections))]
started = time.perf_counter()
for thread in threads: thread.start()
for thread in threads: thread.join()
print(time.perf_counter() - started)
"""
# The same server, which reads the body and answers.
BARE = """
import socket, uvicorn
from starlette.applications import Starlette
from starlette.responses import JSONResponse
from starlette.routing import Route
async def post(request):
    await request.body()
    return JSONResponse({"message": "1 record accepted."})
listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
listener.bind(("127.0.0.1", 0))
listener.listen(128)
print(listener.getsockname()[1], flush=True)
app = Starlette(routes=[Route("/hooks/clicks", post, methods=["POST"])])
uvicorn.Server(uvicorn.Config(app, log_level="error")).run([listener])
"""


def lines(first: int, count: int) -> bytes:
    rows = range(first, first + count)
    return b"".join(b'{"id": %d, "symbol": "S%d", "price": %d.50}\n' % (n, n % 500, n % 90) for n in rows)


def loaded(folder: Path, source: str, count: int) -> float:
    """Rows per second of the load of a keyed table; the best of three."""
    best = float("inf")
    for turn in range(3):
        state = folder / f"state-{time.monotonic_ns()}-{turn}"
        app = mp.App(sql=f"CREATE TABLE t PRIMARY KEY (id) AS SELECT * FROM {source};", state=state)
        started = time.perf_counter()
        app.run_once()
        best = min(best, time.perf_counter() - started)
        assert len(app.table("t")) == count
        app.stop()
    return count / best


def parsed(bodies: Callable[[], Iterator[bytes]], count: int) -> float:
    """Rows per second of a program that requests the same bodies and parses them with Arrow; the best of three."""
    best = float("inf")
    for _ in range(3):
        started = time.perf_counter()
        rows = sum(pyarrow.json.read_json(pa.BufferReader(body)).num_rows for body in bodies())
        best = min(best, time.perf_counter() - started)
        assert rows == count
    return count / best


def http_figures(folder: Path, scale: float) -> dict[str, float]:
    count = max(int(ROWS * scale), 100)
    (folder / "rows.jsonl").write_bytes(lines(0, count))
    handler = partial(QuietHandler, directory=str(folder))
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    address = f"http://127.0.0.1:{server.server_port}/rows.jsonl"

    def body() -> Iterator[bytes]:
        with urllib.request.urlopen(address) as answer:
            yield answer.read()

    found = {
        "http_rows_s": loaded(folder, f"'{address}' WITH ('max.bytes' = '10GB')", count),
        "http_plain_rows_s": parsed(body, count),
        "http_local_rows_s": loaded(folder, f"'file://{folder}/rows.jsonl'", count),
    }
    server.shutdown()
    return found


class QuietHandler(http.server.SimpleHTTPRequestHandler):
    """Files of a folder, without a log."""

    def log_message(self, *_: object) -> None:
        """Nothing is printed."""


def s3_figures(folder: Path, scale: float) -> dict[str, float]:
    count = max(int(ROWS * scale / OBJECTS), 10)
    with s3_server() as server:
        client = boto3.client("s3", endpoint_url=server.endpoint, **KEYS)
        client.create_bucket(Bucket="bench")
        local = folder / "objects"
        local.mkdir()
        for number in range(OBJECTS):
            body = lines(number * count, count)
            client.put_object(Bucket="bench", Key=f"in/{number}.jsonl", Body=body)
            (local / f"{number}.jsonl").write_bytes(body)
        options = {"s3.endpoint": server.endpoint, "s3.region": REGION, "s3.access.key": ACCESS}
        given = ", ".join(f"'{name}' = '{value}'" for name, value in {**options, "s3.secret.key": SECRET}.items())

        def bodies() -> Iterator[bytes]:
            for number in range(OBJECTS):
                yield client.get_object(Bucket="bench", Key=f"in/{number}.jsonl")["Body"].read()

        found = {
            "s3_plain_rows_s": parsed(bodies, count * OBJECTS),
            "s3_load_rows_s": loaded(folder, f"'s3://bench/in/*.jsonl' WITH ({given})", count * OBJECTS),
            "s3_local_rows_s": loaded(folder, f"'file://{local}/*.jsonl'", count * OBJECTS),
        }
        many = max(int(LISTED * scale), 100)
        server.fill("bench", "many", (b"{}\n" for _ in range(many)))
        values = {**options, "s3.secret.key": SECRET, "s3.session.token": None, "s3.timeout": 30_000_000}
        bucket = Bucket(parse_uri("s3://bench/many"), values, lambda *said: SourceError(*said[:2], hint=said[2]))
        started = time.perf_counter()
        assert sum(1 for _ in bucket.list("many")) == many
        found["s3_listed_objects_s"] = many / (time.perf_counter() - started)
        started = time.perf_counter()
        pages = client.get_paginator("list_objects_v2").paginate(Bucket="bench", Prefix="many/")
        assert sum(len(page["Contents"]) for page in pages) == many
        return {**found, "s3_plain_listed_objects_s": many / (time.perf_counter() - started)}


def webhook_figures(folder: Path, scale: float) -> dict[str, float]:
    posts = max(int(POSTS * scale) // CONNECTIONS, 1) * CONNECTIONS
    one = '{"id": 1, "symbol": "S1", "price": 1.50}'
    many = f"[{', '.join([one] * ARRAY)}]"
    text = f"CREATE STREAM c ({COLUMNS}) FROM webhook://clicks; CREATE TABLE t AS SELECT COUNT(*) AS n FROM c;"
    app = mp.App(sql=text, state=folder / "hook", settings={"http": "127.0.0.1:0"})
    app.start()
    port = (app.http_url or "").rstrip("/").rpartition(":")[2]
    taken = {"webhook_rows_s": posts / posted(port, posts, one)}
    taken["webhook_array_rows_s"] = posts * ARRAY / posted(port, posts, many)
    await_rows(lambda: int(app.query("SELECT n FROM t").rows()[0]["n"]) == posts * (1 + ARRAY))
    app.stop()
    with bare_server() as bare:
        taken["bare_server_posts_s"] = posts / posted(bare, posts, one)
        taken["bare_server_array_rows_s"] = posts * ARRAY / posted(bare, posts, many)
    return taken


def posted(port: str, posts: int, body: str) -> float:
    command = [sys.executable, "-c", CLIENT, "127.0.0.1", port, "/hooks/clicks", str(CONNECTIONS), str(posts), body]
    return float(subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout)


@contextmanager
def bare_server() -> Iterator[str]:
    process = subprocess.Popen([sys.executable, "-c", BARE], stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        yield process.stdout.readline().strip()
    finally:
        process.kill()
        process.wait()


NETWORK_FIGURES = {"http": http_figures, "s3": s3_figures, "webhook": webhook_figures}


def network_figures(name: str, scale: float) -> dict[str, float]:
    """Those of one kind; `scale` makes everything smaller."""
    with tempfile.TemporaryDirectory(prefix="millpond-bench-") as folder:
        return NETWORK_FIGURES[name](Path(folder), scale)


def await_rows(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not condition():
        if time.monotonic() > deadline:
            raise TimeoutError("the rows did not come in time")
        time.sleep(0.02)
