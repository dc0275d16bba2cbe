"""A folder or a file of a file system as a source."""

from __future__ import annotations

import contextlib
import errno
import os
import stat
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from slurmopt.errors import StagingError, one_line, why_failed
from slurmopt.storage.filesystem.mounts import mount_of
from slurmopt.storage.staging.links import staged_target
from slurmopt.storage.staging.listing import File, Listing, SourceChanged

_THREADS, _LOCAL_THREADS = 16, 4
"""A shared file system answers each of them after milliseconds."""
_AT_ONCE = 512
"""Names whose facts one thread asks for in one go."""
_USERS = (errno.ENOENT, errno.EACCES, errno.EPERM, errno.ENOTDIR, errno.ELOOP, errno.ENAMETOOLONG)
_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_KINDS = (
    (stat.S_ISFIFO, "a FIFO"),
    (stat.S_ISSOCK, "a socket"),
    (stat.S_ISBLK, "a device"),
    (stat.S_ISCHR, "a device"),
)
_Facts = tuple[str, os.stat_result]


class FolderSource:
    """A folder, or a single file, at an absolute path."""

    def __init__(self, place: str) -> None:
        self.place = place
        self._root = os.path.realpath(place)
        self._name = os.path.basename(os.path.abspath(place)) or "root"
        self.identity = f"file:{self._root}"
        mount = mount_of(self._root)
        # A file of Lustre that is in S3 only has no blocks either, and looking for its holes would load it.
        self.threads = _LOCAL_THREADS if mount is not None and mount.is_node_local else _THREADS
        self._knows_holes = mount is None or mount.kind != "lustre"

    def holds(self, path: str) -> bool:
        return os.path.realpath(path).startswith(self._root.rstrip("/") + "/")

    def listing(self) -> Listing:
        with source_errors(self.place):
            facts = os.stat(self._root)
            if stat.S_ISREG(facts.st_mode):
                return Listing(self._name, (self._file("", facts),), is_folder=False)
            if not stat.S_ISDIR(facts.st_mode):
                raise StagingError(one_line(f"{self.place} is neither a folder nor a regular file"), "user")
            with ThreadPoolExecutor(self.threads, thread_name_prefix="slurmopt-list") as pool:
                return self._tree(pool)

    def _tree(self, pool: ThreadPoolExecutor) -> Listing:
        files: list[File] = []
        folders: list[str] = []
        links: list[tuple[str, str]] = []
        level = [""]
        while level:
            names = [name for inside in pool.map(self._names, level) for name in inside]
            level = []
            batches = [names[start : start + _AT_ONCE] for start in range(0, len(names), _AT_ONCE)]
            for path, facts in (pair for batch in pool.map(self._facts, batches) for pair in batch):
                if stat.S_ISDIR(facts.st_mode):
                    level.append(path)
                elif stat.S_ISREG(facts.st_mode):
                    files.append(self._file(path, facts))
                elif stat.S_ISLNK(facts.st_mode):
                    links += self._link(path)
                else:
                    raise StagingError(self._says(path, f"is {_kind(facts)}, which cannot be copied"), "user")
            folders += level
        return Listing(self._name, tuple(sorted(files, key=_path)), tuple(sorted(folders)), tuple(sorted(links)))

    def _names(self, folder: str) -> list[str]:
        try:
            return [os.path.join(folder, name) for name in os.listdir(self._at(folder))]
        except FileNotFoundError:
            if not folder:
                raise
            return []  # it was removed just now

    def _facts(self, paths: list[str]) -> list[_Facts]:
        found = []
        for path in paths:
            with contextlib.suppress(FileNotFoundError):
                found.append((path, os.lstat(self._at(path))))
        return found

    def _file(self, path: str, facts: os.stat_result) -> File:
        return File(
            path,
            facts.st_size,
            str(facts.st_mtime_ns),
            facts.st_mtime_ns,
            bool(facts.st_mode & stat.S_IXUSR),
            self._knows_holes and facts.st_blocks * 512 < facts.st_size,
        )

    def _link(self, path: str) -> list[tuple[str, str]]:
        try:
            target = os.readlink(self._at(path))
        except FileNotFoundError:
            return []
        inside = staged_target(self._root, path, target)
        if inside is None:
            raise StagingError(self._says(path, f"is a link to {target}, outside of the source"), "user")
        return [(path, inside)]

    def _at(self, path: str) -> str:
        return os.path.join(self._root, path) if path else self._root

    def _says(self, path: str, what: str) -> str:
        return one_line(f"{os.path.join(self.place, path)} {what}")

    @contextlib.contextmanager
    def open(self, file: File) -> Iterator[_FileReader]:
        where = self._says(file.path, "").rstrip(" /")
        with source_errors(where):
            try:
                descriptor = os.open(self._at(file.path), _READ)
            except FileNotFoundError:
                raise SourceChanged(where) from None
        try:
            self._check(file, descriptor, where)
            yield _FileReader(descriptor, where)
            self._check(file, descriptor, where)
        finally:
            os.close(descriptor)

    def _check(self, file: File, descriptor: int, where: str) -> None:
        with source_errors(where):
            facts = os.fstat(descriptor)
        if not stat.S_ISREG(facts.st_mode) or (facts.st_size, facts.st_mtime_ns) != (file.size, file.mtime_ns):
            raise SourceChanged(where)


class _FileReader:
    def __init__(self, descriptor: int, where: str) -> None:
        self._descriptor, self._where = descriptor, where

    def read_into(self, offset: int, buffer: memoryview) -> int:
        with source_errors(self._where):
            return os.preadv(self._descriptor, [buffer], offset)

    def next_data(self, offset: int, end: int) -> tuple[int, int]:
        with source_errors(self._where):
            return next_data(self._descriptor, offset, end)


def next_data(descriptor: int, offset: int, end: int) -> tuple[int, int]:
    """The next bytes of an open file that are no hole, between `offset` and `end`; (`end`, `end`) if there are none."""
    try:
        start = min(end, os.lseek(descriptor, offset, os.SEEK_DATA))
        return start, min(end, os.lseek(descriptor, start, os.SEEK_HOLE)) if start < end else end
    except OSError as error:
        if error.errno == errno.ENXIO:
            return end, end
        if error.errno in (errno.EINVAL, errno.EOPNOTSUPP):  # the file system knows of no holes
            return offset, end
        raise


@contextlib.contextmanager
def source_errors(place: str) -> Iterator[None]:
    """Turns an OSError of the source into a StagingError that says who is at fault."""
    try:
        yield
    except OSError as error:
        where = place if error.filename is None else os.fsdecode(error.filename)
        fault = "user" if error.errno in _USERS else "source"
        raise StagingError(one_line(f"{where} cannot be read: {why_failed(error)}"), fault) from error


def _kind(facts: os.stat_result) -> str:
    return next((words for is_kind, words in _KINDS if is_kind(facts.st_mode)), "no regular file")


def _path(file: File) -> str:
    return file.path


def open_source(place: str, options: dict[str, Any]) -> FolderSource:
    """The source at the path `place`; `options` are those of S3, and not used."""
    return FolderSource(place)
