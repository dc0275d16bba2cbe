"""WriterProcess: starts a rank's writer process, sends it messages, and receives its reports."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Callable
from typing import Any

from slurmopt.checkpoint.snapshot.arena import Arena
from slurmopt.checkpoint.writer import channel
from slurmopt.run_folder.process import module_words

_LAST_SECONDS = 10.0
_CONNECT_SECONDS = 30.0


class WriterProcess:
    """One writer process. It is not restarted: the WriterPool creates another."""

    def __init__(self, setup: dict[str, Any], on_message: Callable[[dict[str, Any]], None]) -> None:
        self._on_message = on_message
        self._ready, self._connected = threading.Event(), threading.Event()
        self.alive = True
        self.problems: dict[str, tuple[str, str]] = {}
        self.meeting: tuple[int, str] | None = None
        self.newest = 0
        self._channel, child_socket = channel.pair()
        command = [sys.executable, *module_words("slurmopt.checkpoint.writer.main"), str(child_socket.fileno())]
        self._process = subprocess.Popen(command, pass_fds=[child_socket.fileno()], stdin=subprocess.DEVNULL)
        child_socket.close()
        self.send(setup)
        threading.Thread(target=self._listen, name="slurmopt-checkpoint", daemon=True).start()

    @property
    def pid(self) -> int:
        return self._process.pid

    def ready(self) -> bool:
        """Waits until the writer has opened its tiers; returns False where it exited."""
        self._ready.wait()
        return self.alive

    def connect(self, host: str, port: int, key: str) -> None:
        """Connects the writer to rank 0's; waits until it has connected, failed or exited."""
        self._connected.clear()
        if self.send({"do": "meet", "host": host, "port": port, "key": key}):
            self._connected.wait(_CONNECT_SECONDS)

    def send(self, message: dict[str, Any], descriptor: int | None = None) -> bool:
        """Returns whether the message could be sent."""
        try:
            self._channel.send(message, descriptor)
        except OSError:
            self.alive = False
        return self.alive

    def arena(self, arena: Arena) -> None:
        """Passes the shared memory to the writer."""
        self.send({"do": "arena", "size": arena.size, "buffers": arena.buffers}, arena.descriptor)

    def _listen(self) -> None:
        while (received := self._channel.receive()) is not None:
            message = received[0]
            if message["is"] == "ready":
                self.problems = message["problems"]
                self.meeting = message["meeting"] and tuple(message["meeting"])
                self.newest = message["newest"]
                self._ready.set()
            elif message["is"] == "met":
                self._connected.set()
            else:
                self._on_message(message)
        self.alive = False
        self._ready.set()
        self._connected.set()
        self._on_message({"is": "gone", "status": self._process.wait()})

    def kill(self) -> None:
        """Kills the process and waits for its exit."""
        self._process.kill()
        self._process.wait()
        self.alive = False

    def close(self, seconds: float) -> None:
        """Lets it complete the saves that have begun, for at most `seconds`; then kills it."""
        self._channel.finish()
        try:
            self._process.wait(seconds)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait(_LAST_SECONDS)
        self._channel.close()
