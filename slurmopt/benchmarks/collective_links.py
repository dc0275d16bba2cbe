"""Measures the links one by one: between nodes by one rank of each, on one node between its ranks.

In each round of a round-robin tournament every endpoint exchanges data with one other, both ways at once; an exchange
goes through batch_isend_irecv, which uses the communicator of the group, where single sends would make one for each
pair with NCCL. The shortest of some exchanges counts: what else runs on a node only makes them longer.
"""

from __future__ import annotations

import time
from typing import Any

from slurmopt.collectives.outliers import Link
from slurmopt.collectives.rounds import rounds

_SMALL = 8
_REPEATS = 10
_SIZES = (1 << 16, 1 << 20, 1 << 24)
"""Bytes of the exchanges that measure bandwidth: the next size is taken while an exchange is short."""
_SHORT = 0.02
_LARGE_REPEATS = 3


def measured(endpoints: list[tuple[int, str]], rank: int, device: Any) -> list[Link]:
    """The links between the endpoints (rank, name), in every rank. All ranks of the group call this."""
    import torch.distributed as dist

    mine = next((at for at, (its, _) in enumerate(endpoints) if its == rank), None)
    found: list[Link] = []
    for pairs in rounds(len(endpoints)):
        dist.barrier()
        for first, second in pairs:
            if mine in (first, second):
                peer = endpoints[second if mine == first else first][0]
                latency, bandwidth, size = _Exchange(peer, device).measure()
                if mine == first:
                    found.append(Link(endpoints[first][1], endpoints[second][1], latency, bandwidth, size))
    return _gathered(found, dist.get_world_size())


def _gathered(found: list[Link], world: int) -> list[Link]:
    import torch.distributed as dist

    told: list[Any] = [None] * world
    dist.all_gather_object(told, found)
    return [link for each in told for link in each]


class _Exchange:
    """This rank and its peer send each other the same number of bytes at the same time."""

    def __init__(self, peer: int, device: Any) -> None:
        self._peer, self._device = peer, device

    def measure(self) -> tuple[float, float, int]:
        """Seconds of a small exchange; bytes per second each way, and the bytes of the exchange that gave them."""
        self._shortest(_SMALL, 2)  # makes connections
        latency = self._agreed(self._shortest(_SMALL, _REPEATS))
        for size in _SIZES:
            seconds = self._agreed(self._shortest(size, _LARGE_REPEATS))
            if seconds > _SHORT:
                break
        return latency, size / seconds, size

    def _shortest(self, size: int, repeats: int) -> float:
        import torch

        out, into = (torch.zeros(size, dtype=torch.uint8, device=self._device) for _ in range(2))
        return min(self._once(out, into) for _ in range(repeats))

    def _once(self, out: Any, into: Any) -> float:
        import torch
        import torch.distributed as dist

        started = time.perf_counter()
        operations = [dist.P2POp(dist.isend, out, self._peer), dist.P2POp(dist.irecv, into, self._peer)]
        for work in dist.batch_isend_irecv(operations):
            work.wait()
        if self._device.type == "cuda":
            torch.cuda.synchronize(self._device)
        return max(time.perf_counter() - started, 1e-9)

    def _agreed(self, seconds: float) -> float:
        """The longer of both ranks' times, so that both decide alike."""
        import torch

        out = torch.tensor([seconds], dtype=torch.float64, device=self._device)
        into = torch.zeros_like(out)
        self._once(out, into)
        return max(seconds, float(into.item()))
