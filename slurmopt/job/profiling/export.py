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
_TICK = 1.5
"""Seconds within which Kineto begins the warm-up."""
_MOST_TRIES = 3
_ENDED = "its process ended before the trace was complete"
_PIECE = 4 << 20
_LEVEL = 4
_AS_GZIP = 31
"""zlib's window bits for the format of gzip."""
_LITTLE = 1 << 20
_NICE = 19


class ExportError(Exception):
    """The trace is not there, or cannot be stored; says why in one line."""


class Export:
    """The trace of one process, `seconds` from `start` (seconds since the epoch). `path`: see `kineto.trace_file`;
    `target`: the file in the run folder; `lives`: whether the process is still there."""

    def __init__(
        self, path: Path, pid: int, start: float, seconds: float, target: Path, lives: Callable[[], bool]
    ) -> None:
        self.path, self.start, self._seconds = path, start, seconds
        self._file, self._target, self._lives = kineto.trace_file(path, pid), target, lives
        self._tries, self._is_found = 1, False
        self._error: str | None = None
        self._left = threading.Event()
        self._until = math.inf

    def leave(self, seconds: float) -> None:
        """Ends `wait` at once, and `store` after so many seconds."""
        self._until = time.monotonic() + seconds
        self._error = self._error or _ENDED
        self._left.set()

    def begin_again(self) -> bool:
        """Called when the process asks for work while its trace is due. Kineto drops a request if its look, once a
        second, comes a millisecond after the beginning of the warm-up, as on a busy node, and gives up where the disk
        is full. Returns whether the process must be asked again; `start` is a later one then."""
        now = time.time()
        if self._is_found or self._error or now < self.start - kineto.WARM_UP + _TICK:
            return False
        if (free := self._free()) < _LITTLE:
            self._error = f"no space left on device for the trace: {self._file.parent.parent} has {free} bytes free"
        elif self._is_begun():
            return False
        elif self._tries == _MOST_TRIES:
            self._error = f"its profiler did not begin, though it was asked {_MOST_TRIES} times"
        else:
            self._tries, self.start = self._tries + 1, now + kineto.LEAST_NOTICE * self._tries
        if self._error:
            self._left.set()
        return not self._error

    def wait(self) -> None:
        """Waits until Kineto has written the trace. Raises ExportError."""
        while not kineto.is_complete(self._file):
            if not self._lives():
                raise ExportError(self._error or _ENDED)
            if self._error:
                raise ExportError(self._error)
            if (late := time.time() - self.start - self._seconds) > PATIENCE:
                raise ExportError(f"its profiler has written no whole trace within {PATIENCE / 60:.0f} minutes")
            self._left.wait(max(_LOOKS_EVERY, min(1.0, -late)))
        self._is_found = True

    def _is_begun(self) -> bool:
        """Whether Kineto has written into the file, under a temporary name at first: it makes that before it drops a
        request, and then leaves it empty."""
        with contextlib.suppress(FileNotFoundError):
            return Path(f"{self._file}.tmp").stat().st_size > 0
        return self._file.exists()

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
