"""The folder of a user's staged copies on a node, and who uses which copy.

INTO/slurmopt-staged-UID/        private
    .lock                        held while a copy is chosen, given to somebody, or removed
    HASH.N/                      a copy of a source; N is above 0 if another job uses an older version of it
        record.jsonl             see `slurmopt.storage.staging.record`
        .lock                    held by the one who copies or verifies
        users-GROUP              a byte for each process of a group, such as the ranks of a job here, that has come
        data/NAME                the copy

Who uses a copy holds a shared lock of its folder; the kernel ends it with the process. A copy is changed into that of
another version, or removed, only under the exclusive lock of its folder, which is tried within INTO's lock.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import hashlib
import os
import shutil
import stat
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import count
from pathlib import Path

from slurmopt.errors import StagingError, one_line, why_failed
from slurmopt.storage.staging.record import Head, Record, read, read_head

_LOCK = ".lock"
_GONE = ".gone-"
_USERS = "users-"
_APPEND = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_PROGRESS_BYTES = 400
_LOCK_SECONDS = 60.0
_UNUSED_SECONDS = 24 * 3600.0
"""How long a copy that nobody uses and nobody wants to keep stays: the next attempt of its job may come back here."""


class Copy:
    """A copy that this process uses, until `leave`."""

    def __init__(self, root: str, path: str, descriptor: int) -> None:
        self.root, self.path, self._descriptor = root, path, descriptor

    def data(self, name: str) -> str:
        """Where the copy of a source named `name` is."""
        return os.path.join(self.path, "data", name)

    def leave(self) -> None:
        """Ends the use of the copy, which stays."""
        with contextlib.suppress(OSError):
            os.utime(self._descriptor)  # from now on it is unused
        os.close(self._descriptor)

    def join(self, group: str) -> None:
        """Counts this process among those of a group that use the copy. Raises StagingError."""
        with node_errors(self.path):
            descriptor = os.open(os.path.join(self.path, _USERS + group), _APPEND, 0o600)
            try:
                os.write(descriptor, b".")
            finally:
                os.close(descriptor)

    def has_all(self, group: str, count: int) -> bool:
        """Whether so many processes of a group have come; those that come later still need the copy."""
        try:
            return os.stat(os.path.join(self.path, _USERS + group)).st_size >= count
        except OSError:
            return False

    def leave_and_remove(self) -> bool:
        """Ends the use, and removes the copy unless somebody else uses it, or wants to keep it. Returns whether it was
        removed. Raises StagingError."""
        gone = None
        try:
            with _locked(self.root):
                head = read_head(self.path)
                if (head is None or not head.keep) and _take(self._descriptor, fcntl.LOCK_EX):
                    gone = _set_aside(self.path)
        finally:
            os.close(self._descriptor)
        if gone is not None:
            shutil.rmtree(gone, ignore_errors=True)
        return gone is not None

    @contextlib.contextmanager
    def alone(self, wait: Callable[[str], None]) -> Iterator[int]:
        """Within it, no other process copies or verifies. Yields the lock file, for `report_progress`. `wait` is
        called, with what the other process reports, until it is done; what it raises is raised."""
        with node_errors(self.path):
            descriptor = os.open(
                os.path.join(self.path, _LOCK), os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600
            )
        try:
            while not _take(descriptor, fcntl.LOCK_EX):
                wait(os.pread(descriptor, _PROGRESS_BYTES, 0).decode("utf-8", "replace").strip())
            yield descriptor
        finally:
            os.close(descriptor)


def report_progress(descriptor: int, text: str) -> None:
    """Tells processes that wait for the lock how far this one is. One write, so that they never read a part of it."""
    with contextlib.suppress(OSError):  # the disk is full, which the copy says better
        os.pwrite(descriptor, text.encode().ljust(_PROGRESS_BYTES)[:_PROGRESS_BYTES], 0)


def open_root(into: str, kind: str = "staged") -> str:
    """The user's own folder of a kind in `into`, which is made if it is missing. Raises StagingError if it cannot be
    made, or is not private to this user."""
    path = os.path.join(into, f"slurmopt-{kind}-{os.geteuid()}")
    with node_errors(path):
        os.makedirs(into, 0o700, exist_ok=True)
        _refuse_open(into)
        with contextlib.suppress(FileExistsError):
            os.mkdir(path, 0o700)
        facts = os.lstat(path)
    why = _not_private(facts)
    if why is not None:
        raise StagingError(one_line(f"{path} {why}; remove it, or choose another folder"), "user")
    return path


def _refuse_open(into: str) -> None:
    """Raises StagingError if another user could replace what this user has in `into`. The folders above may belong to a
    group, so of these only those that everybody may write are refused."""
    link = os.lstat(into)
    if stat.S_ISLNK(link.st_mode) and link.st_uid not in (0, os.geteuid()):
        why = f"is a link of another user (uid {link.st_uid})"
        raise StagingError(one_line(f"{into} {why}; choose another folder"), "user")
    for folder in (into, *map(str, Path(into).parents)):
        facts = os.stat(folder)
        writers = stat.S_IWOTH | (stat.S_IWGRP if folder == into else 0)
        shared = facts.st_mode & writers and not facts.st_mode & stat.S_ISVTX
        if shared and facts.st_uid not in (0, os.geteuid()):
            owner = f"belongs to another user (uid {facts.st_uid}), and others may write there"
            raise StagingError(one_line(f"{folder} {owner}; stage into another folder"), "user")


def _not_private(facts: os.stat_result) -> str | None:
    if not stat.S_ISDIR(facts.st_mode):
        return "is a link" if stat.S_ISLNK(facts.st_mode) else "is not a folder"
    if facts.st_uid != os.geteuid():
        return f"belongs to another user (uid {facts.st_uid})"
    mode = stat.S_IMODE(facts.st_mode)
    return f"is open to others (mode {mode:o})" if mode & 0o077 else None


def choose(root: str, head: Head) -> Copy:
    """A copy of the version `head`, or a place for it, which no other process gives to another version. One with other
    checksums than this Python has is not shared: it could not be verified. Raises StagingError."""
    with node_errors(root):
        _remove_remains(root)
    with _locked(root), node_errors(root):
        paths = _copies(root, key := _key(head.source))
        for path in paths:
            here = read_head(path)
            if here is not None and replace(here, keep=head.keep, boot=head.boot, cleared=head.cleared) == head:
                return _used(root, path)
        free = next((path for path in paths if _is_free(path)), None)
        new = next(path for number in count() if (path := os.path.join(root, f"{key}.{number}")) not in paths)
        return _given(root, free or new, head)


def _key(source: str) -> str:
    return hashlib.sha256(source.encode("utf-8", "surrogateescape")).hexdigest()[:16]


def _copies(root: str, key: str) -> list[str]:
    """The copies of a source, of all its versions."""
    return sorted(os.path.join(root, name) for name in os.listdir(root) if name.startswith(f"{key}."))


def _is_free(path: str) -> bool:
    """Whether nobody uses a copy. It stays so while the lock of the user's folder is held."""
    descriptor = os.open(path, _FOLDER)
    try:
        return _take(descriptor, fcntl.LOCK_EX)
    finally:
        os.close(descriptor)


