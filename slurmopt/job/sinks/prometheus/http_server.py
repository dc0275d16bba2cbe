"""Answers Prometheus' requests for /metrics, to those who know the token if there is one."""

from __future__ import annotations

import contextlib
import hmac
import socket
import threading
import time
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler
from socketserver import TCPServer, ThreadingMixIn
from typing import Any

from slurmopt.job.sinks.prometheus.exposition import CONTENT_TYPE
from slurmopt.job.sinks.record import SinkError

_TIMEOUT = 5.0
"""Seconds that one request may take, all of it: its bytes may come one by one."""
_MOST_OPEN = 64
"""Connections at a time; further ones are closed at once."""


class MetricsServer:
    """The server, in a thread of its own."""

    def __init__(self, address: str, token: str | None, text: Callable[[], str]) -> None:
        """Binds to HOST:PORT; port 0: the kernel chooses. Raises SinkError if that is taken."""
        host, _, port = address.rpartition(":")
        try:
            self._server = _Server((host.strip("[]"), int(port)), token, text)
        except OSError as error:
            raise SinkError(f"cannot listen at {address}: {error.strerror or error}") from error
        self.port: int = self._server.server_address[1]
        threading.Thread(target=self._server.serve_forever, name="metrics-http", daemon=True).start()

    def close(self) -> None:
        """Ends the server."""
        self._server.shutdown()
        self._server.server_close()


class _Server(ThreadingMixIn, TCPServer):
    """Each connection has a thread of its own, so that a slow client holds up neither Prometheus nor `close`."""

    allow_reuse_address = daemon_threads = True

    def __init__(self, address: tuple[str, int], token: str | None, text: Callable[[], str]) -> None:
        self.token, self.text = token, text
        self._open: dict[Any, float] = {}
        """Connection → when it is closed at the latest."""
        if ":" in address[0]:
            self.address_family = socket.AF_INET6
        super().__init__(address, _Handler)

    def process_request(self, request: Any, client_address: Any) -> None:
        if len(self._open) < _MOST_OPEN:
            self._open[request] = time.monotonic() + _TIMEOUT
            super().process_request(request, client_address)
        else:
            self.shutdown_request(request)

    def shutdown_request(self, request: Any) -> None:
        self._open.pop(request, None)
        super().shutdown_request(request)

    def service_actions(self) -> None:
        """Called twice a second: ends the connections whose time is over."""
        now = time.monotonic()
        for request, until in list(self._open.items()):
            if until < now:
                with contextlib.suppress(OSError):  # its thread has closed it meanwhile
                    request.shutdown(socket.SHUT_RDWR)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that goes away is no news for the rank's log."""


class _Handler(BaseHTTPRequestHandler):
    timeout = _TIMEOUT
    server: _Server
    server_version, sys_version = "slurmopt", ""

    def do_GET(self) -> None:
        if not self._is_allowed():
            self.send_response(401)
            self.send_header("WWW-Authenticate", "Bearer")
            self.send_header("Content-Length", "0")
            self.end_headers()
        elif self.path.partition("?")[0] != "/metrics":
            self.send_error(404)
        else:
            body = self.server.text().encode("utf-8", "replace")
            self.send_response(200)
            self.send_header("Content-Type", CONTENT_TYPE)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

    def _is_allowed(self) -> bool:
        if self.server.token is None:
            return True
        kind, _, told = self.headers.get("Authorization", "").partition(" ")
        return kind.lower() == "bearer" and hmac.compare_digest(told.strip().encode(), self.server.token.encode())

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the name that http.server gives it
        """Requests are not logged: the log is the rank's."""
