"""An HTTP server between a source and an API server, for answers that a real one gives only on bad days.

It speaks plain HTTP to the source and TLS to the server, passes bytes through as they come, and asks `answer`
first: what that returns is sent instead.
"""

import contextlib
import http.client
import json
import socket
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

from tests.cluster.apiserver import Cluster

Query = dict[str, str]
Answer = Callable[[str, Query], tuple[int, Any] | None]


class Relay:
    """`asked` lists the (path, query) of every request. `url` is where it listens."""

    def __init__(self, cluster: Cluster, answer: Answer = lambda _path, _query: None) -> None:
        self.asked: list[tuple[str, Query]] = []
        self.answer = answer
        self._passing: dict[socket.socket, str] = {}
        relay = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self) -> None:
                parts = urlsplit(self.path)
                query = {name: values[0] for name, values in parse_qs(parts.query).items()}
                relay.asked.append((parts.path, query))
                instead = relay.answer(parts.path, query)
                if instead is not None:
                    self._send(*instead)
                else:
                    relay._pass(cluster, self)

            def _send(self, code: int, body: Any) -> None:
                text = json.dumps(body).encode() + b"\n"
                self.send_response(code)
                self.send_header("Content-Length", str(len(text)))
                self.end_headers()
                self.wfile.write(text)

            def log_message(self, *_: object) -> None:
                """Nothing: pytest shows what matters."""

        class Server(ThreadingHTTPServer):
            def handle_error(self, *_: object) -> None:
                """Nothing: clients that go away are what is being tested."""

        self._server = Server(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()

    def watches(self) -> int:
        """How many watches are being passed on."""
        return sum("watch=true" in path for path in list(self._passing.values()))

    def cut(self) -> None:
        """Break off everything that is being passed on."""
        for connection in list(self._passing):
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)

    def lists(self, path: str) -> list[Query]:
        return [query for asked, query in self.asked if asked == path and "watch" not in query]

    def _pass(self, cluster: Cluster, handler: BaseHTTPRequestHandler) -> None:
        upstream = http.client.HTTPSConnection(cluster.servers[0].address, 6443, context=cluster.tls_context())
        upstream.request("GET", handler.path)
        answer = upstream.getresponse()
        self._passing[handler.connection] = handler.path
        handler.send_response(answer.status)
        handler.send_header("Transfer-Encoding", "chunked")
        handler.end_headers()
        try:
            while piece := answer.read1(65536):
                handler.wfile.write(b"%x\r\n%s\r\n" % (len(piece), piece))
            handler.wfile.write(b"0\r\n\r\n")
        except (OSError, http.client.HTTPException):
            handler.close_connection = True
        finally:
            self._passing.pop(handler.connection, None)
            upstream.close()


def status(code: int, message: str) -> dict[str, Any]:
    return {"kind": "Status", "apiVersion": "v1", "status": "Failure", "message": message, "code": code}
