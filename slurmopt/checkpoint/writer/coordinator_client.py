"""CoordinatorClient: a writer's connection to the coordinator in rank 0's writer."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from multiprocessing.connection import Connection
from typing import Any

from slurmopt.checkpoint.commit.coordinator import PURPOSE, receive
from slurmopt.job.rendezvous import gate

_CONNECT_SECONDS = 25.0


class CoordinatorClient:
    """Sends what this rank wrote, and handles the coordinator's messages.

    A request to commit is passed to `commit`, whose answer is sent back, and then to `clean_up`; a verdict is passed to
    `settled`. `disconnected` is called when the connection is lost.
    """

    def __init__(
        self,
        rank: int,
        host: str,
        port: int,
        key: bytes,
        commit: Callable[[dict[str, Any]], dict[str, Any]],
        clean_up: Callable[[dict[str, Any]], None],
        settled: Callable[[dict[str, Any]], None],
        disconnected: Callable[[], None],
    ) -> None:
        self._address = (host, port)
        self._commit, self._clean_up, self._settled, self._disconnected = commit, clean_up, settled, disconnected
        self._connection = Connection(gate.connect(self._address, key, PURPOSE, rank, 0, _CONNECT_SECONDS).detach())
        self._sending = threading.Lock()
        self._is_gone = False
        self._waiting: dict[tuple[str, str], int] = {}
        self.send({"hello": rank})
        receive(self._connection)  # the welcome: the coordinator has registered this rank
        threading.Thread(target=self._listen, name="slurmopt-member", daemon=True).start()

    def is_connected_to(self, host: str, port: int) -> bool:
        """Whether it is connected to that coordinator."""
        return self._address == (host, port) and not self._is_gone

    def send(self, message: dict[str, Any]) -> bool:
        """Returns whether the message could be sent."""
        if "part" in message:
            self._waiting[message["name"], message["tier"]] = message["step"]
        try:
            with self._sending:
                self._connection.send_bytes(json.dumps(message).encode())
        except OSError:
            self._is_gone = True
        return not self._is_gone

    def _listen(self) -> None:
        while (message := receive(self._connection)) is not None:
            if "seal" in message:
                # In a thread, since a commit to S3 takes long and must not delay the next verdict. Not a daemon: it
                # must complete.
                threading.Thread(target=self._answer, args=(message,), name="slurmopt-seal", daemon=False).start()
            else:
                verdict = message["verdict"]
                self._waiting.pop((verdict["name"], verdict["tier"]), None)
                self._settled(verdict)
        self._is_gone = True
        for (name, tier), step in list(self._waiting.items()):
            reason = "rank 0's writer is gone"
            self._settled({"is": "failed", "name": name, "tier": tier, "step": step, "reason": reason, "seconds": 0.0})
        self._disconnected()

    def _answer(self, message: dict[str, Any]) -> None:
        answer = self._commit(message)
        self.send({**answer, "name": message["seal"], "tier": message["tier"], "step": message["commit"]["step"]})
        if "sealed" in answer:
            self._clean_up(message)
