"""The run folder that a process of a job keeps open.

Who may rename what is above a run can put another folder, or a link, in its place while an attempt runs. What such a
process reads and writes by `held` is in the folder that it opened when it started, wherever that is now.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Sequence
from pathlib import Path

HELD = "SLURMOPT_HELD"
"""Environment variable: the batch shell's own descriptor of a folder, and the folder, for the Python that it starts."""

_held: tuple[Path, Path] | None = None  # the folder, and the way to it
_identity = (0, 0)  # its inode and owner: mounted anew, it has another device number


def hold(folder: Path) -> bool:
    """Opens `folder` for this process; where its file system is away, it is found by its path as before. False where
    the process holds it already, as one that was forked does."""
    if _held is not None and _held[0] == folder:
        return False
    _hold(folder, str(folder))
    return True


def hold_as_told() -> bool:
    """Holds what the batch shell holds, which has looked whose it is; False where none started this process."""
    way, _, folder = os.environ.get(HELD, "").partition(" ")
    return bool(folder) and _hold(Path(folder), way)


def release() -> None:
    """Closes it again."""
    global _held
    if _held is not None:
        os.close(int(_held[1].name))
        _held = None


def _hold(folder: Path, way: str) -> bool:
    global _held, _identity
    try:
        descriptor = os.open(f"{way}/.", os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError:
        return False
    if os.path.isdir(f"/proc/self/fd/{descriptor}/."):  # else there is no /proc
        _held, _identity = (folder, Path(f"/proc/self/fd/{descriptor}")), _identity_of(os.fstat(descriptor))
    return _held is not None


def handed_on() -> tuple[str, str] | None:
    """For `take_over` in a process that this one starts: the folder, and the way to it while this one lives."""
    return None if _held is None else (str(_held[0]), f"/proc/{os.getpid()}/fd/{_held[1].name}")


def take_over(handed: Sequence[str] | None) -> None:
    """Holds what another process holds."""
    if handed is not None:
        _hold(Path(handed[0]), handed[1])


def held(path: Path) -> Path:
    """`path`; where it is in the folder that this process holds, by way of that."""
    if _held is None:
        return path
    folder, way = _held
    return way / path.relative_to(folder) if path.is_relative_to(folder) else path


def renewed() -> bool:
    """Opens the folder anew where its descriptor is lost: the file server does not know it any more, or a training has
    closed all that it found open. False where it is not, or where something else is in the folder's place."""
    global _held
    if _held is None:
        return False
    folder, way = _held
    with contextlib.suppress(OSError):
        if _identity_of(way.stat()) == _identity:
            return False
    try:
        descriptor = os.open(f"{folder}/.", os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError:
        return False
    if _identity_of(os.fstat(descriptor)) != _identity:
        os.close(descriptor)
        return False
    _held = folder, Path(f"/proc/self/fd/{descriptor}")
    return True


def _identity_of(facts: os.stat_result) -> tuple[int, int]:
    return facts.st_ino, facts.st_uid
