"""Messages between a rank and its writer process: JSON over a socket pair, now and then with a file descriptor."""

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
    """One end. Any thread may send; one thread receives."""

    def __init__(self, connected: socket.socket) -> None:
        self._socket = connected
        self._sending = threading.Lock()

    def send(self, message: dict[str, Any], descriptor: int | None = None) -> None:
        """BrokenPipeError or ConnectionError where the other end is gone."""
        data = json.dumps(message).encode()
        with self._sending:
            socket.send_fds(self._socket, [_LENGTH.pack(len(data))], [] if descriptor is None else [descriptor])
            self._socket.sendall(data)

    def receive(self) -> tuple[dict[str, Any], int | None] | None:
        """The next message and the descriptor that came with it; None once the other end is gone."""
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
        """Nothing more will be sent from here; the other end learns it."""
        with contextlib.suppress(OSError):  # it is gone already
            self._socket.shutdown(socket.SHUT_WR)

    def close(self) -> None:
        self._socket.close()


def pair() -> tuple[Channel, socket.socket]:
    """This process's end, and the socket for the other's."""
    ours, theirs = socket.socketpair()
    os.set_inheritable(theirs.fileno(), True)
    return Channel(ours), theirs
