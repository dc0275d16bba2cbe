"""Keeps folders open in a process, so that it notices when something else is put in their place.

Who may rename what is above a run can put another folder, or a link, in its place meanwhile. What such a process reads
and writes by `held` is in the folder that it opened when it started, wherever that is now.
"""

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

HELD = "SLURMOPT_HELD"
"""Environment variable: the batch shell's own descriptor of a folder, and the folder, for the Python that it starts."""


class _Held(NamedTuple):
    folder: Path
    way: Path
    """The way to it, through its descriptor."""
    identity: tuple[int, int]
    """Its inode and owner: mounted anew, it has another device number."""


_held: list[_Held] = []
"""A job's own is the first."""


def hold(folder: Path, at: Path | None = None) -> bool:
    """Opens `folder` for this process; where its file system is away, it is found by its path as before. False where
    the process holds it already, as one that was forked does. `at`: where it is before it gets its name."""
    if _find(folder) is not None:
        return False
    _hold(folder, str(at or folder))
    return True


def hold_as_told() -> bool:
    """Holds what the batch shell holds, which has looked whose it is; False where none started this process."""
    way, _, folder = os.environ.get(HELD, "").partition(" ")
    return bool(folder) and _hold(Path(folder), way)


@contextlib.contextmanager
def holding(folders: Sequence[Path]) -> Iterator[None]:
    """Holds them meanwhile, those that are made meanwhile too; what this process holds already it goes on to hold."""
    opened = [folder for folder in folders if _find(folder) is None]
    for folder in opened:
        hold(folder)
    try:
        yield
    finally:
        for folder in opened:
            release(folder)


def release(folder: Path | None = None) -> None:
    """Closes it again; None: all."""
    for kept in [kept for kept in _held if folder in (None, kept.folder)]:
        os.close(int(kept.way.name))
        _held.remove(kept)


def _find(folder: Path) -> _Held | None:
    return next((kept for kept in _held if kept.folder == folder), None)


def _hold(folder: Path, way: str) -> bool:
    try:
        descriptor = os.open(f"{way}/.", os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError:
        return False
    if os.path.isdir(f"/proc/self/fd/{descriptor}/."):  # else there is no /proc
        _keep(_Held(folder, Path(f"/proc/self/fd/{descriptor}"), _identity_of(os.fstat(descriptor))))
    return _find(folder) is not None


def _keep(new: _Held) -> None:
    """Instead of one with a lost descriptor, whose number may be another file's by now."""
    old = _find(new.folder)
    if old is None:
        _held.append(new)
    else:
        _held[_held.index(old)] = new


def handed_on() -> tuple[str, str] | None:
    """For `take_over` in a process that this one starts: the folder, and the way to it while this one lives."""
    return (str(_held[0].folder), f"/proc/{os.getpid()}/fd/{_held[0].way.name}") if _held else None


def take_over(handed: Sequence[str] | None) -> None:
    """Holds what another process holds."""
    if handed is not None:
        _hold(Path(handed[0]), handed[1])


def held(path: Path) -> Path:
    """`path`; where it is in a folder that this process holds, by way of that."""
    for kept in _held:
        if path.is_relative_to(kept.folder):
            return kept.way / path.relative_to(kept.folder)
    return path


def renewed() -> bool:
    """Opens a folder anew where its descriptor is lost: the file server does not know it any more, or a training has
    closed all that it found open. False where none is, or where something else is in the folder's place."""
    return any([_renew(kept) for kept in list(_held)])


def _renew(lost: _Held) -> bool:
    with contextlib.suppress(OSError):
        if _identity_of(lost.way.stat()) == lost.identity:
            return False
    try:
        descriptor = os.open(f"{lost.folder}/.", os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError:
        return False
    if _identity_of(os.fstat(descriptor)) != lost.identity:
        os.close(descriptor)
        return False
    _keep(lost._replace(way=Path(f"/proc/self/fd/{descriptor}")))
    return True


def is_swapped(folder: Path) -> bool:
    """Whether something else is in the place of a folder that this process holds. One that was moved away, with nothing
    in its place, counts as away."""
    kept = _find(folder)
    if kept is None:
        return False
    try:
        return _identity_of(folder.stat()) != kept.identity
    except PermissionError:  # somebody's closed folder; or one's own ticket has expired, which closes both
        return os.access(f"{kept.way}/.", os.X_OK)
    except (FileNotFoundError, NotADirectoryError):  # a file, or a link that leads nowhere, may be there or above
        nearest = next(path for path in (folder, *folder.parents) if os.path.lexists(path))
        return not nearest.is_dir()
    except OSError as error:
        return error.errno == errno.ELOOP


def owner_of_held(folder: Path) -> int | None:
    """The user id that a folder had when this process opened it; None where it holds no such folder."""
    kept = _find(folder)
    return None if kept is None else kept.identity[1]


def place_of_held(folder: Path) -> Path | None:
    """Where a folder that this process holds is now; None where nobody can tell, as after it was deleted."""
    kept = _find(folder)
    with contextlib.suppress(OSError):
        if kept is not None and _identity_of(os.stat(now := os.readlink(kept.way))) == kept.identity:
            return Path(now)
    return None


def _identity_of(facts: os.stat_result) -> tuple[int, int]:
    return facts.st_ino, facts.st_uid
