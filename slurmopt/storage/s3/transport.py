"""The HTTP transport of botocore's signed requests: sends memory without copies, and enforces deadlines.

botocore still resolves endpoints, signs and parses; this replaces its HTTP layer through the event `before-send`.
The reasons: botocore refuses memoryviews and copies bodies in blocks of 16 KiB, and its timeouts count from the last
byte, so a server that sends one byte per second blocks a call for ever.
"""

from __future__ import annotations

import contextlib
import contextvars
import os
import socket
import ssl
import threading
import time
from collections.abc import Iterator
from typing import Any
from urllib.parse import unquote, urlsplit

import urllib3
from botocore.awsrequest import AWSResponse
from botocore.httpsession import where
from botocore.utils import get_environ_proxies
from urllib3.connection import HTTPConnection, HTTPSConnection
from urllib3.connectionpool import HTTPConnectionPool, HTTPSConnectionPool

from slurmopt.storage.s3.body import Body

CONNECT_SECONDS, SILENT_SECONDS = 10.0, 60.0
"""Timeouts of a connection attempt, and of the next bytes of a request or response."""


class DeadlineOver(Exception):
    """The operation's deadline has passed, or it was cancelled."""


class Operation:
    """The deadline of one call, and its connections. A context manager that all threads of the call share."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self.cancelled = threading.Event()
        self._ends = time.monotonic() + seconds
        self._connections: set[Any] = set()
        self._lock = threading.Lock()
        self._timer = threading.Timer(seconds, self.cancel)
        self._timer.daemon = True

    def __enter__(self) -> Operation:
        self._outer = _current.set(self)
        self._timer.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._timer.cancel()
        _current.reset(self._outer)

    def remaining(self) -> float:
        """Remaining seconds; DeadlineOver where there are none."""
        left = self._ends - time.monotonic()
        if left <= 0 or self.cancelled.is_set():
            raise DeadlineOver
        return left

    @property
    def is_over(self) -> bool:
        """Whether the deadline has passed, or the operation was cancelled: requests fail because of that."""
        return self.cancelled.is_set() or time.monotonic() >= self._ends

    def pause(self, seconds: float) -> None:
        """Waits for `seconds`, but not past the deadline."""
        self.cancelled.wait(min(seconds, self.remaining()))
        self.remaining()

    def cancel(self) -> None:
        """Cancels all requests: their threads get a connection error at once."""
        with self._lock:
            self.cancelled.set()
            for connection in self._connections:
                _shut_down(connection.sock)

    def register(self, connection: Any) -> None:
        """Adds `connection`, which is shut down when the operation is cancelled."""
        with self._lock:
            self._connections.add(connection)
        self.remaining()

    def unregister(self, connection: Any) -> None:
        """Removes `connection`, which another operation uses now."""
        with self._lock:
            self._connections.discard(connection)


_current: contextvars.ContextVar[Operation] = contextvars.ContextVar("operation")


def _shut_down(sock: Any) -> None:
    if sock is not None:
        with contextlib.suppress(OSError):
            # SSLSocket.shutdown would drop the TLS state that another thread is writing with.
            socket.socket.shutdown(sock, socket.SHUT_RDWR)


class _RegisteredConnection:
    """A connection that registers with the operation that uses it."""

    _operation: Operation | None = None

    def _register(self) -> None:
        operation = _current.get()
        if self._operation is not None and self._operation is not operation:
            self._operation.unregister(self)
        self._operation = operation
        operation.register(self)

    def connect(self) -> None:
        self._register()
        super().connect()  # type: ignore[misc]
        self._register()  # it may have been cancelled before there was a socket to shut down

    def request(self, *args: Any, **options: Any) -> None:
        self._register()
        super().request(*args, **options)  # type: ignore[misc]


class _Connection(_RegisteredConnection, HTTPConnection):
    pass


class _SecureConnection(_RegisteredConnection, HTTPSConnection):
    pass


class _Pool(HTTPConnectionPool):
    ConnectionCls = _Connection


class _SecurePool(HTTPSConnectionPool):
    ConnectionCls = _SecureConnection


class Transport:
    """Keeps at most `connections` connections per host alive between requests."""

    def __init__(self, connections: int, ca_bundle: str | None) -> None:
        self._connections = connections
        self._ca_bundle = ca_bundle or os.environ.get("REQUESTS_CA_BUNDLE") or where()
        self._managers: dict[str, urllib3.PoolManager] = {}
        self._lock = threading.Lock()

    def send(self, request: Any, **_: Any) -> AWSResponse:
        """Handles botocore's event `before-send`; raises urllib3's errors unchanged."""
        left = _current.get().remaining()
        headers = {name: value for name, value in request.headers.items() if name.lower() != "expect"}
        answer = self._manager(request.url).urlopen(
            request.method,
            request.url,
            body=request.body.slices() if isinstance(request.body, Body) else request.body,
            headers=headers,
            timeout=urllib3.Timeout(connect=min(CONNECT_SECONDS, left), read=min(SILENT_SECONDS, left)),
            retries=False,
            redirect=False,
            preload_content=False,
            decode_content=False,
        )
        response = AWSResponse(request.url, answer.status, answer.headers, answer)
        if not request.stream_output:
            _ = response.content  # read here, while the deadline applies
        return response

    def _manager(self, url: str) -> urllib3.PoolManager:
        proxy = get_environ_proxies(url).get(urlsplit(url).scheme, "")
        with self._lock:
            if proxy not in self._managers:
                self._managers[proxy] = self._new_manager(proxy)
            return self._managers[proxy]

    def _new_manager(self, proxy: str) -> urllib3.PoolManager:
        options: dict[str, Any] = {
            "maxsize": self._connections,
            "ssl_context": ssl.create_default_context(cafile=self._ca_bundle),
        }
        manager = _proxied(proxy, options) if proxy else urllib3.PoolManager(**options)
        manager.pool_classes_by_scheme = {"http": _Pool, "https": _SecurePool}
        return manager


def _proxied(proxy: str, options: dict[str, Any]) -> urllib3.ProxyManager:
    parts = urlsplit(proxy)
    login = f"{unquote(parts.username)}:{unquote(parts.password or '')}" if parts.username else None
    headers = urllib3.make_headers(proxy_basic_auth=login)
    return urllib3.ProxyManager(proxy, proxy_headers=headers, **options)


@contextlib.contextmanager
def operation(seconds: float) -> Iterator[Operation]:
    """The current operation, or a new one of `seconds`."""
    if outer := _current.get(None):
        yield outer
        return
    with Operation(seconds) as new:
        yield new
