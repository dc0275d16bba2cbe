"""Reads and writes the keys of rank 0's store, also as a `torch.distributed.Store`."""

from __future__ import annotations

import importlib
import socket
import threading
import time
from collections.abc import Callable
from datetime import timedelta
from typing import Any

from slurmopt.job.rendezvous.frames import decoded, encoded
from slurmopt.job.rendezvous.gate import connect
from slurmopt.job.rendezvous.store_server import DONE, PURPOSE, give_up_unacknowledged

_CHUNK = 2**18
_RECONNECT_SECONDS = 10.0
"""Seconds for a further connection to a store that has answered before."""
_KEPT = 2
"""Idle connections that are kept. Each takes a file descriptor of the store."""


class StoreClient:
    """Sends requests to rank 0. Any thread may use it: if all connections are busy, as when one waits for a key,
    another is made. `timeout` is in seconds.

    Raises torch.distributed.DistStoreError if a key is not set in time, DistNetworkError if rank 0 has ended.
    """

    def __init__(self, first: socket.socket, again: Callable[[float], socket.socket], timeout: float) -> None:
        self._again, self._timeout = again, timeout
        self._lock = threading.Lock()
        self._idle = [first]

    def set(self, key: str, value: str | bytes) -> None:
        self._ask(b"set", key, value)

    def get(self, key: str, seconds: float | None = None) -> bytes:
        return self._ask(b"get", key, seconds=seconds)[0]

    def wait(self, keys: list[str], seconds: float | None = None) -> None:
        self._ask(b"wait", *keys, seconds=seconds)

    def check(self, keys: list[str]) -> bool:
        return self._ask(b"check", *keys) == [b"1"]

    def add(self, key: str, number: int) -> int:
        return int(self._ask(b"add", key, str(number))[0])

    def append(self, key: str, value: str | bytes) -> None:
        self._ask(b"append", key, value)

    def compare_set(self, key: str, expected: str | bytes, desired: str | bytes) -> bytes:
        return self._ask(b"compare_set", key, expected, desired)[0]

    def delete_key(self, key: str) -> bool:
        return self._ask(b"delete", key) == [b"1"]

    def num_keys(self) -> int:
        return int(self._ask(b"count")[0])

    def multi_get(self, keys: list[str]) -> list[bytes]:
        return self._ask(b"get", *keys)

    def multi_set(self, keys: list[str], values: list[str | bytes]) -> None:
        self._ask(b"set", *(each for pair in zip(keys, values, strict=True) for each in pair))

    def _ask(self, word: bytes, *items: str | bytes, seconds: float | None = None) -> list[bytes]:
        seconds = self._timeout if seconds is None else seconds
        try:
            outcome, *answer = self._exchange(encoded([word, *(_bytes(item) for item in items)]), seconds)
        except _Late as error:
            keys = ", ".join(str(item) for item in items)
            raise _error("DistStoreError", f"wait timeout after {1000 * seconds:.0f}ms, keys: {keys}") from error
        except OSError as error:
            raise _error("DistNetworkError", f"rank 0's store is gone: connection closed by peer ({error})") from error
        if outcome != DONE:
            raise _error("DistStoreError", f"rank 0's store cannot answer: {answer[0].decode()}")
        return answer

    def _exchange(self, request: bytes, seconds: float) -> list[bytes]:
        deadline = time.monotonic() + seconds
        with self._lock:
            idle = self._idle.pop() if self._idle else None
        connection = idle or self._another(seconds)
        try:
            connection.settimeout(max(0.001, deadline - time.monotonic()))
            connection.sendall(request)
            answer = _answer(connection, deadline)
        except BaseException as error:
            connection.close()  # an answer may still come, to a question that nobody asks any more
            if isinstance(error, TimeoutError) and error.errno is None:  # the kernel's own time-out has a number
                raise _Late from error
            raise
        with self._lock:
            if len(self._idle) < _KEPT:
                self._idle.append(connection)
                return answer
        connection.close()
        return answer

    def _another(self, seconds: float) -> socket.socket:
        try:
            return self._again(min(seconds, _RECONNECT_SECONDS))
        except TimeoutError as error:
            if seconds <= _RECONNECT_SECONDS:
                raise _Late from error
            raise ConnectionError("it does not answer") from error


class _Late(Exception):
    """The answer did not arrive in time."""


def _answer(connection: socket.socket, deadline: float) -> list[bytes]:
    data = bytearray()
    while (answer := decoded(data)) is None:
        if (left := deadline - time.monotonic()) <= 0:
            raise TimeoutError
        connection.settimeout(left)
        if not (chunk := connection.recv(_CHUNK)):
            raise ConnectionError("end of file")
        data += chunk
    return answer


def _bytes(item: str | bytes) -> bytes:
    return item.encode() if isinstance(item, str) else bytes(item)


def _error(kind: str, text: str) -> RuntimeError:
    error: RuntimeError = getattr(importlib.import_module("torch.distributed"), kind)(text)
    return error


def connected(address: tuple[str, int], key: bytes, rank: int, timeout: float, patience: float) -> StoreClient:
    """The store at `address`, once both ends have proved themselves within `patience` seconds. `OSError`, `Unproven`
    and `TimeoutError` as `gate.connect` raises them."""

    def again(seconds: float) -> socket.socket:
        connection = connect(address, key, PURPOSE, rank, 0, seconds)
        give_up_unacknowledged(connection)
        return connection

    return StoreClient(again(patience), again, timeout)


def torch_store(client: StoreClient, timeout: float) -> Any:
    """`client` as a `torch.distributed.Store`, for process groups of any backend. It must outlive them: torch holds no
    reference to the Python object. `list_keys` and the queues raise NotImplementedError."""
    base = importlib.import_module("torch.distributed").Store
    members: dict[str, Any] = {name: _passed_on(name) for name in _PASSED_ON}
    members |= {"get": _get, "wait": _wait, "clone": lambda self: self}
    # torch's PrefixStore looks these two up by their names in C++
    members |= {"deleteKey": members["delete_key"], "getNumKeys": members["num_keys"]}
    store = type("AttemptStore", (base,), members)()
    store.client = client
    store.set_timeout(timedelta(seconds=timeout))
    return store


_PASSED_ON = (
    "set", "check", "add", "append", "compare_set", "delete_key", "num_keys", "multi_get", "multi_set",
)  # fmt: skip


def _passed_on(name: str) -> Callable[..., Any]:
    return lambda self, *arguments: getattr(self.client, name)(*arguments)


def _get(self: Any, key: str) -> bytes:
    return self.client.get(key, self.timeout.total_seconds())  # type: ignore[no-any-return]


def _wait(self: Any, keys: list[str], timeout: timedelta | None = None) -> None:
    self.client.wait(keys, (self.timeout if timeout is None else timeout).total_seconds())
