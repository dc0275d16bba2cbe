"""Peak memory of a process and its children, shared pages counted once: python memory.py PID

Samples until its standard input ends, then prints bytes. A process of its own: what it samples must not wait for it.
"""

from __future__ import annotations

import contextlib
import os
import select
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

EVERY = 0.02
"""Seconds between two looks."""


def now(pid: int, without: int) -> int:
    """Proportional set size, bytes: a page that two of them map counts half for each."""
    return sum(_pss(each) for each in _family(pid) if each != without)


def _family(pid: int) -> Iterator[int]:
    yield pid
    with contextlib.suppress(OSError):  # it has ended
        for task in Path(f"/proc/{pid}/task").iterdir():
            for child in (task / "children").read_text().split():
                yield from _family(int(child))


def _pss(pid: int) -> int:
    with contextlib.suppress(OSError):
        for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
            if line.startswith("Pss:"):
                return int(line.split()[1]) * 1024
    return 0


@contextlib.contextmanager
def peak() -> Iterator[list[int]]:
    """The list gets the peak of this process and its children within the block."""
    found: list[int] = []
    argv = [sys.executable, "-S", __file__, str(os.getpid())]
    sampler = subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert sampler.stdout
    sampler.stdout.readline()  # it has begun
    try:
        yield found
    finally:
        found.append(int(sampler.communicate()[0]))


def main(pid: int) -> None:
    highest = now(pid, os.getpid())
    print("begun", flush=True)
    while not select.select([sys.stdin], [], [], EVERY)[0]:
        highest = max(highest, now(pid, os.getpid()))
    print(highest)


if __name__ == "__main__":
    main(int(sys.argv[1]))
