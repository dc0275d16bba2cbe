"""SIMULATED traces of GPUs, in the form in which Kineto writes them: there is no GPU here to record any."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

THREAD, STREAM = {"pid": 1, "tid": 10}, {"pid": 0, "tid": 7}


class Gpu:
    """The trace of one rank; times are microseconds."""

    def __init__(self, rank: int = 0, world_size: int = 1) -> None:
        self.head: dict[str, Any] = {
            "schemaVersion": 1,
            "deviceProperties": [{"id": 0, "name": "NVIDIA H100 80GB HBM3"}],
            "distributedInfo": {"backend": "nccl", "rank": rank, "world_size": world_size},
            "baseTimeNanoseconds": 1_790_857_026_000_000_000,
        }
        self.rows: list[dict[str, Any]] = []
        self._correlation = 0

    def row(self, category: str, name: str, start: float, duration: float, lane: dict[str, int], **args: Any) -> None:
        """Any row."""
        self.rows.append({"ph": "X", "cat": category, "name": name, "ts": start, "dur": duration, **lane, "args": args})

    def kernel(self, name: str, start: float, duration: float, launch: float, **args: Any) -> None:
        """A kernel that a call of 5 µs, begun at `launch`, launches."""
        self._correlation += 1
        self.row("cuda_runtime", "cudaLaunchKernel", launch, 5.0, THREAD, correlation=self._correlation)
        self.row("kernel", name, start, duration, STREAM, correlation=self._correlation, stream=7, **args)

    def mark(self, name: str, start: float, duration: float) -> None:
        """A mark of the training thread."""
        self.row("user_annotation", name, start, duration, THREAD)

    def write(self, path: Path) -> Path:
        """The file, compressed."""
        path.write_bytes(gzip.compress(json.dumps({**self.head, "traceEvents": self.rows, "traceName": "x"}).encode()))
        return path
