"""What this machine has for array tasks: CPUs, memory and GPUs, as far as this process may use them."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

_CGROUPS = Path("/sys/fs/cgroup")
_GPU_FILE = re.compile(r"nvidia\d+")


@dataclass(frozen=True)
class Machine:
    """What array tasks can share."""

    cpus: tuple[int, ...]
    """The numbers of the CPUs; where a cgroup's quota allows less than those, so many of them."""
    bound: bool
    """Whether a task is bound to its CPUs. Not under a quota, which does not say which CPUs it means."""
    memory: int
    """MiB."""
    gpus: tuple[str, ...]
    """As in CUDA_VISIBLE_DEVICES."""


def this_machine(environ: Mapping[str, str] = os.environ) -> Machine:
    """The machine as this process may use it."""
    cpus, quota = sorted(os.sched_getaffinity(0)), cpu_quota()
    if quota is not None and quota < len(cpus):
        return Machine(tuple(cpus[:quota]), False, memory(), gpus(environ))
    return Machine(tuple(cpus), True, memory(), gpus(environ))


def gpus(environ: Mapping[str, str], devices: Path = Path("/dev")) -> tuple[str, ...]:
    """The GPUs: those of CUDA_VISIBLE_DEVICES where that is set, else one for each device file of NVIDIA's driver."""
    if (words := environ.get("CUDA_VISIBLE_DEVICES")) is not None:
        return tuple(word.strip() for word in words.split(",") if word.strip() and word.strip() != "-1")
    files = [path for path in devices.glob("nvidia*") if _GPU_FILE.fullmatch(path.name)]
    return tuple(str(number) for number in range(len(files)))


def cpu_quota() -> int | None:
    """The CPUs that the quotas of this process's cgroups allow, rounded down, at least 1; None without a quota."""
    quotas = []
    for folder in _folders("cpu"):
        words = _text(folder / "cpu.max").split() or [
            _text(folder / "cpu.cfs_quota_us"),
            _text(folder / "cpu.cfs_period_us"),
        ]
        if len(words) == 2 and all(word.isdecimal() for word in words) and int(words[1]):
            quotas.append(max(1, int(words[0]) // int(words[1])))
    return min(quotas, default=None)


def memory() -> int:
    """The MiB of the machine, or of the smallest limit of this process's cgroups."""
    sizes = [os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")]
    for folder in _folders("memory"):
        for name in ("memory.max", "memory.limit_in_bytes"):
            if (word := _text(folder / name)).isdecimal():
                sizes.append(int(word))
    return min(sizes) >> 20


def _folders(controller: str) -> Iterator[Path]:
    """The cgroup of this process and those above it, in the hierarchies that may have the controller."""
    for line in _text(Path("/proc/self/cgroup")).splitlines():
        number, controllers, path = line.split(":", 2)
        if number != "0" and controller not in controllers.split(","):
            continue
        base = _CGROUPS if number == "0" else _CGROUPS / controllers
        place = base / path.lstrip("/")
        yield from (folder for folder in (place, *place.parents) if folder.is_relative_to(base))


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return ""
