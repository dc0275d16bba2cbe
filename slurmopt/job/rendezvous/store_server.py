"""Serves rank 0's keys and values to the ranks that have proved that they belong to the attempt.

torch's own TCPStore serves whoever connects, and lists all keys to them: any user who reaches the port could make the
run stop, or end it.

They are in a process beside rank 0: no work of the training's delays an answer, and answers do not delay the training.
It is no child of rank 0: the training may end its children, and wait for them.
"""

from __future__ import annotations

import os
import signal
import socket
import struct
import subprocess
import sys
import traceback
from collections.abc import Callable, Iterable
from functools import partial
from typing import IO

from slurmopt.job.rendezvous.frames import decoded, encoded
from slurmopt.job.rendezvous.gate import Gate
from slurmopt.run_folder.process import module_words

PURPOSE = "store"
_CHUNK = 2**18
_KEY_BYTES = 32
_UNACKNOWLEDGED_MS = 60_000
DONE, _REFUSED = b"done", b"refused"
"""The first item of an answer. After the second of these the reason follows."""
_FOR_THE_RANK = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2)
"""Signals that Slurm sends to all processes of a step. They are ignored, as the ranks need the store while they
save."""


def start(listener: socket.socket, key: bytes) -> IO[bytes]:
    """Starts a process that answers at `listener`, until this process ends or closes the returned file. `listener` is
    closed in this process. `key` has 32 bytes. OSError if no process can be started."""
    own = _own_pidfd()
    descriptors = [listener.fileno(), *own]
    words = [sys.executable, *module_words("slurmopt.job.rendezvous.store_server"), *map(str, descriptors)]
    held = signal.pthread_sigmask(signal.SIG_BLOCK, _FOR_THE_RANK)  # a process inherits what its parent blocks
    try:
        with listener:
            process = subprocess.Popen(words, bufsize=0, stdin=subprocess.PIPE, pass_fds=descriptors)
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, held)
        for descriptor in own:
            os.close(descriptor)
    pipe = process.stdin
    assert pipe is not None
    try:
        pipe.write(key)
    finally:
        status = process.wait()  # it leaves the store behind, and ends
    if status:
        raise ChildProcessError(f"the process of rank 0's store ended with status {status}")
    return pipe


def give_up_unacknowledged(connection: socket.socket) -> None:
    """Closes the connection after a minute without acknowledgement instead of a quarter of an hour: the other node or
    the network is down."""
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, _UNACKNOWLEDGED_MS)


def _own_pidfd() -> list[int]:
    """A descriptor that becomes readable when this process ends. The end of the pipe does not show this while a forked
    child lives; kernels before Linux 5.3 have only that."""
    try:
        return [os.pidfd_open(os.getpid())]
    except OSError:
        return []


class _Member:
    """One connection: what has arrived of a request, and what is still to be sent."""

    def __init__(self, connection: socket.socket) -> None:
        self.connection = connection
        self.came, self.leaving = bytearray(), bytearray()
        self.awaited: list[bytes] | None = None
        """The keys that it waits for, not all of them set yet."""
        self.is_full = False
        """Whether the send buffer is full."""
        self.answer: Callable[[], list[bytes]] = list


