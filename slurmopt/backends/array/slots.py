"""Shares this machine among the sweeps of one user: each array task locks the CPUs, memory and GPUs that it has.

All sweeps lock bytes of one file, by locks that belong to an open file (F_OFD_SETLK). The task's shell inherits that
file: its share is free again once the shell has ended, also where the runner was killed before.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import struct
import zlib
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from slurmopt.backends.array.machine import Machine
from slurmopt.backends.array.needs import Needs
from slurmopt.run_folder.process import short_machine
from slurmopt.slurm.cluster import cache

_GPUS, _MEMORY = 1 << 20, 1 << 40
"""The bytes for CPUs start at 0, those for GPUs and for GiB of memory at these."""
_GIB = 1024
_HIGH = 300
"""The first descriptor that a shell inherits: scripts of users number theirs from 3."""


@dataclass
class Place:
    """The share of one running array task."""

    cpus: tuple[int, ...]
    gpus: tuple[str, ...]
    memory: tuple[int, ...] = ()
    """The numbers of its GiB."""
    descriptor: int | None = None
    """The open file with its locks; None where the file system has none, and for a task of an earlier runner."""


@dataclass
class Slots:
    """The shares of the machine that this runner has given to its tasks, and the file that all runners lock."""

    machine: Machine
    path: Path | None = field(default_factory=lambda: _file())
    taken: list[Place] = field(default_factory=list)

    def take(self, needs: Needs) -> Place | None:
        """The share for one more task; None where too little is free."""
        descriptor = self._open()
        cpus = self._free(descriptor, self.machine.cpus, {cpu for one in self.taken for cpu in one.cpus}, needs.cpus)
        gpus = self._free_gpus(descriptor, needs.gpus)
        units = range(self.machine.memory // _GIB)
        used = {unit for one in self.taken for unit in one.memory}
        memory = self._free(descriptor, units, used, min(-(-needs.memory // _GIB), len(units)), _MEMORY)
        if cpus is None or gpus is None or memory is None:
            if descriptor is not None:
                os.close(descriptor)
            return None
        place = Place(cpus, gpus, memory, descriptor)
        self.taken.append(place)
        return place

    def give_back(self, place: Place) -> None:
        """Frees the share once its task has ended."""
        self.taken.remove(place)
        if place.descriptor is not None:
            with contextlib.suppress(OSError):  # a process that the task left behind may keep the file open
                _lock(place.descriptor, fcntl.F_UNLCK, 0, 0)
            os.close(place.descriptor)

    def _free_gpus(self, descriptor: int | None, count: int) -> tuple[str, ...] | None:
        numbers = {_number(word): word for word in self.machine.gpus}
        used = {_number(word) for one in self.taken for word in one.gpus}
        free = self._free(descriptor, numbers, used, count, _GPUS)
        return None if free is None else tuple(numbers[number] for number in free)

    def _free(
        self, descriptor: int | None, numbers: Iterable[int], used: set[int], count: int, base: int = 0
    ) -> tuple[int, ...] | None:
        """`count` of the numbers that nobody has; None where there are not so many."""
        found: list[int] = []
        for number in numbers:
            if len(found) == count:
                break
            if number not in used and (descriptor is None or _lock(descriptor, fcntl.F_WRLCK, base + number, 1)):
                found.append(number)
        return tuple(found) if len(found) == count else None

    def _open(self) -> int | None:
        if self.path is None:
            return None
        flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
        try:
            first = os.open(self.path, flags, 0o600)
            try:
                return fcntl.fcntl(first, fcntl.F_DUPFD_CLOEXEC, _HIGH)
            finally:
                os.close(first)
        except OSError:
            return None


def _file() -> Path | None:
    path = cache.place(f"local-{short_machine()}")
    return None if path is None else path.with_suffix(".lock")


def _lock(descriptor: int, kind: int, start: int, length: int) -> bool:
    """Whether the bytes are locked now; so too where the file system has no locks."""
    try:
        fcntl.fcntl(descriptor, fcntl.F_OFD_SETLK, struct.pack("hhqqi4x", kind, os.SEEK_SET, start, length, 0))
    except OSError as error:
        return error.errno not in (errno.EAGAIN, errno.EACCES)
    return True


def _number(gpu: str) -> int:
    """A number that stands for a GPU: its own, or one made from its UUID."""
    return int(gpu) if gpu.isdecimal() and len(gpu) < 6 else (1 << 24) + zlib.crc32(gpu.encode())
