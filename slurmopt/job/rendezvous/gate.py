"""Authenticated connections between the processes of an attempt: both ends prove that they know the secret first.

The one that listens sends a number used once; the other answers with one of its own and a proof (HMAC-SHA256) over
both, and gets a proof back. Each proof names the purpose, who proves, and the address and port of the connection, so
none can be passed on to another port. The secret itself is never sent. What follows is neither encrypted nor signed.
"""

from __future__ import annotations

import contextlib
import hmac
import ipaddress
import os
import selectors
import socket
import struct
import sys
import threading
import time
from collections.abc import Callable
from functools import partial
from typing import Any

_NONCE = _PROOF = 32
_ASKED = struct.Struct(f">I{_NONCE}s{_PROOF}s")
"""The rank that asks, its nonce, its proof."""
_AT_ONCE = 64
"""Connections that have not proved themselves yet; further ones wait in the kernel's queue."""
_YOUNG = 0.25
"""Seconds that a connection has for its proof while others wait."""
_GREETING_SECONDS = 10.0
_REST = 0.1
"""Seconds without new connections if no file descriptor is left."""


class Unproven(ConnectionError):
    """The other end does not know the secret."""


class _Dropped(Unproven):
    """The other end has sent its greeting and closed the connection: it does not know the secret, or had no time for
    the proof."""


def connect(address: tuple[str, int], key: bytes, purpose: str, me: int, peer: int, seconds: float) -> socket.socket:
    """Connects to rank `peer`, which listens for `purpose`; both ends prove within `seconds` that they know the key.

    Tries again if other processes keep the listener busy. TimeoutError if nobody answers in time, Unproven if the
    listener does not know the key, OSError for other failures.
    """
    deadline, pause = time.monotonic() + seconds, 0.05
    while True:
        try:
            return _connect(address, partial(_proof, key), purpose, me, peer, deadline)
        except _Dropped:
            if time.monotonic() + pause >= deadline:
                raise
            time.sleep(pause)
            pause *= 1.5


def _connect(
    address: tuple[str, int], proof: Callable[..., bytes], purpose: str, me: int, peer: int, deadline: float
) -> socket.socket:
    connection = socket.create_connection(address, timeout=max(0.001, deadline - time.monotonic()))
    try:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        where, nonce = _place(connection.getpeername()), os.urandom(_NONCE)
        theirs = _exactly(connection, _NONCE, deadline)
        connection.sendall(_ASKED.pack(me, nonce, proof("ask", purpose, me, where, theirs + nonce)))
        try:
            answer = _exactly(connection, _PROOF, deadline)
        except (Unproven, ConnectionResetError) as error:
            raise _Dropped("it closed the connection") from error
        if not hmac.compare_digest(answer, proof("answer", purpose, peer, where, nonce + theirs)):
            raise Unproven("the proof is wrong")
        connection.settimeout(None)
        _keep_alive(connection)
    except BaseException:
        connection.close()
        raise
    return connection


def _proof(key: bytes, role: str, purpose: str, number: int, place: str, nonces: bytes) -> bytes:
    return hmac.digest(key, f"{role} {purpose} {number} {place} ".encode() + nonces, "sha256")


def _place(address: Any) -> str:
    """The same text at both ends, whether or not the socket is one of IPv6."""
    host = ipaddress.ip_address(address[0].partition("%")[0])
    return f"{getattr(host, 'ipv4_mapped', None) or host} {address[1]}"


def _exactly(connection: socket.socket, size: int, deadline: float) -> bytes:
    """Receives exactly `size` bytes; TimeoutError after the deadline, also if bytes arrive slowly."""
    data = b""
    while len(data) < size:
        if (left := deadline - time.monotonic()) <= 0:
            raise TimeoutError
        connection.settimeout(left)
        if not (chunk := connection.recv(size - len(data))):
            raise Unproven("it closed the connection")
        data += chunk
    return data


def _keep_alive(connection: socket.socket) -> None:
    """Enables TCP keepalive: after 20 s without data, three probes in 30 s. A node without power closes no
    connection."""
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for option, value in ((socket.TCP_KEEPIDLE, 20), (socket.TCP_KEEPINTVL, 10), (socket.TCP_KEEPCNT, 3)):
        connection.setsockopt(socket.IPPROTO_TCP, option, value)


class _Guest:
    """A connection that has not proved itself yet."""

    def __init__(self) -> None:
        self.since = time.monotonic()
        self.nonce = os.urandom(_NONCE)
        self.data = b""


