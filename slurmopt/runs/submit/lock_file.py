"""A lock file that only one process can hold, whatever locks the file system has: a symbolic link.

symlink() is atomic on local file systems, NFS and Lustre, and the link's text names the holder. flock is missing on
some mounts of Lustre, and holds on one node only on others.

A lock file of a dead holder is removed: on the same machine its process is looked up; that of another machine counts as
dead once it no longer updates the link. A holder that is suspended for as long, with its whole machine, and continues
later cannot be distinguished from a dead one.

On file systems without links (some SMB mounts, gateways of object stores) a kernel lock is used instead.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import secrets
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path

from slurmopt.errors import FolderError, why_failed
from slurmopt.run_folder.access import file_lock
from slurmopt.run_folder.access.files import open_append
from slurmopt.run_folder.access.open_folders import held
from slurmopt.run_folder.process import lives, machine, started_at

_BEAT = 1.0
"""Seconds between two updates of the modification time. NFS shows them to other clients within about three."""
_LOOK = 1.0
_SILENT = 8
"""After so many looks, `_LOOK` seconds apart, at a lock file that is not updated its holder counts as dead. Clocks of
other machines do not matter, nor does the time for which a file system hangs."""
_OLD = 60.0
"""Seconds without an update after which the holder counts as dead at a single look."""
_PAUSE = 0.1
_HELD: set[str] = set()
"""The contents of the lock files that this process holds."""
_NO_LINKS = (errno.EPERM, errno.ENOSYS, errno.EOPNOTSUPP)


@contextlib.contextmanager
def claimed(path: Path, patience: float = 0.0) -> Iterator[bool]:
    """Holds the lock file `path` during the block. Yields False if another process has held it for `patience` seconds.

    A lock file of another machine is watched until its holder is known to be alive, however short `patience` is.
    FolderError if no lock file can be made.
    """
    own_claim = _own_claim()
    _HELD.add(own_claim)
    try:
        with _claimed(path, own_claim, time.monotonic() + patience) as is_claimed:
            yield is_claimed
    finally:
        _HELD.discard(own_claim)


@contextlib.contextmanager
def _claimed(path: Path, own_claim: str, deadline: float) -> Iterator[bool]:
    try:
        is_claimed: bool | None = _take(path, own_claim, deadline)
    except _NoLinksError:
        is_claimed = None
    if is_claimed is None:
        with _locked(path.with_name(f"{path.name}.lock"), deadline) as locked:
            yield locked
        return
    if not is_claimed:
        yield False
        return
    finished = threading.Event()
    threading.Thread(target=_touch, args=(path, finished), daemon=True).start()
    try:
        yield True
    finally:
        finished.set()
        if _holder(path) == own_claim:
            with contextlib.suppress(OSError):  # the work is done; the next process sees that it is free
                held(path).unlink(missing_ok=True)


def is_left(path: Path) -> bool:
    """Whether the lock file exists and its holder is dead, judged by a single look."""
    holder = _holder(path)
    alive = holder and _lives(holder)
    return holder is not None and (time.time() - held(path).lstat().st_mtime > _OLD if alive is None else not alive)


class _NoLinksError(FolderError):
    """The file system has no links."""


@contextlib.contextmanager
def _locked(path: Path, deadline: float) -> Iterator[bool]:
    """The same by a lock of the file `path`, which is never removed: removing it would leave two files to lock."""
    try:
        descriptor = open_append(path)
    except OSError as error:
        raise FolderError(f"{path} cannot be made: {why_failed(error)}") from error
    try:
        if (is_locked := file_lock.held(descriptor, deadline)) is None:
            raise FolderError(f"{path.parent} has neither links nor locks; choose another launch.folder")
        yield is_locked
    finally:
        os.close(descriptor)


def _own_claim() -> str:
    """Identifies this process and this lock file of it."""
    pid = os.getpid()
    process = {"host": socket.gethostname(), "machine": machine(), "pid": pid, "started": started_at(pid)}
    return json.dumps({**process, "claim": secrets.token_hex(4)})


def _touch(path: Path, finished: threading.Event) -> None:
    while not finished.wait(_BEAT):
        with contextlib.suppress(OSError):
            os.utime(held(path), follow_symlinks=False)


def _take(path: Path, own_claim: str, deadline: float) -> bool:
    watch = _Watch(path)
    while True:
        try:
            os.symlink(own_claim, held(path))
            return True
        except FileExistsError:
            holder = _holder(path)
        except OSError as error:
            if error.errno in _NO_LINKS:
                raise _NoLinksError(f"{path} cannot be made: there are no links") from error
            raise FolderError(f"{path} cannot be made: {why_failed(error)}") from error
        if holder == own_claim:  # an NFS server that made it, and whose answer was lost
            return True
        lives = holder is not None and watch.lives(holder)
        if lives is False and (holder is None or _remove(path, holder, own_claim, deadline)):
            continue
        if lives is not None and time.monotonic() >= deadline:
            return False
        time.sleep(_PAUSE)


def _holder(path: Path) -> str | None:
    """The content of the lock file; "" for a file of another kind, None if there is none."""
    try:
        return os.readlink(held(path))
    except FileNotFoundError:
        return None
    except OSError:
        return ""


def _remove(path: Path, holder: str, own_claim: str, deadline: float) -> bool:
    """Removes the lock file of a dead holder, unless another process holds it by now. Two processes that see it must
    not mistake the new lock file of the first for the dead one, so only the holder of a second lock file removes the
    first."""
    second = path.with_name(f"{path.name}.dead")
    if not _take(second, own_claim, deadline):
        return False
    try:
        if _holder(path) == holder:
            held(path).unlink(missing_ok=True)
    finally:
        held(second).unlink(missing_ok=True)
    return True


class _Watch:
    """Watches a lock file of another machine."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._seen: tuple[str, int] | None = None
        self._looks = 0
        self._next = 0.0

    def lives(self, holder: str) -> bool | None:
        """Whether its holder is alive; None as long as that is unknown."""
        alive = _lives(holder)
        return self._touched(holder) if alive is None else alive

    def _touched(self, holder: str) -> bool | None:
        if time.monotonic() < self._next:
            return None
        try:
            current = (holder, held(self._path).lstat().st_mtime_ns)
        except FileNotFoundError:
            return None
        previous, self._seen, self._next = self._seen, current, time.monotonic() + _LOOK
        if previous not in (None, current):
            return True
        self._looks += 1
        return False if self._looks > _SILENT else None


def _lives(holder: str) -> bool | None:
    """Whether the process is alive; None if that cannot be told from here."""
    try:
        process = json.loads(holder)
        pid, alive = process["pid"], lives(process["pid"], process["started"], str(process["machine"]))
    except (ValueError, TypeError, KeyError):
        return None
    if not isinstance(pid, int):
        return None
    if alive and pid == os.getpid():  # a claim of its own that could not be removed
        return holder in _HELD
    return alive
