"""One question and one answer between two nodes of an attempt.

Both prove that they know the run and the attempt, so that whoever else has got the port is told from the node; nothing
but the proof is said. The question carries a number used once, and the answer depends on it.
"""

from __future__ import annotations

import hashlib
import hmac
import os
import socket
import threading
import time

from slurmopt.runtime.addresses import listen_everywhere

_LONGEST = 160
"""Bytes of a question or an answer, and more than either has."""
_AT_ONCE = 64
_PATIENCE = 5.0


def key_of(folder: str, attempt: int, job: str) -> bytes:
    """What the nodes of one attempt share. The run folder is private; strangers know none of its names."""
    return hashlib.sha256(f"{folder}\0{attempt}\0{job}".encode()).digest()


def _proof(key: bytes, role: str, node: int, nonce: str) -> str:
    return hmac.new(key, f"{role} {node} {nonce}".encode(), "sha256").hexdigest()


def _line(connection: socket.socket, seconds: float) -> str:
    """What comes up to the end of the line; TimeoutError after `seconds`, however slowly it drips."""
    deadline, data = time.monotonic() + seconds, b""
    while not data.endswith(b"\n") and len(data) < _LONGEST:
        if (left := deadline - time.monotonic()) <= 0:
            raise TimeoutError
        connection.settimeout(left)
        if not (more := connection.recv(_LONGEST - len(data))):
            break
        data += more
    return data.decode("ascii", errors="replace").strip()


def ask(address: str, key: bytes, me: int, peer: int, seconds: float) -> str | None:
    """None where node `peer` answers at `address` (host:port) within `seconds`; else what is wrong, in a few words."""
    host, _, port = address.rpartition(":")
    deadline, nonce = time.monotonic() + seconds, os.urandom(16).hex()
    try:
        with socket.create_connection((host.strip("[]"), int(port)), timeout=seconds) as connection:
            connection.sendall(f"{me} {nonce} {_proof(key, 'ask', me, nonce)}\n".encode())
            answer = _line(connection, deadline - time.monotonic())
    except TimeoutError:
        return silence(seconds)
    except ConnectionRefusedError:  # in words that do not look like the loss of a rank during the training
        return "it refuses the connection"
    except ConnectionError:
        return "it broke the connection off"
    except (OSError, ValueError) as error:
        return getattr(error, "strerror", None) or str(error)
    # A stranger may answer anything, and compare_digest takes no text beyond ASCII.
    right = hmac.compare_digest(answer.encode(), _proof(key, "answer", peer, nonce).encode())
    return None if right else "what answers there is no rank of this attempt"


def silence(seconds: float) -> str:
    """What `ask` says of a node that does not answer."""
    return f"no answer within {seconds:.3g} s"


class Listener:
    """Answers the other nodes, until each has asked, or the process ends."""

    def __init__(self, key: bytes, node: int, others: set[int]) -> None:
        self._key, self._node, self._missing = key, node, set(others)
        self._changed = threading.Condition()
        self._free = threading.BoundedSemaphore(_AT_ONCE)
        self._socket = listen_everywhere()
        self.port = int(self._socket.getsockname()[1])

    def start(self) -> None:
        threading.Thread(target=self._serve, name="slurmopt-listener", daemon=True).start()

    def wait_for(self, nodes: set[int], seconds: float) -> bool:
        """Waits until all of `nodes` have asked; whether they have."""
        with self._changed:
            return self._changed.wait_for(lambda: not nodes & self._missing, seconds)

    def _serve(self) -> None:
        while True:
            try:
                connection, _ = self._socket.accept()
            except OSError:  # all have asked, and `_heard` has shut it
                break
            self._free.acquire()
            threading.Thread(target=self._answer, args=(connection,), daemon=True).start()
        self._socket.close()

    def _answer(self, connection: socket.socket) -> None:
        try:
            with connection:
                words = _line(connection, _PATIENCE).split()
                if self._is_ours(words):
                    connection.sendall(f"{_proof(self._key, 'answer', self._node, words[1])}\n".encode())
                    self._heard(int(words[0]))
        except OSError:  # it went away, or said nothing: it will ask again, or is a stranger
            return
        finally:
            self._free.release()

    def _is_ours(self, words: list[str]) -> bool:
        if len(words) != 3 or not words[0].isdecimal():
            return False
        right = _proof(self._key, "ask", int(words[0]), words[1])
        return hmac.compare_digest(words[2].encode(), right.encode())

    def _heard(self, node: int) -> None:
        with self._changed:
            self._missing.discard(node)
            self._changed.notify_all()
            if not self._missing:
                self._socket.shutdown(socket.SHUT_RDWR)  # wakes the thread that accepts
