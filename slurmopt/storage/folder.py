"""A folder as a store: direct I/O where the file system takes it, everything synced, private to the user."""

from __future__ import annotations

import contextlib
import ctypes
import errno
import fcntl
import os
import re
import stat
from collections.abc import Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from pathlib import Path

from slurmopt.errors import StorageError, StorageRefused

ALIGNMENT = 4096
"""Bytes: what direct I/O wants of addresses, offsets and lengths on every file system we know."""
_WRITERS = 2
_TEMPORARY = re.compile(r"\..+\.\d+-[0-9a-f]{8}")
_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK  # a FIFO would make an open wait for ever
_MOST_AT_ONCE = 2 << 30
"""Bytes: what `get` takes into memory at most."""
_REFUSALS = (errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOTDIR, errno.EISDIR, errno.ELOOP, errno.ENAMETOOLONG)
_NOT_DIRECT = (errno.EINVAL, errno.ENOTSUP)


class FolderStore:
    """Keys are paths below `root`. No link below it is followed, and nothing is read that is no regular file.

    A root that another user owns and others may write to is refused: whoever made it may put anything there.
    """

    def __init__(self, root: Path) -> None:
        self.root = root
        self._synced: set[Path] = set()
        self._trusted = False

    @property
    def place(self) -> str:
        return str(self.root)

    def put_new(self, key: str, data: bytes) -> bool:
        """A hard link makes the finished file appear at once, and fails where the name is taken."""
        path = self.root / key
        with _told(path):
            self._refuse_links(path.parent)
            self._make_folder(path.parent)
            temporary = path.with_name(f".{path.name}.{os.getpid()}-{os.urandom(4).hex()}")
            try:
                _write_small(temporary, data)
                os.link(temporary, path)
            except FileExistsError:
                return False
            finally:
                temporary.unlink(missing_ok=True)
            sync_folder(path.parent)
        return True

    def get(self, key: str, most: int | None = None) -> bytes:
        path = self.root / key
        with _told(path):
            self._refuse_links(path)
            with os.fdopen(_opened(path, direct=False), "rb") as file:
                length = os.fstat(file.fileno()).st_size
                if most is not None and length > most:
                    raise ValueError(f"{path} has {length:,} bytes")
                if length > _MOST_AT_ONCE:
                    raise StorageError(f"{path} has {length:,} bytes, and is read whole only up to {_MOST_AT_ONCE:,}")
                return file.read()

    def size(self, key: str) -> int:
        with _told(self.root / key):
            self._refuse_links(self.root / key)
            return (self.root / key).lstat().st_size

    def list(self, prefix: str) -> list[str]:
        """Files being written by `put_new` have hidden names and are left out."""
        folder = prefix.rpartition("/")[0]
        with _told(self.root / folder):
            self._refuse_links(self.root / folder)
            keys = [str(path.relative_to(self.root)) for path in _files(self.root / folder)]
        return sorted(key for key in keys if key.startswith(prefix))

    def delete(self, keys: Iterable[str]) -> None:
        """Folders that are left empty go too."""
        folders = set()
        for key in keys:
            path = self.root / key
            with _told(path):
                self._refuse_links(path.parent)
                path.unlink(missing_ok=True)
                self._remove_empty(path.parent)
            folders.add(path.parent)
        for folder in folders:
            with _told(folder), contextlib.suppress(FileNotFoundError):
                sync_folder(folder)

    def abort_abandoned(self, prefix: str) -> int:
        """The temporary files of `put_new`."""
        folder = self.root / prefix.rpartition("/")[0]
        with _told(folder):
            self._refuse_links(folder)
            left = [path for path in folder.glob(".*") if _TEMPORARY.fullmatch(path.name)]
            for path in left:
                path.unlink(missing_ok=True)
        return len(left)

    def write(self, key: str, pieces: Iterable[memoryview]) -> None:
        """Pieces that start and end at multiples of 4096, in memory too, are written past the page cache."""
        path = self.root / key
        with _told(path):
            self._refuse_links(path.parent)
            self._make_folder(path.parent)
            file = _Output(path)  # fails where something is in the way, which is not ours to remove
            try:
                with file as output:
                    output.write(pieces)
            except BaseException:
                path.unlink(missing_ok=True)
                raise
            sync_folder(path.parent)

    def read_into(self, key: str, offset: int, buffer: memoryview) -> None:
        path = self.root / key
        with _told(path):
            self._refuse_links(path)
            descriptor = _opened(path, direct=_aligned(buffer, offset))
            try:
                _read_all(descriptor, offset, buffer, path)
            finally:
                os.close(descriptor)

    def _refuse_links(self, path: Path) -> None:
        """StorageError where the root is not to be trusted, or anything on the way from it to `path` is a link."""
        if not self._trusted:
            self._trusted = _refuse_foreign(self.root)
        parts = path.relative_to(self.root).parts if path.is_relative_to(self.root) else ("..",)
        if ".." in parts:
            raise StorageRefused(f"{path} is not below {self.root}")
        here = self.root
        for part in parts:
            here = here / part
            try:
                mode = here.lstat().st_mode
            except (FileNotFoundError, NotADirectoryError):
                return
            if stat.S_ISLNK(mode):
                raise StorageRefused(f"{here} is a link, and no link is followed there")

    def _make_folder(self, folder: Path) -> None:
        """Each new folder is synced into its parent: a file is as durable as the folders above it."""
        missing = []
        while not folder.is_dir():
            missing.append(folder)
            folder = folder.parent
        for path in reversed(missing):
            with contextlib.suppress(FileExistsError):  # another rank was quicker
                path.mkdir(mode=0o700)
            sync_folder(path.parent)
            self._synced.add(path)
        self._sync_up(folder)

    def _sync_up(self, folder: Path) -> None:
        """Once for each folder that was there: whoever made it may have been killed before it was durable."""
        while folder not in self._synced and (folder == self.root or self.root in folder.parents):
            with contextlib.suppress(PermissionError):  # a parent that others own, and keep
                sync_folder(folder.parent)
            self._synced.add(folder)
            folder = folder.parent

    def _remove_empty(self, folder: Path) -> None:
        while folder != self.root:
            try:
                folder.rmdir()
            except FileNotFoundError:
                pass
            except OSError as error:
                if error.errno in (errno.ENOTEMPTY, errno.EEXIST):
                    return
                raise
            folder = folder.parent


