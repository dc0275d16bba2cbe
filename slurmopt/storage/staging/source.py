"""The protocol of what can be staged, and the table of its kinds."""

from __future__ import annotations

import importlib
from contextlib import AbstractContextManager
from typing import Any, Protocol

from slurmopt.storage.staging.listing import File, Listing


class Reader(Protocol):
    """One file of a source, opened for one thread."""

    def read_into(self, offset: int, buffer: memoryview) -> int:
        """Fills the start of `buffer` from `offset` on; returns the number of bytes, 0 at the end of the file."""
        ...

    def next_data(self, offset: int, end: int) -> tuple[int, int]:
        """The next bytes that are no hole, from `offset` to `end` at most: (`end`, `end`) if there are none."""
        ...


class Source(Protocol):
    """A folder, a file, or a prefix of a bucket."""

    place: str
    """As users write it."""
    identity: str
    """The same for the same place, however it is written."""
    threads: int
    """How many threads copy it best."""

    def holds(self, path: str) -> bool:
        """Whether `path`, which need not exist, lies in it: a copy there would become a part of it."""
        ...

    def listing(self) -> Listing:
        """Reads what it contains. Raises StagingError."""
        ...

    def open(self, file: File) -> AbstractContextManager[Reader]:
        """Opens a file. Raises SourceChanged, when it is opened or closed, if it is not the listed one any more."""
        ...


def is_s3(place: str) -> bool:
    """Whether `place` names a bucket."""
    return place.startswith("s3://")


def open_source(place: str, s3: dict[str, Any] | None = None) -> Source:
    """The source at `place`: an absolute path, or s3://BUCKET/PREFIX with the options `s3` of a S3Store.

    Raises StagingError where it does not exist, and StorageError where boto3 is missing."""
    module = "slurmopt.storage.staging.s3_source" if is_s3(place) else "slurmopt.storage.staging.folder_source"
    source: Source = importlib.import_module(module).open_source(place, s3 or {})
    return source
