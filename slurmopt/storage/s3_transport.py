"""Sends botocore's signed requests: memory goes to the socket as it is, and a deadline ends whatever hangs.

botocore goes on to resolve endpoints, sign and parse; this takes the place of its HTTP layer through the event
`before-send`. The reasons: botocore refuses memoryviews and copies bodies in blocks of 16 KiB, and its timeouts count
from the last byte, so that a server which drips a byte a second holds a call for ever.
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

from slurmopt.storage.s3_body import Body

CONNECT_SECONDS, SILENT_SECONDS = 10.0, 60.0
"""Longest wait for a connection, and for the other side to take or give the next bytes of a request."""


class DeadlineOver(Exception):
    """The operation has no time left, or was given up."""


class Operation:
    """One call's time, and the connections that work for it. Use it as a context; all threads of the call share it."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self.given_up = threading.Event()
        self._ends = time.monotonic() + seconds
        self._connections: set[Any] = set()
        self._lock = threading.Lock()
        self._timer = threading.Timer(seconds, self.give_up)
        self._timer.daemon = True

    def __enter__(self) -> Operation:
        self._outer = _current.set(self)
        self._timer.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._timer.cancel()
        _current.reset(self._outer)

    def left(self) -> float:
        """Seconds that are left; DeadlineOver where there are none."""
        left = self._ends - time.monotonic()
        if left <= 0 or self.given_up.is_set():
            raise DeadlineOver
        return left

    def pause(self, seconds: float) -> None:
        """Waits, but not past the end."""
        self.given_up.wait(min(seconds, self.left()))
        self.left()

    def give_up(self) -> None:
        """Ends every request under way: its thread gets a connection error at once."""
        with self._lock:
            self.given_up.set()
            for connection in self._connections:
                _shut(connection.sock)

    def join(self, connection: Any) -> None:
        """From now on `connection` ends with this operation."""
        with self._lock:
            self._connections.add(connection)
        self.left()

    def leave(self, connection: Any) -> None:
        """Another operation uses `connection` now."""
        with self._lock:
            self._connections.discard(connection)


_current: contextvars.ContextVar[Operation] = contextvars.ContextVar("operation")


def _shut(sock: Any) -> None:
    if sock is not None:
        with contextlib.suppress(OSError):
            # Not SSLSocket's own, which forgets the TLS state that another thread is writing with.
            socket.socket.shutdown(sock, socket.SHUT_RDWR)


class _Joining:
    """A connection that belongs to the operation it works for."""

    _operation: Operation | None = None

    def _join(self) -> None:
        operation = _current.get()
        if self._operation is not None and self._operation is not operation:
            self._operation.leave(self)
        self._operation = operation
        operation.join(self)

    def connect(self) -> None:
        self._join()
        super().connect()  # type: ignore[misc]
        self._join()  # it may have been given up while there was no socket to shut

    def request(self, *args: Any, **options: Any) -> None:
        self._join()
        super().request(*args, **options)  # type: ignore[misc]


class _Connection(_Joining, HTTPConnection):
    pass


class _SecureConnection(_Joining, HTTPSConnection):
    pass


class _Pool(HTTPConnectionPool):
    ConnectionCls = _Connection


class _SecurePool(HTTPSConnectionPool):
    ConnectionCls = _SecureConnection


class Transport:
    """Keeps connections alive between requests; `connections` of them to a host at most."""

    def __init__(self, connections: int, ca_bundle: str | None) -> None:
        self._connections = connections
        self._ca_bundle = ca_bundle or os.environ.get("REQUESTS_CA_BUNDLE") or where()
        self._managers: dict[str, urllib3.PoolManager] = {}
        self._lock = threading.Lock()

    def send(self, request: Any, **_: Any) -> AWSResponse:
        """What botocore calls for each request; urllib3's errors come out as they are."""
        left = _current.get().left()
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
            _ = response.content  # read here, within the operation
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
    """The operation under way, or a new one of `seconds`."""
    if outer := _current.get(None):
        yield outer
        return
    with Operation(seconds) as new:
        yield new
