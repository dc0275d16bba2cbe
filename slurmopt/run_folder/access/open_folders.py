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
    """The path of the folder through its descriptor."""
    identity: tuple[int, int]
    """Its inode and owner. The device number changes when the file system is mounted again."""


_held: list[_Held] = []
"""The folders that this process keeps open. That of a job's own run is the first."""


def hold(folder: Path, at: Path | None = None) -> bool:
    """Keeps `folder` open in this process; if its file system is away, it is used by its path. False if the process has
    it open already, as a forked one does. `at` is its place before it gets its name."""
    if _find(folder) is not None:
        return False
    _hold(folder, str(at or folder))
    return True


def hold_as_told() -> bool:
    """Keeps open what the batch shell keeps open and has checked; False if no batch shell started this process."""
    way, _, folder = os.environ.get(HELD, "").partition(" ")
    return bool(folder) and _hold(Path(folder), way)


@contextlib.contextmanager
def holding(folders: Sequence[Path]) -> Iterator[None]:
    """Keeps the folders open during the block, also those that are made in it. Those that were open before stay
    open."""
    opened = [folder for folder in folders if _find(folder) is None]
    for folder in opened:
        hold(folder)
    try:
        yield
    finally:
        for folder in opened:
            release(folder)


def release(folder: Path | None = None) -> None:
    """Closes the folder; None closes all."""
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
    """Replaces an entry whose descriptor is lost; the number may be that of another file by now."""
    old = _find(new.folder)
    if old is None:
        _held.append(new)
    else:
        _held[_held.index(old)] = new


def handed_on() -> tuple[str, str] | None:
    """The arguments of `take_over` for a process that this one starts: the folder, and its path while this process
    lives."""
    return (str(_held[0].folder), f"/proc/{os.getpid()}/fd/{_held[0].way.name}") if _held else None


def take_over(handed: Sequence[str] | None) -> None:
    """Keeps open what another process keeps open."""
    if handed is not None:
        _hold(Path(handed[0]), handed[1])


def held(path: Path) -> Path:
    """`path`, through the descriptor if it is in a folder that this process keeps open."""
    for kept in _held:
        if path.is_relative_to(kept.folder):
            return kept.way / path.relative_to(kept.folder)
    return path


def renewed() -> bool:
    """Opens folders again whose descriptors are lost: the file server no longer knows the handle, or the training has
    closed all descriptors. False if none is lost, or if something else is in the folder's place."""
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
    """Whether something else is in the place of a folder that this process keeps open. A folder that was moved away
    with nothing in its place counts as absent, not as replaced."""
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
    """The owner's user id when this process opened the folder; None if it does not keep it open."""
    kept = _find(folder)
    return None if kept is None else kept.identity[1]


def place_of_held(folder: Path) -> Path | None:
    """The present path of a folder that this process keeps open; None if that is unknown, as after it was deleted."""
    kept = _find(folder)
    with contextlib.suppress(OSError):
        if kept is not None and _identity_of(os.stat(now := os.readlink(kept.way))) == kept.identity:
            return Path(now)
    return None


def _identity_of(facts: os.stat_result) -> tuple[int, int]:
    return facts.st_ino, facts.st_uid