class _Output:
    """One new file, written by two threads at a time."""

    def __init__(self, path: Path) -> None:
        self._descriptor = _open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, direct=True)
        self._direct = bool(fcntl.fcntl(self._descriptor, fcntl.F_GETFL) & os.O_DIRECT)
        self._pool = ThreadPoolExecutor(_WRITERS, thread_name_prefix="slurmopt-write")
        self._pending: set[Future[None]] = set()

    def __enter__(self) -> _Output:
        return self

    def __exit__(self, *exception: object) -> None:
        self._pool.shutdown(cancel_futures=True)
        os.close(self._descriptor)

    def write(self, pieces: Iterable[memoryview]) -> None:
        offset = 0
        for piece in pieces:
            if self._direct and not _aligned(piece, offset):
                self._leave_direct()
            self._pending.add(self._pool.submit(self._write_piece, piece, offset))
            offset += len(piece)
            self._settle(_WRITERS)
        self._settle(0)
        os.fsync(self._descriptor)

    def _settle(self, most: int) -> None:
        """Waits until no more than `most` pieces are under way; a failed one raises."""
        while len(self._pending) > most:
            done, self._pending = wait(self._pending, return_when=FIRST_COMPLETED)
            for future in done:
                future.result()

    def _leave_direct(self) -> None:
        self._settle(0)
        flags = fcntl.fcntl(self._descriptor, fcntl.F_GETFL)
        fcntl.fcntl(self._descriptor, fcntl.F_SETFL, flags & ~os.O_DIRECT)
        self._direct = False

    def _write_piece(self, piece: memoryview, offset: int) -> None:
        while piece:
            count = os.pwrite(self._descriptor, piece, offset)
            piece, offset = piece[count:], offset + count


