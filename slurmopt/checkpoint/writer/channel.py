"""Channel: JSON messages, optionally with a file descriptor, between a rank and its writer process."""

from __future__ import annotations

import contextlib
import json
import os
import socket
import struct
import threading
from typing import Any

_LENGTH = struct.Struct(">Q")


class Channel:
    """One end of the socket pair. Any thread may send; one thread receives."""

    def __init__(self, connected: socket.socket) -> None:
        self._socket = connected
        self._sending = threading.Lock()

    def send(self, message: dict[str, Any], descriptor: int | None = None) -> None:
        """Raises BrokenPipeError or ConnectionError where the other end is closed."""
        data = json.dumps(message).encode()
        with self._sending:
            socket.send_fds(self._socket, [_LENGTH.pack(len(data))], [] if descriptor is None else [descriptor])
            self._socket.sendall(data)

    def receive(self) -> tuple[dict[str, Any], int | None] | None:
        """The next message and its file descriptor; None once the other end is closed."""
        try:
            head, descriptors, _, _ = socket.recv_fds(self._socket, _LENGTH.size, 1)
            while head and len(head) < _LENGTH.size:
                head += self._socket.recv(_LENGTH.size - len(head))
            data = self._exactly(_LENGTH.unpack(head)[0]) if head else b""
        except ConnectionError:
            return None
        return (json.loads(data), descriptors[0] if descriptors else None) if data else None

    def _exactly(self, length: int) -> bytes:
        data = bytearray(length)
        view = memoryview(data)
        while view:
            count = self._socket.recv_into(view)
            if not count:
                return b""
            view = view[count:]
        return bytes(data)

    def finish(self) -> None:
        """Closes the sending direction; the other end then receives None."""
        with contextlib.suppress(OSError):  # it is closed already
            self._socket.shutdown(socket.SHUT_WR)

    def close(self) -> None:
        self._socket.close()


def pair() -> tuple[Channel, socket.socket]:
    """A channel, and the socket of its other end for the child process."""
    own_socket, child_socket = socket.socketpair()
    os.set_inheritable(child_socket.fileno(), True)
    return Channel(own_socket), child_socket
