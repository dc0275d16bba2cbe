"""Buffers for direct I/O: aligned, and backed by huge pages where the kernel supports them."""

from __future__ import annotations

import contextlib
import mmap

from slurmopt.storage.direct_io import ALIGNMENT, address

HUGE_PAGE = 2 << 20


def staging(size: int) -> memoryview:
    """A new private buffer of at least `size` bytes, rounded up to a multiple of 4096.

    Direct I/O pins its memory and passes it to the disk page by page; huge pages reduce the CPU time of that, and of
    the first access. They require private memory that is aligned to the size of a huge page.
    """
    length = max(ALIGNMENT, -(-size // ALIGNMENT) * ALIGNMENT)
    spare = HUGE_PAGE if length >= HUGE_PAGE else 0
    memory = mmap.mmap(-1, length + spare, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    if spare:
        with contextlib.suppress(OSError):  # a kernel without huge pages
            memory.madvise(mmap.MADV_HUGEPAGE)
    view = memoryview(memory)
    start = -address(view) % HUGE_PAGE if spare else 0
    return view[start : start + length]


def aligned(size: int) -> int:
    """`size` rounded up to the alignment of direct I/O."""
    return -(-size // ALIGNMENT) * ALIGNMENT
