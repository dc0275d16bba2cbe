"""Processes as /proc shows them, and waiting by polling."""

from __future__ import annotations

import contextlib
import os
import time
from collections import defaultdict
from collections.abc import Callable, Iterable
from pathlib import Path

from benchmarks.measure import BenchError

_GONE = (FileNotFoundError, ProcessLookupError)


def wait_until(is_there: Callable[[], object], seconds: float, what: str) -> None:
    """Polls; BenchError past the deadline."""
    deadline = time.monotonic() + seconds
    while not is_there():
        if time.monotonic() > deadline:
            raise BenchError(f"{what}: not within {seconds:g} s")
        time.sleep(0.02)


def below(pid: int) -> list[int]:
    """The process and all its descendants; none where it has ended."""
    children = defaultdict(list)
    for path in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(*_GONE):
            state, parent = path.read_text(errors="replace").rpartition(")")[2].split()[:2]
            if state != "Z":
                children[int(parent)].append(int(path.parent.name))
                children.setdefault(int(path.parent.name), [])
    found = [pid] if pid in children and pid else []
    for each in found:
        found += children[each]
    return found


def cpu_seconds(pids: Iterable[int]) -> float:
    """What all threads of these processes have had of the processors."""
    return sum(cpu_seconds_of_threads(pid, _threads(pid)) for pid in pids)


def _threads(pid: int) -> list[int]:
    """None where the process has ended."""
    with contextlib.suppress(*_GONE):
        return [int(name) for name in os.listdir(f"/proc/{pid}/task")]
    return []


def cpu_seconds_of_threads(pid: int, threads: Iterable[int]) -> float:
    """What these threads of a process have had of the processors."""
    return sum(_spent(Path(f"/proc/{pid}/task/{thread}/schedstat")) for thread in threads)


def _spent(schedstat: Path) -> float:
    with contextlib.suppress(*_GONE):
        return int(schedstat.read_text().split()[0]) / 1e9
    return 0.0


def peak_mib(pids: Iterable[int]) -> list[float]:
    """The most memory that each process had resident so far."""
    peaks = []
    for pid in pids:
        with contextlib.suppress(*_GONE):
            text = Path(f"/proc/{pid}/status").read_text(errors="replace")
            peaks += [int(line.split()[1]) / 1024 for line in text.splitlines() if line.startswith("VmHWM:")]
    return peaks
