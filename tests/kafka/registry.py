"""A schema registry for the tests: the two questions that readers and writers ask, over HTTP."""

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


class Registry:
    """Schemas by number, on a free port; `stop` ends it."""

    def __init__(self) -> None:
        self.schemas: list[str] = []
        self.subjects: dict[str, int] = {}
        # What it answers to everything, when it is set.
        self.fails_with = 0
        registry = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                number = int(self.path.rsplit("/", 1)[1])
                known = 0 < number <= len(registry.schemas)
                code = registry.fails_with or (200 if known else 404)
                self.answer(code, {"schema": registry.schemas[number - 1]} if known else {})

            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                subject = self.path.split("/")[2]
                registry.subjects[subject] = registry.add(body["schema"])
                self.answer(200, {"id": registry.subjects[subject]})

            def answer(self, code: int, body: Any) -> None:
                text = json.dumps(body).encode()
                self.send_response(code)
                self.send_header("Content-Length", str(len(text)))
                self.end_headers()
                self.wfile.write(text)

            def log_message(self, format: str, *arguments: Any) -> None:
                """Nothing: the tests' output is not its place."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://user:pass@127.0.0.1:{self._server.server_port}"
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def add(self, schema: str) -> int:
        """The number of a schema."""
        if schema not in self.schemas:
            self.schemas.append(schema)
        return self.schemas.index(schema) + 1

    def stop(self) -> None:
        self._server.shutdown()
        self._server.server_close()
