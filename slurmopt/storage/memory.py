"""Memory that direct I/O reads into: aligned, and of huge pages where the kernel has them."""

from __future__ import annotations

import contextlib
import mmap

from slurmopt.storage.folder import ALIGNMENT, address

HUGE_PAGE = 2 << 20


def staging(size: int) -> memoryview:
    """At least `size` bytes, a multiple of 4096, that nobody else uses.

    Direct I/O pins its memory and hands it to the disk page by page: with huge pages that takes a fraction of the CPU
    time, and so does the first touch. They need private memory that starts where a huge page can.
    """
    length = max(ALIGNMENT, -(-size // ALIGNMENT) * ALIGNMENT)
    spare = HUGE_PAGE if length >= HUGE_PAGE else 0
    memory = mmap.mmap(-1, length + spare, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    if spare:
        with contextlib.suppress(OSError):  # a kernel that was built without them
            memory.madvise(mmap.MADV_HUGEPAGE)
    view = memoryview(memory)
    start = -address(view) % HUGE_PAGE if spare else 0
    return view[start : start + length]


def aligned(size: int) -> int:
    """`size` rounded up to what direct I/O wants."""
    return -(-size // ALIGNMENT) * ALIGNMENT