def _used(root: str, path: str) -> Copy:
    """Use of a copy that is there."""
    descriptor = os.open(path, _FOLDER)
    _take(descriptor, fcntl.LOCK_SH)
    os.utime(path)
    return Copy(root, path, descriptor)


def _given(root: str, path: str, head: Head) -> Copy:
    """Gives a place to a version. Its complete chunks of an earlier version are kept."""
    for folder in (path, os.path.join(path, "data")):
        with contextlib.suppress(FileExistsError):
            os.mkdir(folder, 0o700)
    copy = _used(root, path)
    before, entries = read(path)
    boot = head.boot if before is None else before.boot
    Record(path, replace(head, boot=boot), entries).close()
    return copy


def use(root: str, path: str) -> Copy:
    """Use of the copy at `path`, which another process of this job uses. Raises StagingError."""
    with _locked(root), node_errors(path):
        return _used(root, path)


def remove_unused(root: str) -> list[str]:
    """Removes the copies that nobody has used for a day and nobody wants to keep; returns their sources. Raises
    StagingError."""
    return list(iter(lambda: _remove_oldest(root, _UNUSED_SECONDS, False), None))


def remove_one_unused(root: str) -> str | None:
    """Removes the copy that was not used for the longest time, kept or not; returns its source. None if all are used.
    Raises StagingError."""
    return _remove_oldest(root, 0.0, True)


