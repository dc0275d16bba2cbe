"""Copies and verifies chunks, several at a time, with a buffer of 256 KiB for each thread."""

from __future__ import annotations

import contextlib
import os
import shutil
import stat
import threading
from collections import Counter
from collections.abc import Callable, Iterator

from slurmopt.errors import StagingError, one_line
from slurmopt.storage.staging.folder_source import next_data
from slurmopt.storage.staging.hashing import Digest, add_zeros, new_digest
from slurmopt.storage.staging.listing import File, Listing
from slurmopt.storage.staging.node_folder import node_errors
from slurmopt.storage.staging.record import Record
from slurmopt.storage.staging.source import Reader, Source
from slurmopt.storage.staging.work import Chunk, Work

_BUFFER = 256 << 10
"""Bytes. Larger ones do not fit into the cache of a core, which costs more than the calls that they save."""
_WRITE = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
_TRIES = 2
"""Of a chunk that the disk returns with other content than was written."""


class _Ended(Exception):
    """Another thread has failed, or was interrupted."""


Tell = Callable[[int], None]
"""Is called with numbers of bytes that were copied or verified, by any thread. What it raises ends the copy."""


class Copying:
    """Copies the missing chunks of a source to `data`."""

    def __init__(self, source: Source, data: str, record: Record, work: Work, read_back: bool, tell: Tell) -> None:
        """`read_back`: each chunk is written to the disk, read from it and compared."""
        self._source, self._data, self._record, self._tell = source, data, record, tell
        self._read_back = read_back
        self._chunks = work.missing
        self._left = Counter(file.path for file, _ in work.missing if file.chunks > 1)
        self._lock = threading.Lock()
        self._errors: list[BaseException] = []
        self._began = {file.path for file in work.files.values()}
        """Large files that are there, and go on."""

    def run(self) -> None:
        """Copies all. Raises StagingError, SourceChanged, and what `tell` raises; what is complete by then is
        recorded."""
        each_chunk(self._source.threads, self._chunks, self._copy, self._errors)

    def _copy(self, chunk: Chunk, buffer: memoryview) -> None:
        file, number = chunk
        path = os.path.join(self._data, file.path) if file.path else self._data
        with self._opened(file, path) as descriptor:
            digest = self._transfer(file, number, descriptor, path, buffer)
            self._finish(file, descriptor, path)
        with node_errors(path):
            self._record.add(file, number, digest)

    def _transfer(self, file: File, number: int, descriptor: int, path: str, buffer: memoryview) -> str:
        start, end = file.range(number)
        for _ in range(_TRIES):
            with self._source.open(file) as reader:
                digest = self._write(file, reader, descriptor, path, buffer, start, end)
            if not self._read_back or _read_again(descriptor, path, buffer, start, end) == digest:
                return digest
        raise StagingError(one_line(f"{path}: the disk returns other data than was written"), "node")

    def _write(
        self, file: File, reader: Reader, descriptor: int, path: str, buffer: memoryview, start: int, end: int
    ) -> str:
        digest, at = new_digest(), start
        while at < end:
            data, until = reader.next_data(at, end) if file.sparse else (at, end)
            add_zeros(digest, data - at)
            at = data
            while at < until:
                count = reader.read_into(at, buffer[: min(_BUFFER, until - at)])
                if count == 0:
                    raise StagingError(one_line(f"{path}: the source ended too early"), "source")
                piece = buffer[:count]
                digest.update(piece)
                with node_errors(path):
                    _write_all(descriptor, piece, at)
                at += count
                if self._errors:  # a chunk of a slow source may take minutes
                    raise _Ended
                self._tell(count)
        return digest.hexdigest()

    @contextlib.contextmanager
    def _opened(self, file: File, path: str) -> Iterator[int]:
        with node_errors(path):
            descriptor = self._open(file, path)
        try:
            yield descriptor
        finally:
            os.close(descriptor)

    def _open(self, file: File, path: str) -> int:
        """Opens the file to be written. What an interrupted copy left is replaced, unless it goes on."""
        with self._lock if file.chunks > 1 else contextlib.nullcontext():
            if file.path in self._began:
                return os.open(path, _WRITE, 0o600)
            self._began.add(file.path) if file.chunks > 1 else None
            try:
                return os.open(path, _WRITE | os.O_EXCL, 0o600)
            except FileExistsError:
                remove(path)
                return os.open(path, _WRITE | os.O_EXCL, 0o600)

    def _finish(self, file: File, descriptor: int, path: str) -> None:
        """Gives a complete file its size, time and mode: it is read-only, because jobs share it."""
        if file.chunks > 1:
            with self._lock:
                self._left[file.path] -= 1
                if self._left[file.path]:
                    return
        with node_errors(path):
            if file.sparse or file.chunks > 1:
                os.ftruncate(descriptor, file.size)
            os.fchmod(descriptor, 0o500 if file.executable else 0o400)
            os.utime(descriptor, ns=(file.mtime_ns, file.mtime_ns))


