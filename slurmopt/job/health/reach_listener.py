"""Asks another node of the attempt whether it answers, and answers such requests.

Both prove that they know the attempt's secret, so that whoever else has got the port is told from the node; nothing
but the proof is said.
"""

from __future__ import annotations

import socket
import threading

from slurmopt.job.rendezvous import gate
from slurmopt.job.rendezvous.addresses import listen
from slurmopt.job.rendezvous.gate import Gate

_PURPOSE = "reach"


def ask(address: str, key: bytes, me: int, peer: int, seconds: float) -> str | None:
    """None where node `peer` answers at `address` (host:port) within `seconds`; else what is wrong, in a few words."""
    host, _, port = address.rpartition(":")
    try:
        gate.connect((host.strip("[]"), int(port)), key, _PURPOSE, me, peer, seconds).close()
    except TimeoutError:
        return silence(seconds)
    except gate.Unproven:
        return "what answers there is no rank of this attempt"
    except ConnectionRefusedError:  # in words that do not look like the loss of a rank during the training
        return "it refuses the connection"
    except ConnectionError:
        return "it broke the connection off"
    except (OSError, ValueError) as error:
        return getattr(error, "strerror", None) or str(error)
    return None


def silence(seconds: float) -> str:
    """The answer of `ask` for a node that does not answer."""
    return f"no answer within {seconds:.3g} s"


class Listener:
    """Answers the other nodes at `host`, until each has asked, or the process ends."""

    def __init__(self, host: str, key: bytes, node: int, others: set[int]) -> None:
        self._missing = set(others)
        self._changed = threading.Condition()
        self._gate = Gate(listen(host), key, _PURPOSE, self._heard, node)
        self.port = self._gate.address[1]

    def start(self) -> None:
        self._gate.start()

    def wait_for(self, nodes: set[int], seconds: float) -> bool:
        """Waits until all of `nodes` have asked. Returns whether they have."""
        with self._changed:
            return self._changed.wait_for(lambda: not nodes & self._missing, seconds)

    def _heard(self, connection: socket.socket, node: int) -> None:
        connection.close()
        with self._changed:
            self._missing.discard(node)
            self._changed.notify_all()
            if not self._missing:
                self._gate.close()
