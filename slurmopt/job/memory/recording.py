"""Records the memory of some steps: what each phase and module needs, and which lines hold more after than before.

It costs nothing until it is asked for. Then the first step is followed to warm up, and for the others the training is
slower: tracemalloc notes each object that Python makes, and torch the line of each allocation on the GPU.
"""

from __future__ import annotations

import os
import sys
import tracemalloc
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from typing import Any

from slurmopt.errors import one_line
from slurmopt.job.facts import process_tree
from slurmopt.job.facts.process_memory import proportional
from slurmopt.job.heartbeat import torch_memory
from slurmopt.job.heartbeat.training_meter import TrainingMeter
from slurmopt.job.memory import lines
from slurmopt.job.memory.gauge import GpuGauge, gauge, used_cuda
from slurmopt.job.memory.history import History
from slurmopt.job.memory.lines import Lines
from slurmopt.job.memory.peaks import Peak, Peaks
from slurmopt.job.memory.spans import Spans, has_compiled, module_name

VERSION = 1
WARM_UP = 2
"""Steps before the first look: the one that the request came in, and the first with all hooks."""
_MOST_MODULES = 30


@dataclass
class Look:
    """What is in memory at the end of a step. Numbers are bytes."""

    python: Lines = field(default_factory=dict)
    tensors: Lines = field(default_factory=dict)
    snapshot: dict[str, Any] | None = None
    """Of torch's allocator on the GPU."""
    pss: int | None = None
    workers: int = 0
    """PSS of the processes below this one, such as the workers of a DataLoader."""
    worker_count: int = 0

    @property
    def gpu(self) -> Lines:
        """What is on the GPU, by line."""
        return {} if self.snapshot is None else lines.of_gpu(self.snapshot)


def look() -> Look:
    """Now. Python's objects and tensors only if tracemalloc is on."""
    cuda = used_cuda()
    below = [size for pid in process_tree.descendants(os.getpid()) if (size := proportional(pid)) is not None]
    return Look(
        python=lines.of_python() if tracemalloc.is_tracing() else {},
        tensors=lines.of_cpu_tensors() if tracemalloc.is_tracing() and "torch" in sys.modules else {},
        snapshot=None if cuda is None else cuda.memory._snapshot(),
        pss=proportional("self"),
        workers=sum(below),
        worker_count=len(below),
    )


class Recording:
    """The recording of so many steps. All of it happens in `stepped`, in the training's thread."""

    def __init__(
        self, steps: int, meter: TrainingMeter, done: Callable[[dict[str, Any], dict[str, Any] | None], None]
    ) -> None:
        """`done` gets the record, or `error` in it, and the last snapshot of the GPU."""
        self._steps, self._meter, self._done = steps, meter, done
        self._count = 0
        self._first: Look | None = None
        self._peaks: Peaks | None = None
        self._spans: Spans | None = None
        self._history: History | None = None
        self._started_tracemalloc = False

    def stepped(self) -> None:
        """A step has ended. Whatever fails here must not end the training."""
        try:
            self._step()
        except Exception as error:  # noqa: BLE001 - interfaces of torch that are not public; the training goes on
            self._close()
            self._done({"error": one_line(f"{type(error).__name__}: {error}")}, None)

    def _step(self) -> None:
        self._count += 1
        if self._count == 1:
            self._begin()
        elif self._count == WARM_UP and self._peaks is not None:
            self._first = look()
            self._peaks.restart()  # or the memory that the look has needed would be the training's
        elif self._count == WARM_UP + self._steps:
            self._end()

    def _begin(self) -> None:
        torch_memory.read(self._meter.counters)  # the gauge resets torch's peaks
        cuda = used_cuda()
        self._history = None if cuda is None else History(cuda.memory)
        self._started_tracemalloc = not tracemalloc.is_tracing()
        if self._started_tracemalloc:
            tracemalloc.start(lines.FRAMES)
        self._peaks = Peaks(gauge())
        self._spans = Spans(self._peaks)

    def _end(self) -> None:
        last, peaks, spans = look(), self._peaks, self._spans
        assert self._first is not None  # for mypy: they were set in the first steps
        assert peaks is not None
        assert spans is not None
        self._close()
        phases = [asdict(peak) for peak in spans.phases()]
        modules = [_module(peak) for peak in spans.modules()[:_MOST_MODULES]]
        record = {
            **described(self._first, last),
            "steps": self._steps,
            "measured": "gpu" if isinstance(peaks.gauge, GpuGauge) else "host",
            "most": peaks.most,
            "phases": phases,
            "modules": modules,
            "compiled": has_compiled(),
        }
        if record["measured"] == "gpu":
            self._meter.counters.raise_to(torch_memory.ALLOCATED, float(peaks.most))
        self._done(record, last.snapshot)

    def _close(self) -> None:
        self._meter.at_step = None
        if self._spans is not None:
            self._spans.close()
        if self._history is not None:
            self._history.close()
        if self._started_tracemalloc:
            tracemalloc.stop()
        self._spans = self._history = None
        self._started_tracemalloc = False


def described(first: Look, last: Look) -> dict[str, Any]:
    """Both looks as the record has them: pairs are before and after."""
    return {
        "version": VERSION,
        "gpu": None if first.snapshot is None or last.snapshot is None else _gpu(first, last),
        "host": {
            "pss": [first.pss, last.pss],
            "workers": [first.workers, last.workers],
            "worker_count": last.worker_count,
            "lines": lines.rows(first.python, last.python),
            "tensors": lines.rows(first.tensors, last.tensors),
        },
    }


def _gpu(first: Look, last: Look) -> dict[str, Any]:
    cuda = sys.modules["torch.cuda"]
    free, total = cuda.mem_get_info()
    segments = (last.snapshot or {})["segments"]
    unused = [block["size"] for each in segments for block in each["blocks"] if block["state"] == "inactive"]
    return {
        "name": cuda.get_device_name(),
        "free": free,
        "total": total,
        "allocated": [_sum(each.snapshot, "allocated_size") for each in (first, last)],
        "reserved": [_sum(each.snapshot, "total_size") for each in (first, last)],
        "fragments": sum(unused) - _whole(segments),
        "largest_unused": max(unused, default=0),
        "lines": lines.rows(first.gpu, last.gpu),
    }


def _sum(snapshot: dict[str, Any] | None, name: str) -> int:
    return sum(each[name] for each in (snapshot or {})["segments"])


def _whole(segments: list[dict[str, Any]]) -> int:
    """Segments that are not in use at all: the allocator could give them back."""
    return sum(each["total_size"] for each in segments if each["allocated_size"] == 0)


def _module(peak: Peak) -> dict[str, Any]:
    return {**asdict(peak), "name": module_name(peak)}