class Gate:
    """Accepts any number of connections in one thread, and calls `admit(connection, rank)` there for each that proves
    itself. Unproven connections take at most 64 file descriptors, each for at most 10 s."""

    def __init__(
        self,
        listener: socket.socket,
        key: bytes,
        purpose: str,
        admit: Callable[[socket.socket, int], None],
        me: int = 0,
    ) -> None:
        self._listener, self._key, self._purpose, self._admit, self._me = listener, key, purpose, admit, me
        self._guests: dict[socket.socket, _Guest] = {}
        self._selector = selectors.DefaultSelector()
        self._listens = self._closed = self._complained = False
        self._rests_until = 0.0
        self.address: tuple[str, int] = listener.getsockname()[:2]

    def start(self) -> None:
        threading.Thread(target=self.run, name=f"slurmopt-{self._purpose}", daemon=True).start()

    def close(self) -> None:
        """Accepts no more connections. Called in the thread of `admit`."""
        self._closed = True

    def watch(self, connection: socket.socket | int, ready: Callable[[], None], writes: bool = False) -> None:
        """Calls `ready` in this thread whenever data has arrived or, with `writes`, more can be sent. Must be called in
        the thread of `admit`."""
        events = selectors.EVENT_READ | (selectors.EVENT_WRITE if writes else 0)
        is_watched = connection in self._selector.get_map()
        (self._selector.modify if is_watched else self._selector.register)(connection, events, ready)

    def forget(self, connection: socket.socket) -> None:
        """Stops watching the connection, and closes it."""
        with contextlib.suppress(KeyError):
            self._selector.unregister(connection)
        connection.close()

    def run(self) -> None:
        """Serves in this thread until `close`. The listening socket is closed however this ends."""
        self._listener.setblocking(False)
        try:
            while not self._closed:
                now = time.monotonic()
                self._listen_or_not(now)
                for each, _ in self._selector.select(self._pause(now)):
                    each.data()
                # After what has come was read: a proof may have waited here for longer than its sender's time.
                self._drop_slow(now)
        finally:
            self._listener.close()
            for guest in list(self._guests):
                self._drop(guest)

    def _pause(self, now: float) -> float | None:
        """Seconds until the oldest unproven connection times out, or connections are accepted again."""
        ends = [self._end()] if self._guests else []
        if self._rests_until > now:
            ends.append(self._rests_until)
        return max(0.0, min(ends) - now) if ends else None

    def _end(self) -> float:
        """When the oldest unproven connection times out."""
        return next(iter(self._guests.values())).since + (_GREETING_SECONDS if self._listens else _YOUNG)

    def _drop_slow(self, now: float) -> None:
        while self._guests and now >= self._end():
            self._drop(next(iter(self._guests)))

    def _listen_or_not(self, now: float) -> None:
        room = len(self._guests) < _AT_ONCE and now >= self._rests_until
        if room != self._listens:
            self._listens = room
            if room:
                self._selector.register(self._listener, selectors.EVENT_READ, self._accept)
            else:
                self._selector.unregister(self._listener)

    def _accept(self) -> None:
        try:
            connection, _ = self._listener.accept()
        except (BlockingIOError, ConnectionError):  # it was gone before
            return
        except OSError as error:  # no file descriptors are left
            self._rests_until = time.monotonic() + _REST
            self._complain(error)
            return
        guest = _Guest()
        try:
            connection.setblocking(False)
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            _keep_alive(connection)
            connection.send(guest.nonce)
            self._selector.register(connection, selectors.EVENT_READ, partial(self._hear, connection, guest))
        except OSError:  # it went away
            connection.close()
            return
        self._guests[connection] = guest

    def _complain(self, error: OSError) -> None:
        if not self._complained:
            self._complained = True
            print(f"slurmopt: {self._purpose}: no connection is accepted: {error}", file=sys.stderr, flush=True)

    def _drop(self, connection: socket.socket) -> None:
        self._guests.pop(connection, None)
        self.forget(connection)

    def _hear(self, connection: socket.socket, guest: _Guest) -> None:
        try:
            chunk = connection.recv(_ASKED.size - len(guest.data))
            guest.data += chunk
            if chunk and len(guest.data) < _ASKED.size:
                return
            answer = self._answer(connection, guest) if chunk else None
            if answer is None:
                return self._drop(connection)
            connection.send(answer)
        except BlockingIOError:
            return
        except OSError:  # it went away
            return self._drop(connection)
        del self._guests[connection]
        self._selector.unregister(connection)
        connection.setblocking(True)
        self._admit(connection, _ASKED.unpack(guest.data)[0])

    def _answer(self, connection: socket.socket, guest: _Guest) -> bytes | None:
        number, theirs, proof = _ASKED.unpack(guest.data)
        where = _place(connection.getsockname())
        right = _proof(self._key, "ask", self._purpose, number, where, guest.nonce + theirs)
        if not hmac.compare_digest(proof, right):
            return None
        return _proof(self._key, "answer", self._purpose, self._me, where, theirs + guest.nonce)
