"""Reads files that another user may have put there, and writes small files atomically."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO

from slurmopt.run_folder.access.open_folders import held, renewed
from slurmopt.run_folder.access.owner import is_trusted
from slurmopt.run_folder.access.temporary import temporary_name

_LARGEST = 16 << 20
"""Bytes. No config, script, heartbeat or verdict is as large."""
_PAGE = 1 << 16
_MOST_PIECES = 1000


def replace_text(path: Path, text: str, mode: int = 0o640) -> None:
    """`replace_bytes` of a text."""
    replace_bytes(path, text.encode("utf-8", "surrogateescape"), mode)


def replace_bytes(path: Path, data: bytes, mode: int = 0o640) -> None:
    """Writes `data` beside `path` and renames it into place.

    Others who may write to the folder cannot predict the temporary name, and links of theirs are not followed: the file
    is new or the open fails. A file that root writes into another user's folder belongs to that user.
    """
    temporary = temporary_name(path)
    descriptor = open_held(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, mode)
    try:
        with os.fdopen(descriptor, "wb") as file:
            _leave_to_owner(descriptor, held(path))
            file.write(data)
        os.replace(held(temporary), held(path))
    except OSError as error:
        if error.filename is not None:
            error.filename, error.filename2 = str(path), None
        held(temporary).unlink(missing_ok=True)
        raise


def open_held(path: Path, flags: int, mode: int = 0o777) -> int:
    """As `os.open`. A path in a folder that this process keeps open is opened relative to that folder."""
    try:
        try:
            return os.open(held(path), flags, mode)
        except OSError as error:
            if error.errno == errno.EEXIST or not renewed():
                raise
            return os.open(held(path), flags, mode)
    except OSError as error:
        error.filename = str(path)
        raise


def open_append(path: Path, mode: int = 0o640) -> int:
    """Opens a file for appending, and creates it if it is missing: journals, logs, lock files.

    Raises OSError if the name is taken by a link, which might lead anywhere, a FIFO, which would block, or a device.
    """
    flags = os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    try:
        descriptor = open_held(path, flags, mode)
    except OSError as error:
        if error.errno != errno.ELOOP or not held(path).is_symlink():
            raise
        owner = held(path).lstat().st_uid
        raise NotRegular(errno.EINVAL, f"it is a link (of user {owner}), which is not followed", str(path)) from error
    mode = os.fstat(descriptor).st_mode
    if not stat.S_ISREG(mode):
        os.close(descriptor)
        raise NotRegular(errno.EINVAL, f"it is {_kind(mode)}", str(path))
    _leave_to_owner(descriptor, held(path))
    return descriptor


def make_folders(path: Path) -> None:
    """Makes a folder and those that are missing above it. Each is closed to all but the user, or readable for the group
    where the folder above it is: `mkdir` with `parents` makes those above readable for everybody."""
    if held(path).is_dir():
        return
    make_folders(path.parent)
    held(path).mkdir(mode=0o700 | held(path.parent).stat().st_mode & 0o050, exist_ok=True)


def _leave_to_owner(descriptor: int, path: Path) -> None:
    """Changes the owner of an empty file of root to that of the file at `path`, else of the folder: that user's jobs
    must read it, as after `slurmopt cancel` by an administrator. Not if the file has another hard link."""
    created = os.fstat(descriptor)
    if os.geteuid() or created.st_uid or created.st_size or created.st_nlink > 1:
        return
    with contextlib.suppress(OSError):  # root is nobody on a file system that says so
        before = path.lstat() if os.path.lexists(path) else created
        facts = path.parent.stat() if os.path.samestat(before, created) else before
        if facts.st_uid:
            os.fchown(descriptor, facts.st_uid, facts.st_gid)


def replace_json(path: Path, value: Any) -> None:
    """As `replace_text`, for one JSON document. Values that JSON lacks are written as their text."""
    replace_text(path, json.dumps(value, default=str) + "\n")


def read_json(path: Path) -> dict[str, Any] | None:
    """The JSON object in `path`; None if there is no file, or if it holds something else."""
    try:
        value = json.loads(read_text(path))
    except (FileNotFoundError, ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


class NotRegular(OSError):
    """The path is a FIFO, which would block, a device, which may never end, or a folder."""


_NEVER_FILES = {
    errno.ENXIO: "a socket, not a regular file",
    errno.ELOOP: "a link to itself",
}
"""The errors of opening something that is not a file."""
_KINDS = {stat.S_IFIFO: "a FIFO", stat.S_IFCHR: "a device", stat.S_IFBLK: "a device", stat.S_IFDIR: "a folder"}


def _kind(mode: int) -> str:
    return f"{_KINDS.get(stat.S_IFMT(mode), 'something else')}, not a regular file"


class TooLarge(OSError):
    """The file is larger than such a file ever is; reading it would fill the memory."""


class NotMine(PermissionError):
    """The file belongs to another user, who may write anything to it."""


def open_regular(path: str | Path, most: int | None = None, mine: bool = False) -> BinaryIO:
    """Opens a file for reading without blocking. To be used for every file that another user may have put there.

    `most` limits its size in bytes, for callers that read all of it. `mine` requires that it belongs to this user or
    root, because its content is going to be executed or obeyed. Raises OSError: NotRegular, TooLarge, NotMine, or the
    system's error.
    """
    return os.fdopen(_opened(path, most, mine), "rb")


def read_whole(path: str | Path, most: int = _LARGEST, mine: bool = False) -> bytes:
    """All bytes of a file of at most `most` bytes. Raises OSError as `open_regular` does."""
    with _closing(_opened(path, most, mine)) as descriptor:
        # Files of the kernel say that they have nothing.
        return _read(descriptor, 0, min(most, os.fstat(descriptor).st_size or _PAGE))


def read_start(path: str | Path, size: int) -> bytes:
    """The first `size` bytes of a file, or all. Raises OSError as `open_regular` does."""
    with _closing(_opened(path)) as descriptor:
        return _read(descriptor, 0, size)


def read_end(path: str | Path, size: int) -> bytes:
    """The last `size` bytes of a file, or all. Raises OSError as `open_regular` does."""
    with _closing(_opened(path)) as descriptor:
        return _read(descriptor, max(0, os.fstat(descriptor).st_size - size), size)


def _opened(path: str | Path, most: int | None = None, mine: bool = False) -> int:
    try:
        descriptor = open_held(Path(path), os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        if error.errno not in _NEVER_FILES:
            raise
        raise NotRegular(errno.EINVAL, f"it is {_NEVER_FILES[error.errno]}", str(path)) from error
    try:
        facts = os.fstat(descriptor)
        if not stat.S_ISREG(facts.st_mode):
            raise NotRegular(errno.EINVAL, f"it is {_kind(facts.st_mode)}", str(path))
        if mine and not is_trusted(facts, held(Path(path)).parent):
            raise NotMine(errno.EPERM, "it belongs to another user", str(path))
        if most is not None and facts.st_size > most:
            raise TooLarge(errno.EFBIG, f"it has more than {most >> 20} MiB", str(path))
    except OSError:
        os.close(descriptor)
        raise
    return descriptor


@contextlib.contextmanager
def _closing(descriptor: int) -> Iterator[int]:
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def _read(descriptor: int, place: int, size: int) -> bytes:
    """`size` bytes from offset `place`, or as many as there are. One system call returns at most 2 GiB."""
    data = os.pread(descriptor, size, place)
    while len(data) < size and (piece := os.pread(descriptor, size - len(data), place + len(data))):
        data += piece
    return data


def read_script(path: Path) -> str:
    """The text of the user's own job script. Bytes that are no UTF-8 are kept such that `replace_text` writes them
    again. Raises OSError."""
    return read_whole(path, mine=True).decode("utf-8", "surrogateescape")


def read_text(path: Path, mine: bool = False) -> str:
    """The text of a small file. Raises ValueError if it is not a regular file, huge, or no UTF-8. `mine` as in
    `open_regular`."""
    try:
        return read_whole(path, mine=mine).decode("utf-8")
    except (NotRegular, TooLarge) as error:
        raise ValueError(f"{path}: {error.strerror}") from error


def data_to_read(descriptor: int) -> int:
    """The number of bytes in a file without its holes."""
    facts = os.fstat(descriptor)
    with contextlib.suppress(OSError):
        if os.lseek(descriptor, 0, os.SEEK_HOLE) < facts.st_size:
            return min(facts.st_size, facts.st_blocks * 512)
    return facts.st_size  # without holes, or this file system does not tell


def data_end(descriptor: int) -> int:
    """The offset at which the last written data ends; the file's size if the file system does not tell, or the data is
    in too many pieces."""
    size, end = os.fstat(descriptor).st_size, 0
    with contextlib.suppress(OSError):
        for _ in range(_MOST_PIECES):
            if (start := next_data(descriptor, end)) >= size:
                return end
            end = os.lseek(descriptor, start, os.SEEK_HOLE)
    return size


def next_data(descriptor: int, place: int) -> int:
    """The offset of the next written data from `place` on; the file's size if there is none.

    A sparse file can have a size of a terabyte and hold nothing; reading it takes minutes."""
    try:
        return max(place, os.lseek(descriptor, place, os.SEEK_DATA))
    except OSError as error:
        if error.errno == errno.ENXIO:
            return max(place, os.fstat(descriptor).st_size)
        return place  # this file system does not tell
