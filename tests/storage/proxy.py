"""A line between a client and a server that a test can spoil."""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from collections.abc import Callable, Iterator
from urllib.parse import urlsplit

Spoil = Callable[[bytes, int], bytes]
"""Gets what one side sends, and at which byte of its connection that begins; returns what goes on."""


@contextlib.contextmanager
def proxy(
    endpoint: str,
    spoil: Spoil = lambda data, _: data,
    bytes_per_second: int = 0,
    lose_first_answer: list[int] | None = None,
    spoil_answer: Spoil = lambda data, _: data,
) -> Iterator[str]:
    """The address of a proxy for `endpoint`; `bytes_per_second` for each connection and direction, 0 for no limit.

    `spoil` changes what clients send, `spoil_answer` what they get. With `lose_first_answer` the first connection
    breaks off when its answer comes; its length is appended.
    """

    def answer(data: bytes, position: int) -> bytes:
        if lose_first_answer is not None and not lose_first_answer:
            lose_first_answer.append(len(data))
            raise ConnectionResetError
        return spoil_answer(data, position)

    there = urlsplit(endpoint)
    stopped = threading.Event()
    listener = socket.create_server(("127.0.0.1", 0))

    def accept() -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = listener.accept()
                server = socket.create_connection((str(there.hostname), int(there.port or 80)))
                for line in ((client, server, spoil), (server, client, answer)):
                    threading.Thread(target=_pump, args=(*line, bytes_per_second, stopped), daemon=True).start()

    threading.Thread(target=accept, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
    finally:
        stopped.set()
        listener.shutdown(socket.SHUT_RDWR)
        listener.close()


def _pump(
    source: socket.socket, target: socket.socket, change: Spoil, bytes_per_second: int, stopped: threading.Event
) -> None:
    position = 0
    size = max(1, bytes_per_second // 10) if bytes_per_second else 1 << 16
    with contextlib.suppress(OSError):
        while not stopped.is_set() and (data := source.recv(size)):
            target.sendall(change(data, position))
            position += len(data)
            if bytes_per_second:
                time.sleep(len(data) / bytes_per_second)
    for one in (source, target):
        with contextlib.suppress(OSError):
            one.shutdown(socket.SHUT_RDWR)
