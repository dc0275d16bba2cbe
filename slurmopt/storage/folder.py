"""FolderStore: a folder as a Store, with direct I/O where possible, fsync, and files that only the user can read."""

from __future__ import annotations

import contextlib
import errno
import os
import re
import stat
from collections.abc import Iterable, Iterator
from pathlib import Path

from slurmopt.errors import StorageError, StorageRefused
from slurmopt.storage.direct_io import OutputFile, is_aligned, open_to_read, read_exactly

_TEMPORARY = re.compile(r"\..+\.\d+-[0-9a-f]{8}")
_MOST_AT_ONCE = 2 << 30
"""Bytes: what `get` takes into memory at most."""
_REFUSALS = (errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOTDIR, errno.EISDIR, errno.ELOOP, errno.ENAMETOOLONG)


class FolderStore:
    """A Store whose keys are paths below `root`. It follows no symbolic link below `root` and reads only regular files.

    It refuses a root that another user owns and others can write to, since its content cannot be trusted.
    """

    def __init__(self, root: Path) -> None:
        self.root = root
        self._synced: set[Path] = set()
        self._trusted = False

    @property
    def place(self) -> str:
        return str(self.root)

    def put_new(self, key: str, data: bytes) -> bool:
        """Writes a temporary file and hard-links it to the key: the link is atomic and fails where the key exists."""
        path = self.root / key
        with _storage_errors(path):
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
        with _storage_errors(path):
            self._refuse_links(path)
            with os.fdopen(open_to_read(path, direct=False), "rb") as file:
                length = os.fstat(file.fileno()).st_size
                if most is not None and length > most:
                    raise ValueError(f"{path} has {length:,} bytes")
                if length > _MOST_AT_ONCE:
                    raise StorageError(f"{path} has {length:,} bytes, and is read whole only up to {_MOST_AT_ONCE:,}")
                return file.read()

    def size(self, key: str) -> int:
        with _storage_errors(self.root / key):
            self._refuse_links(self.root / key)
            return (self.root / key).lstat().st_size

    def list(self, prefix: str) -> list[str]:
        """Leaves out hidden files, among them the temporary files of `put_new`."""
        folder = prefix.rpartition("/")[0]
        with _storage_errors(self.root / folder):
            self._refuse_links(self.root / folder)
            keys = [str(path.relative_to(self.root)) for path in _files(self.root / folder)]
        return sorted(key for key in keys if key.startswith(prefix))

    def delete(self, keys: Iterable[str]) -> None:
        """Also removes folders that become empty."""
        folders = set()
        for key in keys:
            path = self.root / key
            with _storage_errors(path):
                self._refuse_links(path.parent)
                path.unlink(missing_ok=True)
                self._remove_empty(path.parent)
            folders.add(path.parent)
        for folder in folders:
            with _storage_errors(folder), contextlib.suppress(FileNotFoundError):
                sync_folder(folder)

    def abort_abandoned(self, prefix: str) -> int:
        """Removes temporary files of interrupted `put_new` calls."""
        folder = self.root / prefix.rpartition("/")[0]
        with _storage_errors(folder):
            self._refuse_links(folder)
            temporary_files = [path for path in folder.glob(".*") if _TEMPORARY.fullmatch(path.name)]
            for path in temporary_files:
                path.unlink(missing_ok=True)
        return len(temporary_files)

    def write(self, key: str, pieces: Iterable[memoryview]) -> None:
        """Uses direct I/O as long as the pieces are aligned to 4096 bytes, in the file and in memory."""
        path = self.root / key
        with _storage_errors(path):
            self._refuse_links(path.parent)
            self._make_folder(path.parent)
            file = OutputFile(path)  # raises where the path exists: an existing file is never removed
            try:
                with file as output:
                    output.write(pieces)
            except BaseException:
                path.unlink(missing_ok=True)
                raise
            sync_folder(path.parent)

    def read_into(self, key: str, offset: int, buffer: memoryview) -> None:
        path = self.root / key
        with _storage_errors(path):
            self._refuse_links(path)
            descriptor = open_to_read(path, direct=is_aligned(buffer, offset))
            try:
                read_exactly(descriptor, offset, buffer, path)
            finally:
                os.close(descriptor)

    def _refuse_links(self, path: Path) -> None:
        """Raises StorageError where the root is not trusted, or a component below it is a symbolic link."""
        if not self._trusted:
            self._trusted = _refuse_untrusted_root(self.root)
        parts = path.relative_to(self.root).parts if path.is_relative_to(self.root) else ("..",)
        if ".." in parts:
            raise StorageRefused(f"{path} is not below {self.root}")
        current = self.root
        for part in parts:
            current = current / part
            try:
                mode = current.lstat().st_mode
            except (FileNotFoundError, NotADirectoryError):
                return
            if stat.S_ISLNK(mode):
                raise StorageRefused(f"{current} is a link, and no link is followed there")

    def _make_folder(self, folder: Path) -> None:
        """Creates `folder` and its parents, each synced into its parent: a file is only as durable as its folders."""
        missing = []
        while not folder.is_dir():
            missing.append(folder)
            folder = folder.parent
        for path in reversed(missing):
            with contextlib.suppress(FileExistsError):  # another rank created it meanwhile
                path.mkdir(mode=0o700)
            sync_folder(path.parent)
            self._synced.add(path)
        self._sync_up(folder)

    def _sync_up(self, folder: Path) -> None:
        """Syncs each existing folder once: the process that created it may have been killed before it was durable."""
        while folder not in self._synced and (folder == self.root or self.root in folder.parents):
            with contextlib.suppress(PermissionError):  # a parent that another user owns
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


def sync_folder(folder: Path) -> None:
    """Makes the directory entries of `folder` durable."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _refuse_untrusted_root(root: Path) -> bool:
    """Raises StorageError where another user could place files at `root`; returns whether `root` exists.

    The user root is never refused: it can write anywhere, and storage that maps users may show its files under another
    owner. The folders above may belong to a group, so of these only world-writable ones are refused.
    """
    me = os.geteuid()
    exists = os.path.lexists(root)
    if me == 0:
        return exists
    for folder in (root, *root.parents[:2]):
        with contextlib.suppress(FileNotFoundError, NotADirectoryError):
            facts = folder.stat()
            shared = facts.st_mode & (stat.S_IWGRP | stat.S_IWOTH)
            if folder != root:
                shared = facts.st_mode & stat.S_IWOTH and not facts.st_mode & stat.S_ISVTX
            if facts.st_uid not in (0, me) and shared:
                owner = f"another user (uid {facts.st_uid})"
                raise StorageRefused(f"{folder} belongs to {owner}, and others may write there")
    if exists and (facts := root.lstat()).st_uid not in (0, me) and stat.S_ISLNK(facts.st_mode):
        raise StorageRefused(f"{root} is a link of another user (uid {facts.st_uid})")
    return exists


def _write_small(path: Path, data: bytes) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(descriptor)


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
    """The store on the folder `root`. `deadline` is ignored: file system calls have no timeout."""
    return FolderStore(Path(root))


@contextlib.contextmanager
def _storage_errors(path: Path) -> Iterator[None]:
    """Turns an OSError on `path` into a StorageError of one line; FileNotFoundError passes unchanged."""
    try:
        yield
    except (FileNotFoundError, StorageError):
        raise
    except OSError as error:
        kind = StorageRefused if error.errno in _REFUSALS else StorageError
        raise kind(f"{path}: {error.strerror or error}") from error
