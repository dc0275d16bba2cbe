"""The Store protocol: a folder, or a prefix in a bucket, as keys and bytes."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol


class Store(Protocol):
    """Where checkpoints are stored. Keys are relative paths with `/`; a write is durable when the call returns.

    Raises FileNotFoundError where `key` does not exist, and StorageError, with a message of one line, for every other
    failure (no space, no permission, no such bucket, deadline exceeded).
    """

    @property
    def place(self) -> str:
        """The root as users write it: a path or an s3:// URL."""
        ...

    def put_new(self, key: str, data: bytes) -> bool:
        """Creates a small file atomically; returns False where `key` exists already."""
        ...

    def get(self, key: str, most: int | None = None) -> bytes:
        """The content of a small file. ValueError, before anything is read, where it has more than `most` bytes."""
        ...

    def size(self, key: str) -> int:
        """The size of `key` in bytes."""
        ...

    def list(self, prefix: str) -> list[str]:
        """Every key that starts with `prefix`, sorted."""
        ...

    def delete(self, keys: Iterable[str]) -> None:
        """Removes `keys`; a missing key is not an error."""
        ...

    def abort_abandoned(self, prefix: str) -> int:
        """Removes what interrupted writes below `prefix` left, and returns how many there were.

        The caller must ensure that nobody is writing there.
        """
        ...

    def write(self, key: str, pieces: Iterable[memoryview]) -> None:
        """Writes a large file from `pieces` in order; takes the next piece only when it can be sent.

        `key` is unique to the caller. After a failure `list` does not show `key`.
        """
        ...

    def read_into(self, key: str, offset: int, buffer: memoryview) -> None:
        """Fills `buffer` with the bytes of `key` from `offset` on; StorageError where the file is too short."""
        ...