def clear(listing: Listing, data: str) -> None:
    """Removes from the copy what only an earlier version of the source had. Raises StagingError."""
    parent, name = os.path.split(data)
    with node_errors(data):
        for other in os.listdir(parent):
            if other != name:  # the source was staged by another name
                remove(os.path.join(parent, other))
        if listing.is_folder and os.path.isdir(data) and not os.path.islink(data):
            _remove_others(listing, data)


def _remove_others(listing: Listing, data: str) -> None:
    others = {file.path for file in listing.files} | {path for path, _ in listing.links}
    folders, level = set(listing.folders), [""]
    while level:
        folder = level.pop()
        with os.scandir(os.path.join(data, folder)) as found:
            here = [(os.path.join(folder, each.name), each.is_dir(follow_symlinks=False)) for each in found]
        for path, is_folder in here:
            if path not in (folders if is_folder else others):
                remove(os.path.join(data, path))
            elif is_folder:
                level.append(path)


def prepare(listing: Listing, data: str) -> None:
    """Makes the folders and links of the copy. Raises StagingError."""
    with node_errors(data):
        for folder in ("", *listing.folders) if listing.is_folder else ():
            _make_folder(os.path.join(data, folder) if folder else data)
        for path, target in listing.links:
            _make_link(os.path.join(data, path), target)


def _make_folder(path: str) -> None:
    try:
        os.mkdir(path, 0o700)
    except FileExistsError:
        if not stat.S_ISDIR(os.lstat(path).st_mode):
            os.unlink(path)
            os.mkdir(path, 0o700)


def _make_link(path: str, target: str) -> None:
    with contextlib.suppress(OSError):
        if os.readlink(path) == target:
            return
    remove(path)
    os.symlink(target, path)


def remove(path: str) -> None:
    """Removes a file, a link or a whole folder; nothing, if nothing is there."""
    try:
        os.unlink(path)
    except IsADirectoryError:
        shutil.rmtree(path)
    except (FileNotFoundError, NotADirectoryError):
        return


def damaged(work: Work, data: str, threads: int, tell: Tell) -> list[str]:
    """The files whose present chunks have another checksum than recorded, or cannot be read. Raises what `tell`
    raises."""
    found: set[str] = set()

    def check(chunk: Chunk, buffer: memoryview) -> None:
        file, number = chunk
        path = os.path.join(data, file.path) if file.path else data
        start, end = file.range(number)
        try:
            descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
            try:
                digest = _read_again(descriptor, path, buffer, start, end)
            finally:
                os.close(descriptor)
        except (OSError, StagingError):
            digest = ""
        if digest != work.present[file.path, number].digest:
            found.add(file.path)
        tell(end - start)

    each_chunk(threads, [(work.files[path], number) for path, number in work.present], check, [])
    return sorted(found)


def _read_again(descriptor: int, path: str, buffer: memoryview, start: int, end: int) -> str:
    """The checksum of what the disk has, not of what memory still has of it."""
    with node_errors(path):
        os.fdatasync(descriptor)
        os.posix_fadvise(descriptor, start, end - start, os.POSIX_FADV_DONTNEED)
        digest, at = new_digest(), start
        while at < end:
            data, until = next_data(descriptor, at, end)
            add_zeros(digest, data - at)
            at = _digest_data(digest, descriptor, buffer, data, until)
            if at < until:
                return ""
    return digest.hexdigest()


def _digest_data(digest: Digest, descriptor: int, buffer: memoryview, at: int, until: int) -> int:
    while at < until:
        count = os.preadv(descriptor, [buffer[: min(_BUFFER, until - at)]], at)
        if count == 0:
            break
        digest.update(buffer[:count])
        at += count
    return at


def _write_all(descriptor: int, piece: memoryview, offset: int) -> None:
    while piece:
        count = os.pwrite(descriptor, piece, offset)
        piece, offset = piece[count:], offset + count


def each_chunk(
    threads: int, chunks: list[Chunk], work: Callable[[Chunk, memoryview], None], errors: list[BaseException]
) -> None:
    """Calls `work` for each chunk, with a buffer of the thread's own. The first error is raised; the others see it in
    `errors`, and end."""
    source, lock = iter(chunks), threading.Lock()

    def run() -> None:
        buffer = memoryview(bytearray(_BUFFER))
        while not errors:
            with lock:
                chunk = next(source, None)
            if chunk is None:
                return
            try:
                work(chunk, buffer)
            except BaseException as error:  # noqa: BLE001 - raised again in the thread that waits
                errors.append(error)

    workers = [
        threading.Thread(target=run, name="slurmopt-stage", daemon=True) for _ in range(min(threads, len(chunks)))
    ]
    for worker in workers:
        worker.start()
    try:
        for worker in workers:
            worker.join()
    except BaseException as error:  # noqa: BLE001 - an interrupt: raised below, once no thread writes any more
        errors.append(error)
        for worker in workers:
            worker.join()
    if errors:
        raise errors[0]