def remove_copies(root: str, source: str) -> tuple[int, int]:
    """Removes the copies of the source with this identity, kept or not; returns their number, and that of those that
    somebody uses, which stay. Raises StagingError."""
    with _locked(root), node_errors(root):
        paths = _copies(root, _key(source))
        gone = [_set_aside(path) for path in paths if _is_free(path)]
    for path in gone:
        shutil.rmtree(path, ignore_errors=True)
    return len(gone), len(paths) - len(gone)


def _remove_oldest(root: str, seconds: float, also_kept: bool) -> str | None:
    with _locked(root), node_errors(root):
        copies = [os.path.join(root, name) for name in os.listdir(root) if not name.startswith(".")]
        for path in sorted(copies, key=lambda each: os.lstat(each).st_mtime):
            if (source := _unused(path, seconds, also_kept)) is not None:
                gone = _set_aside(path)
                break
        else:
            return None
    shutil.rmtree(gone, ignore_errors=True)
    return source


def _unused(path: str, seconds: float, also_kept: bool) -> str | None:
    """The source of a copy that may be removed; None for others."""
    head = read_head(path)
    if head is not None and head.keep and not also_kept:
        return None
    try:
        descriptor = os.open(path, _FOLDER)
    except NotADirectoryError:
        return None  # not made by slurmopt
    try:
        is_old = time.time() - os.fstat(descriptor).st_mtime >= seconds
        return (path if head is None else head.source) if is_old and _take(descriptor, fcntl.LOCK_EX) else None
    finally:
        os.close(descriptor)


def _set_aside(path: str) -> str:
    """Renames a copy, so that nobody finds it any more while it is being removed. Returns the new path."""
    gone = os.path.join(os.path.dirname(path), f"{_GONE}{os.path.basename(path)}-{os.getpid()}-{time.monotonic_ns()}")
    os.rename(path, gone)
    return gone


def _remove_remains(root: str) -> None:
    """Removes what a process that was killed meanwhile did not remove to the end."""
    for name in os.listdir(root):
        if name.startswith(_GONE):
            shutil.rmtree(os.path.join(root, name), ignore_errors=True)


def _take(descriptor: int, kind: int) -> bool:
    """Takes the lock of an open file or folder, if it is free. Raises OSError where there are no locks."""
    try:
        fcntl.flock(descriptor, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


@contextlib.contextmanager
def _locked(root: str) -> Iterator[None]:
    """Holds the lock of the user's folder; all that is done within takes moments."""
    with node_errors(root):
        descriptor = os.open(os.path.join(root, _LOCK), os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        deadline = time.monotonic() + _LOCK_SECONDS
        with node_errors(root):
            while not _take(descriptor, fcntl.LOCK_EX):
                if time.monotonic() > deadline:
                    raise StagingError(one_line(f"{root} is locked by another process for {_LOCK_SECONDS:g} s"), "node")
                time.sleep(0.02)
        yield
    finally:
        os.close(descriptor)


_FAULTS_OF_USERS = (errno.EACCES, errno.EPERM, errno.EEXIST, errno.ENOTDIR, errno.ELOOP, errno.ENAMETOOLONG)


@contextlib.contextmanager
def node_errors(place: str) -> Iterator[None]:
    """Turns an OSError of the node's disk into a StagingError that says who is at fault."""
    try:
        yield
    except OSError as error:
        where = place if error.filename is None else os.fsdecode(error.filename)
        fault = "user" if error.errno in _FAULTS_OF_USERS else "node"
        raise StagingError(one_line(f"{where}: {why_failed(error)}"), fault) from error
