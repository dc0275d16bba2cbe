"""Times one collective with one size, in every rank."""

from __future__ import annotations

import time
from typing import Any

from slurmopt.benchmarks.collective_calls import Call, prepared, wrong_values
from slurmopt.collectives.definitions import fitting_size
from slurmopt.collectives.options import BenchOptions
from slurmopt.collectives.recording import Row

_FEWEST = 3
"""Timed calls, however long they take."""


class Timer:
    """The collectives of one process group."""

    def __init__(self, options: BenchOptions, rank: int, world: int, device: Any) -> None:
        self._options, self._rank, self._world, self._device = options, rank, world, device

    def row(self, name: str, asked: int) -> Row | None:
        """The row of a collective and a size, the same in every rank; None where the size is too small for so many
        ranks."""
        size = fitting_size(name, asked, self._world)
        if size == 0:
            return None
        call = prepared(name, size, self._rank, self._world, self._device)
        call.fill()
        call.run()
        self._finish()
        wrong, fault = self._checked(call)
        call.output.zero_()  # in place, sums of sums would leave the range of float32
        seconds, count = self._timed(call)
        return Row(name, size, seconds, self._world, count, wrong, fault, "torch", call.in_place)

    def _timed(self, call: Call) -> tuple[float, int]:
        """Seconds of a call, the mean over the calls and the ranks; the calls."""
        import torch.distributed as dist

        count = self._count(call)
        dist.barrier()
        started = time.perf_counter()
        for _ in range(count):
            call.run()
        self._finish()
        return self._over_ranks((time.perf_counter() - started) / count, "sum") / self._world, count

    def _count(self, call: Call) -> int:
        """Calls for the warm-up, and how many are to be timed: the same number in every rank, by the slowest one."""
        started, done = time.perf_counter(), 0
        while done < self._options.warmup:
            call.run()
            self._finish()
            done += 1
            if done == 1 and self._over_ranks(time.perf_counter() - started, "max") > self._options.seconds / 2:
                break
        started = time.perf_counter()
        call.run()
        self._finish()
        slowest = self._over_ranks(time.perf_counter() - started, "max")
        return max(_FEWEST, min(self._options.iterations, int(self._options.seconds / max(slowest, 1e-9))))

    def _checked(self, call: Call) -> tuple[int, str]:
        """The wrong elements over all ranks, and the first fault of the first rank that has one."""
        import torch.distributed as dist

        wrong, fault = wrong_values(call)
        total = round(self._over_ranks(float(wrong), "sum"))
        if not total:
            return 0, ""
        told: list[Any] = [None] * self._world
        dist.all_gather_object(told, fault)
        rank, words = next(((rank, words) for rank, words in enumerate(told) if words), (self._rank, "unknown"))
        return total, f"rank {rank}: {words}"

    def _over_ranks(self, value: float, operation: str) -> float:
        import torch
        import torch.distributed as dist

        held = torch.tensor([value], dtype=torch.float64, device=self._device)
        dist.all_reduce(held, dist.ReduceOp.MAX if operation == "max" else dist.ReduceOp.SUM)
        return float(held.item())

    def _finish(self) -> None:
        """Waits for the GPU; gloo's calls have ended when they return."""
        if self._device.type == "cuda":
            import torch

            torch.cuda.synchronize(self._device)
