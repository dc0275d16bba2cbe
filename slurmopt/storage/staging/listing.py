"""What a source contains: files, folders and links, with a fingerprint that changes when the source does."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property

CHUNK = 256 << 20
"""Bytes: the part of a file that is copied, hashed and recorded at once, so that large files have several threads and
an interrupted copy of them goes on."""


class SourceChanged(Exception):
    """A file of the source was changed, replaced or removed while it was copied. The argument is its path."""


@dataclass(frozen=True, slots=True)
class File:
    """A regular file of a source, or an object."""

    path: str
    """Relative to the source; "" if the source is a single file."""
    size: int
    stamp: str
    """Changes with the content: the modification time in nanoseconds, or the ETag of an object."""
    mtime_ns: int
    executable: bool = False
    sparse: bool = False
    """Whether it may have holes."""

    @property
    def chunks(self) -> int:
        """The number of chunks; 1 for an empty file."""
        return max(1, -(-self.size // CHUNK))

    def range(self, chunk: int) -> tuple[int, int]:
        """The first byte of a chunk, and the byte after its last."""
        return chunk * CHUNK, min(self.size, (chunk + 1) * CHUNK)


@dataclass(frozen=True)
class Listing:
    """The content of a source, in the order of the paths."""

    name: str
    """The name of the copy: that of the source."""
    files: tuple[File, ...]
    folders: tuple[str, ...] = ()
    """Relative to the source, parents before their children."""
    links: tuple[tuple[str, str], ...] = ()
    """Path and target, which stays inside the source."""
    is_folder: bool = True

    @cached_property
    def bytes(self) -> int:
        """The sum of the sizes of the files; holes count."""
        return sum(file.size for file in self.files)

    @cached_property
    def fingerprint(self) -> str:
        """The same for the same names, sizes, stamps and targets."""
        import hashlib  # ranks and launches import this module, and few of them stage

        digest = hashlib.sha256()
        for words in self._words():
            digest.update("\0".join(words).encode("utf-8", "surrogateescape") + b"\n")
        return digest.hexdigest()[:32]

    def _words(self) -> Iterable[tuple[str, ...]]:
        yield ("folder" if self.is_folder else "file", self.name)
        yield from (("f", file.path, str(file.size), file.stamp) for file in self.files)
        yield from (("d", path) for path in self.folders)
        yield from (("l", path, target) for path, target in self.links)
