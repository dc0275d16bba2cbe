"""The seam to storage: a folder or a bucket's prefix, seen as keys and bytes."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol


class Store(Protocol):
    """Keys are relative paths with `/`. What a call has written is durable when it returns.

    Errors: FileNotFoundError where `key` is not there; StorageError, one line, for everything else that storage answers
    (no space, no permission, no such bucket, deadline over).
    """

    @property
    def place(self) -> str:
        """The root as a person would name it: a path or an s3:// URL."""
        ...

    def put_new(self, key: str, data: bytes) -> bool:
        """Puts a small file, whole or not at all; False where `key` exists already, whoever put it."""
        ...

    def get(self, key: str, most: int | None = None) -> bytes:
        """A small file, whole. ValueError, before a byte is read, where it has more than `most` bytes."""
        ...

    def size(self, key: str) -> int:
        """Bytes of `key`."""
        ...

    def list(self, prefix: str) -> list[str]:
        """Every key that starts with `prefix`, sorted."""
        ...

    def delete(self, keys: Iterable[str]) -> None:
        """Removes what is there of `keys`; one that is not there is no error."""
        ...

    def abort_abandoned(self, prefix: str) -> int:
        """Removes what writes below `prefix` left that never ended; how many that were. Only the caller can know that
        nobody still writes there."""
        ...

    def write(self, key: str, pieces: Iterable[memoryview]) -> None:
        """Puts a large file made of `pieces` in order, each taken from the iterator only when there is room for it.

        Nobody else writes `key` (its name is unique); a failure leaves nothing that `list` would call complete.
        """
        ...

    def read_into(self, key: str, offset: int, buffer: memoryview) -> None:
        """Fills `buffer` with the bytes from `offset` on; StorageError where the file is shorter."""
        ...