class StoreServer:
    """The keys and values, in the memory of this process."""

    def __init__(self, listener: socket.socket, key: bytes) -> None:
        self._values: dict[bytes, bytes] = {}
        self._waiting: dict[_Member, None] = {}
        self._gate = Gate(listener, key, PURPOSE, self._admit)

    def run(self, lives: Iterable[int]) -> None:
        """Answers in this thread, and ends the process once one of the descriptors `lives` becomes readable."""
        for descriptor in lives:
            self._gate.watch(descriptor, partial(os._exit, 0))
        self._gate.run()

    def _admit(self, connection: socket.socket, rank: int) -> None:
        connection.setblocking(False)
        give_up_unacknowledged(connection)
        member = _Member(connection)
        self._gate.watch(connection, partial(self._serve, member))

    def _serve(self, member: _Member) -> None:
        try:
            if member.leaving:
                self._send(member)
            data = member.connection.recv(_CHUNK)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            self._waiting.pop(member, None)
            return self._gate.forget(member.connection)
        member.came += data
        try:
            while (request := decoded(member.came)) is not None:
                self._take(member, request)
        except struct.error as error:  # these are no lists
            print(f"slurmopt: rank 0's store cannot answer: {error}", file=sys.stderr, flush=True)
            self._waiting.pop(member, None)
            self._gate.forget(member.connection)

    def _take(self, member: _Member, request: list[bytes]) -> None:
        try:
            word, *rest = request
            answer = getattr(self, f"_do_{word.decode()}")(*rest)
        except (ValueError, TypeError, AttributeError) as error:  # it asks for what cannot be done
            return self._reply(member, [_REFUSED, str(error).encode()])
        if word in (b"get", b"wait"):
            member.awaited, member.answer = rest, answer
            self._waiting[member] = None
            self._settle(member)
        else:
            self._reply(member, [DONE, *answer])

    def _settle(self, member: _Member) -> None:
        if all(key in self._values for key in member.awaited or ()):
            del self._waiting[member]
            self._reply(member, [DONE, *member.answer()])

    def _put(self, key: bytes, value: bytes) -> None:
        is_new = key not in self._values
        self._values[key] = value
        if is_new:
            for member in [each for each in self._waiting if key in (each.awaited or ())]:
                self._settle(member)

    def _do_get(self, *keys: bytes) -> Callable[[], list[bytes]]:
        return lambda: [self._values[key] for key in keys]

    def _do_wait(self, *keys: bytes) -> Callable[[], list[bytes]]:
        return list

    def _do_set(self, *pairs: bytes) -> list[bytes]:
        for key, value in zip(pairs[::2], pairs[1::2], strict=True):
            self._put(key, value)
        return []

    def _do_add(self, key: bytes, number: bytes) -> list[bytes]:
        self._put(key, str(int(self._values.get(key, b"0")) + int(number)).encode())
        return [self._values[key]]

    def _do_append(self, key: bytes, value: bytes) -> list[bytes]:
        self._put(key, self._values.get(key, b"") + value)
        return []

    def _do_compare_set(self, key: bytes, expected: bytes, desired: bytes) -> list[bytes]:
        """As in torch: a missing key is set if nothing is expected."""
        if key not in self._values and expected:
            return [expected]
        if key not in self._values or self._values[key] == expected:
            self._put(key, desired)
        return [self._values[key]]

    def _do_check(self, *keys: bytes) -> list[bytes]:
        return [b"1" if all(key in self._values for key in keys) else b"0"]

    def _do_delete(self, key: bytes) -> list[bytes]:
        return [b"0" if self._values.pop(key, None) is None else b"1"]

    def _do_count(self) -> list[bytes]:
        return [str(len(self._values)).encode()]

    def _reply(self, member: _Member, answer: list[bytes]) -> None:
        member.leaving += encoded(answer)
        self._send(member)

    def _send(self, member: _Member) -> None:
        """Sends as much as possible now, and the rest once the connection is writable."""
        try:
            del member.leaving[: member.connection.send(member.leaving)]
        except BlockingIOError:
            pass
        except OSError:  # gone: its end is read next
            member.leaving.clear()
        if bool(member.leaving) != member.is_full:
            member.is_full = bool(member.leaving)
            self._gate.watch(member.connection, partial(self._serve, member), writes=member.is_full)


def main(argv: list[str]) -> int:
    """Runs the server. The arguments are descriptors: of the listening socket, and those that end with rank 0. The key
    is read from standard input, which ends with rank 0 as well."""
    if os.fork():
        os._exit(0)
    listener, *lives = map(int, argv)
    try:
        key = os.read(0, _KEY_BYTES)
        if len(key) == _KEY_BYTES:
            StoreServer(socket.socket(fileno=listener), key).run([0, *lives])
    except BaseException:  # noqa: BLE001 - ranks must find nobody here, in place of one who does not answer
        traceback.print_exc()
    os._exit(1)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
