"""A writer's line to the coordinator in rank 0's writer."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from multiprocessing.connection import Connection
from typing import Any

from slurmopt.checkpoint.commit.coordinator import PURPOSE, receive
from slurmopt.job.rendezvous import gate

_MEETING_SECONDS = 25.0


class CoordinatorClient:
    """Sends parts. What comes back goes to `seal`, whose answer is sent, then to `tidy`, or to `settled`. `cut` is
    called when the line is gone."""

    def __init__(
        self,
        rank: int,
        host: str,
        port: int,
        key: bytes,
        seal: Callable[[dict[str, Any]], dict[str, Any]],
        tidy: Callable[[dict[str, Any]], None],
        settled: Callable[[dict[str, Any]], None],
        cut: Callable[[], None],
    ) -> None:
        self._address = (host, port)
        self._seal, self._tidy, self._settled, self._cut = seal, tidy, settled, cut
        self._connection = Connection(gate.connect(self._address, key, PURPOSE, rank, 0, _MEETING_SECONDS).detach())
        self._sending = threading.Lock()
        self._gone = False
        self._waiting: dict[tuple[str, str], int] = {}
        self.send({"hello": rank})
        receive(self._connection)  # the welcome: from now on the coordinator counts on this rank
        threading.Thread(target=self._listen, name="slurmopt-member", daemon=True).start()

    def meets(self, host: str, port: int) -> bool:
        """Whether it is the line to that coordinator, and still stands."""
        return self._address == (host, port) and not self._gone

    def send(self, message: dict[str, Any]) -> bool:
        """Whether it could be sent."""
        if "part" in message:
            self._waiting[message["name"], message["tier"]] = message["step"]
        try:
            with self._sending:
                self._connection.send_bytes(json.dumps(message).encode())
        except OSError:
            self._gone = True
        return not self._gone

    def _listen(self) -> None:
        while (message := receive(self._connection)) is not None:
            if "seal" in message:
                # Committing to S3 takes its time; the next verdict must not wait for it, but the end of the process.
                threading.Thread(target=self._answer, args=(message,), name="slurmopt-seal", daemon=False).start()
            else:
                verdict = message["verdict"]
                self._waiting.pop((verdict["name"], verdict["tier"]), None)
                self._settled(verdict)
        self._gone = True
        for (name, tier), step in list(self._waiting.items()):
            reason = "rank 0's writer is gone"
            self._settled({"is": "failed", "name": name, "tier": tier, "step": step, "reason": reason, "seconds": 0.0})
        self._cut()

    def _answer(self, message: dict[str, Any]) -> None:
        answer = self._seal(message)
        self.send({**answer, "name": message["seal"], "tier": message["tier"], "step": message["commit"]["step"]})
        if "sealed" in answer:
            self._tidy(message)
