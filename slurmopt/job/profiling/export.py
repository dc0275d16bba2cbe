"""Brings the trace that Kineto has written on the disk of the node into the run folder, compressed.

It runs in a thread of the lowest priority: the training goes on meanwhile, and zlib works without the GIL.
"""

from __future__ import annotations

import contextlib
import math
import os
import shutil
import threading
import time
import zlib
from collections.abc import Callable
from pathlib import Path

from slurmopt.job.facts.full_disk import is_full
from slurmopt.job.profiling import kineto
from slurmopt.run_folder.access.files import open_held
from slurmopt.run_folder.access.open_folders import held

PATIENCE = 900.0
"""Seconds after the end of the recording that Kineto may take to write the trace."""
_LOOKS_EVERY = 0.25
_STILL = 20.0
"""Seconds for which the file does not grow on a full disk, until it counts as given up."""
_PIECE = 4 << 20
_LEVEL = 4
_AS_GZIP = 31
"""zlib's window bits for the format of gzip."""
_LITTLE = 1 << 20
_NICE = 19


class ExportError(Exception):
    """The trace is not there, or cannot be stored; says why in one line."""


class Export:
    """The trace of one process. `path`: see `kineto.trace_file`; `ends`: when the recording ends, seconds since the
    epoch; `lives`: whether the process is still there."""

    def __init__(self, path: Path, pid: int, ends: float, target: Path, lives: Callable[[], bool]) -> None:
        self._file, self._ends, self._target, self._lives = kineto.trace_file(path, pid), ends, target, lives
        self._left = threading.Event()
        self._until = math.inf

    def leave(self, seconds: float) -> None:
        """Ends `wait` at once, and `store` after so many seconds."""
        self._until = time.monotonic() + seconds
        self._left.set()

    def wait(self) -> None:
        """Waits until Kineto has written the trace. Raises ExportError."""
        size, grown = -1, time.monotonic()
        self._left.wait(max(0.0, self._ends - time.time()))
        while not kineto.is_complete(self._file):
            if (now := self._size()) != size:
                size, grown = now, time.monotonic()
            self._refuse(time.monotonic() - grown)
            self._left.wait(_LOOKS_EVERY)

    def _refuse(self, still: float) -> None:
        late = time.time() - self._ends
        if self._left.is_set() or not self._lives():
            raise ExportError("its process ended before the trace was complete")
        if late > _STILL and still > _STILL and (free := self._free()) < _LITTLE:
            raise ExportError(f"no space left on device for the trace: {self._file.parent} has {free} bytes free")
        if late > PATIENCE:
            raise ExportError(f"its profiler has written no whole trace within {PATIENCE / 60:.0f} minutes")

    def _size(self) -> int:
        """The bytes that are there already: under a temporary name at first."""
        sizes = [0]
        for path in (self._file, Path(f"{self._file}.tmp")):
            with contextlib.suppress(OSError):
                sizes.append(path.stat().st_size)
        return max(sizes)

    def _free(self) -> int:
        return shutil.disk_usage(self._file.parent).free

    def store(self) -> int:
        """Compresses the trace into the run folder; returns the bytes there. Raises ExportError."""
        os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), _NICE)  # in Linux of the thread alone
        temporary = self._target.with_name(f".{self._target.name}.tmp")
        try:
            size = self._compress(temporary)
            os.replace(held(temporary), held(self._target))
            return size
        except OSError as error:
            with contextlib.suppress(OSError):
                held(temporary).unlink(missing_ok=True)
            where = f" in {self._target.parent}" if is_full(error) else ""
            raise ExportError(f"{error.strerror}{where}") from error
        finally:
            self.remove()

    def _compress(self, temporary: Path) -> int:
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC
        compressor = zlib.compressobj(_LEVEL, zlib.DEFLATED, _AS_GZIP)
        with open(self._file, "rb") as source, os.fdopen(open_held(temporary, flags, 0o600), "wb") as target:
            while piece := source.read(_PIECE):
                target.write(compressor.compress(piece))
                if time.monotonic() > self._until:
                    raise ExportError("its process ended before the trace was stored")
            target.write(compressor.flush())
            target.flush()
            os.fsync(target.fileno())
            return target.tell()

    def remove(self) -> None:
        """Removes what is on the disk of the node."""
        for path in (self._file, Path(f"{self._file}.tmp")):
            with contextlib.suppress(OSError):
                path.unlink(missing_ok=True)