def sync_folder(folder: Path) -> None:
    """Makes the names in `folder` durable."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _refuse_foreign(root: Path) -> bool:
    """StorageError where another user can put anything at `root`; False where there is no root yet.

    root may write anywhere, and owns what it makes on storage that maps users under another name: it is not refused.
    The folders above may be a group's, so there only one that all the world can rename things in is refused.
    """
    me = os.geteuid()
    there = os.path.lexists(root)
    if me == 0:
        return there
    for folder in (root, *root.parents[:2]):
        with contextlib.suppress(FileNotFoundError, NotADirectoryError):
            facts = folder.stat()
            shared = facts.st_mode & (stat.S_IWGRP | stat.S_IWOTH)
            if folder != root:
                shared = facts.st_mode & stat.S_IWOTH and not facts.st_mode & stat.S_ISVTX
            if facts.st_uid not in (0, me) and shared:
                owner = f"another user (uid {facts.st_uid})"
                raise StorageRefused(f"{folder} belongs to {owner}, and others may write there")
    if there and (facts := root.lstat()).st_uid not in (0, me) and stat.S_ISLNK(facts.st_mode):
        raise StorageRefused(f"{root} is a link of another user (uid {facts.st_uid})")
    return there


def _write_small(path: Path, data: bytes) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(descriptor)


def _opened(path: Path, direct: bool) -> int:
    """For reading, a regular file only."""
    descriptor = _open(path, _READ, direct)
    mode = os.fstat(descriptor).st_mode
    if stat.S_ISREG(mode):
        return descriptor
    os.close(descriptor)
    if stat.S_ISDIR(mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
    raise StorageError(f"{path} is no regular file")


def _open(path: Path, flags: int, direct: bool) -> int:
    if direct:
        try:
            return os.open(path, flags | os.O_DIRECT, 0o600)
        except OSError as error:
            if error.errno not in _NOT_DIRECT:
                raise
            # Where direct I/O is unknown the refused open may have made the file already.
            if flags & os.O_EXCL:
                path.unlink(missing_ok=True)
    return os.open(path, flags, 0o600)


def _aligned(buffer: memoryview, offset: int) -> bool:
    return (offset | len(buffer) | address(buffer)) % ALIGNMENT == 0


def address(buffer: memoryview) -> int:
    """Where `buffer` starts in memory."""
    if not len(buffer):
        return 0
    if buffer.readonly:  # ctypes takes no read-only buffer; those are small and never aligned on purpose
        return 1
    return ctypes.addressof(ctypes.c_char.from_buffer(buffer))


def _read_all(descriptor: int, offset: int, buffer: memoryview, path: Path) -> None:
    while buffer:
        count = os.preadv(descriptor, [buffer], offset)
        if count == 0:
            raise StorageError(f"{path} ends at byte {offset:,}, {len(buffer):,} bytes too early")
        buffer, offset = buffer[count:], offset + count


def _files(folder: Path) -> Iterator[Path]:
    try:
        entries = sorted(os.scandir(folder), key=lambda entry: entry.name)
    except (FileNotFoundError, NotADirectoryError):
        return
    for entry in entries:
        if entry.name.startswith("."):
            continue
        if entry.is_dir(follow_symlinks=False):
            yield from _files(Path(entry.path))
        else:
            yield Path(entry.path)


def open_store(root: str, *, deadline: float | None = None) -> FolderStore:
    """The store on the folder `root`. `deadline` has no effect: no call to a file system can be given one."""
    return FolderStore(Path(root))


@contextlib.contextmanager
def _told(path: Path) -> Iterator[None]:
    """Everything that the system answers becomes one line; a file that is not there stays what it is."""
    try:
        yield
    except (FileNotFoundError, StorageError):
        raise
    except OSError as error:
        kind = StorageRefused if error.errno in _REFUSALS else StorageError
        raise kind(f"{path}: {error.strerror or error}") from error
