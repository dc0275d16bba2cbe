"""Arena: host memory for snapshots, shared with the writer process, with pages that are faulted in before first use.

The first access to fresh memory takes a dozen times longer than a copy. The memory is a memfd: it is shared by passing
its descriptor, has no name that could remain after a crash, and is not limited by the size of /dev/shm, which is 64 MB
in containers.
"""

from __future__ import annotations

import contextlib
import ctypes
import mmap
import os
import threading
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from slurmopt.storage.direct_io import ALIGNMENT, address
from slurmopt.storage.memory import aligned

_MADV_POPULATE_WRITE = 23  # Linux 5.14
_POPULATE_BYTES = 8 << 20
"""Bytes per call: the training's own memory calls wait for it, some milliseconds."""
_NICE = 10
_RESERVE = 256 << 20
"""Bytes of the available memory that an arena leaves free."""
_libc = ctypes.CDLL(None, use_errno=True)


class Arena:
    """`buffers` areas of `size` bytes each."""

    def __init__(self, size: int, buffers: int, folder: Path | None = None) -> None:
        """`folder`: where memory is short, an unnamed file there holds the snapshots instead, which is slower."""
        self.size, self.buffers = aligned(size), buffers
        if folder is None:
            self.descriptor = os.memfd_create("slurmopt-arena", os.MFD_CLOEXEC)
        else:
            self.descriptor = os.open(folder, os.O_TMPFILE | os.O_RDWR | os.O_CLOEXEC, 0o600)
        os.ftruncate(self.descriptor, max(ALIGNMENT, self.size * buffers))
        if folder is not None:  # detects a full disk here, instead of a SIGBUS at a write to the mapping
            os.posix_fallocate(self.descriptor, 0, max(ALIGNMENT, self.size * buffers))
        self.before_close: Callable[[], object] | None = None
        self._map = mmap.mmap(self.descriptor, max(ALIGNMENT, self.size * buffers))
        self._view = memoryview(self._map)
        self._closing = threading.Event()
        self._populating: threading.Thread | None = None

    @property
    def address(self) -> int:
        return address(self._view)

    @property
    def total(self) -> int:
        return self.size * self.buffers

    def buffer(self, index: int) -> memoryview:
        """The area `index`."""
        return self._view[index * self.size : (index + 1) * self.size]

    def populate(self) -> None:
        """Faults all pages in, from a thread, while the training continues."""
        self._populating = threading.Thread(target=self._populate, name="slurmopt-arena", daemon=True)
        self._populating.start()

    def settled(self) -> None:
        """Waits until all pages are faulted in."""
        if self._populating is not None:
            self._populating.join()

    def _populate(self) -> None:
        with contextlib.suppress(OSError):  # lowers the priority of this thread only
            os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), _NICE)
        start = self.address
        for offset in range(0, self.total, _POPULATE_BYTES):
            length = min(_POPULATE_BYTES, self.total - offset)
            # An older kernel refuses; then the first save faults the pages in, and is slower.
            if self._closing.is_set() or _libc.madvise(
                ctypes.c_void_p(start + offset), ctypes.c_size_t(length), _MADV_POPULATE_WRITE
            ):
                return

    def close(self) -> None:
        """Releases the memory, at the latest when no tensor refers to it any more."""
        self._closing.set()
        self.settled()
        if self.before_close is not None:
            self.before_close()
        os.close(self.descriptor)
        with contextlib.suppress(BufferError):  # a tensor still refers to it, and releases it
            self._view.release()
            self._map.close()


class MappedArena:
    """The arena in the writer process."""

    def __init__(self, descriptor: int, size: int, buffers: int) -> None:
        self._size = size
        self._view = memoryview(mmap.mmap(descriptor, max(ALIGNMENT, size * buffers)))
        os.close(descriptor)

    def buffer(self, index: int) -> memoryview:
        """The area `index`, which the rank has filled."""
        return self._view[index * self._size : (index + 1) * self._size]


def affordable(size: int, buffers: int, available: int) -> int:
    """The number of areas of `size` bytes, up to `buffers`, that fit into `available` bytes of memory."""
    return next((count for count in range(buffers, 0, -1) if size * count + _RESERVE <= available), 0)


def available_memory() -> int:
    """Bytes that this process may still allocate: limited by the machine and its cgroups; where cgroups are invisible,
    as in a container, by the job's memory on this node."""
    meminfo = dict(line.split(":", 1) for line in Path("/proc/meminfo").read_text().splitlines())
    machine = int(meminfo["MemAvailable"].split()[0]) * 1024
    return min([machine, *(list(_cgroup_room()) or _slurm_room(os.environ))])


def _slurm_room(environ: Mapping[str, str]) -> list[int]:
    """The job's memory on this node by Slurm's variables, less the estimated use of its ranks, each as this process;
    empty where Slurm sets no limit. Slurm's values are MiB, the result is bytes."""

    def number(name: str) -> int:
        value = environ.get(name, "")
        return int(value) if value.isdigit() else 0

    limit = number("SLURM_MEM_PER_NODE") or number("SLURM_MEM_PER_CPU") * number("SLURM_CPUS_ON_NODE")
    if not limit:
        return []
    resident = int(Path("/proc/self/statm").read_text().split()[1]) * mmap.PAGESIZE
    return [max(0, (limit << 20) - resident * (number("LOCAL_WORLD_SIZE") or 1))]


def _cgroup_room() -> Iterator[int]:
    for line in Path("/proc/self/cgroup").read_text().splitlines():
        _, controllers, path = line.split(":", 2)
        if controllers == "":  # version 2
            folder, most, now = Path("/sys/fs/cgroup" + path), "memory.max", "memory.current"
        elif "memory" in controllers.split(","):
            folder, most = Path("/sys/fs/cgroup/memory" + path), "memory.limit_in_bytes"
            now = "memory.usage_in_bytes"
        else:
            continue
        while folder != folder.parent and str(folder).startswith("/sys/fs/cgroup"):
            with contextlib.suppress(OSError, ValueError, KeyError):  # no limit ("max"), or an unreadable one
                limit = int((folder / most).read_text())
                yield limit - int((folder / now).read_text()) + _page_cache(folder)
            folder = folder.parent


def _page_cache(folder: Path) -> int:
    """Bytes that count as used but are reclaimed on demand."""
    stat = dict(line.split() for line in (folder / "memory.stat").read_text().splitlines())
    if "total_cache" in stat:  # version 1
        return int(stat["total_cache"]) - int(stat.get("total_shmem", 0))
    return int(stat["file"]) - int(stat["shmem"])
