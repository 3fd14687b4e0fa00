"""HTTP in front of chDB, the engine of ClickHouse in a process: as much of it as clickhouse-connect needs.

python clickhouse_http.py PORT ENCRYPTED_PORT FOLDER; the folder above has the certificate.
"""

import gzip
import http.server
import os
import re
import ssl
import sys
import tempfile
import threading
import urllib.parse
from pathlib import Path
from typing import Any

from chdb import session

# Parameters of a request that are no settings of the query.
NO_SETTINGS = (
    *("database", "session_id", "default_format", "compress", "decompress", "user", "password", "query_id"),
    *("client_protocol_version", "enable_http_compression", "wait_end_of_query", "buffer_size", "session_timeout"),
)
TURN = threading.Lock()


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    session: Any = None

    def log_message(self, format: str, *arguments: Any) -> None:
        """Nothing."""

    def do_GET(self) -> None:
        self._respond(b"")

    def do_POST(self) -> None:
        length = self.headers.get("content-length")
        body = self.rfile.read(int(length)) if length is not None else b"".join(self._chunks())
        self._respond(gzip.decompress(body) if self.headers.get("content-encoding") == "gzip" else body)

    def _chunks(self) -> Any:
        while size := int(self.rfile.readline().split(b";")[0], 16):
            yield self.rfile.read(size)
            self.rfile.readline()
        self.rfile.readline()

    def _respond(self, body: bytes) -> None:
        address = urllib.parse.urlparse(self.path)
        given = dict(urllib.parse.parse_qsl(address.query))
        if address.path == "/ping":
            self._send(200, b"Ok.\n", "")
            return
        query = given.pop("query", "")
        try:
            query, data = (query, body) if query else (body.decode(), b"")
            self._send(200, *self._run(query, data, given))
        except Exception as error:
            self._send(500, str(error).encode(), "")

    def _run(self, query: str, data: bytes, given: dict[str, str]) -> tuple[bytes, str]:
        form = given.get("default_format") or self.headers.get("x-clickhouse-format") or "TabSeparated"
        named = re.search(r"\bFORMAT\s+(\w+)\s*;?\s*$", query, re.IGNORECASE)
        if named:
            form, query = named[1], query[: named.start()]
        settings = {name: value for name, value in given.items() if name not in NO_SETTINGS}
        with TURN:
            if given.get("database"):
                self.session.query(f"USE `{given['database']}`")
            if data:
                return self._insert(query, data, form, settings), form
            listed = ", ".join(f"{name}='{value}'" for name, value in settings.items() if not name.startswith("param_"))
            is_query = re.match(r"\s*(SELECT|WITH)", query, re.IGNORECASE)
            if listed and is_query and not re.search(r"\bSETTINGS\b", query):
                query += f" SETTINGS {listed}"
            found = self.session.query(query, form)
            return (found.bytes() if found is not None else b""), form

    def _insert(self, query: str, data: bytes, form: str, settings: dict[str, str]) -> bytes:
        with tempfile.NamedTemporaryFile(delete=False) as file:
            file.write(data)
        try:
            token = settings.get("insert_deduplication_token")
            behind = f" SETTINGS insert_deduplication_token='{token}'" if token else ""
            self.session.query(f"{query.rstrip()} SELECT * FROM file('{file.name}', '{form}'){behind}")
        finally:
            os.unlink(file.name)
        return b""

    def _send(self, status: int, body: bytes, form: str) -> None:
        self.send_response(status)
        for name, value in {
            "content-type": "application/octet-stream",
            "content-length": str(len(body)),
            "x-clickhouse-format": form,
            "x-clickhouse-summary": "{}",
            "x-clickhouse-timezone": "UTC",
        }.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)


def served(port: int, folder: Path | None = None) -> http.server.ThreadingHTTPServer:
    """A server at a port; encrypted with the certificate of a folder."""
    server = http.server.ThreadingHTTPServer(("127.0.0.1", port), Handler)
    if folder is not None:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(folder / "server.crt", folder / "server.key")
        server.socket = context.wrap_socket(server.socket, server_side=True)
    return server


if __name__ == "__main__":
    make: Any = session.Session
    Handler.session = make(sys.argv[3])
    encrypted = served(int(sys.argv[2]), Path(sys.argv[3]).parent)
    threading.Thread(target=encrypted.serve_forever, daemon=True).start()
    served(int(sys.argv[1])).serve_forever()
