"""Checksums of chunks: XXH3 where this Python has xxhash, else CRC-32."""

from __future__ import annotations

import zlib
from typing import Protocol

try:
    import xxhash
except ImportError:  # a container or `task.python`: the copy runs in the rank's own Python
    xxhash = None  # type: ignore[assignment]

ALGORITHM = "crc32" if xxhash is None else "xxh3_128"
"""The name that the record of a copy has for it."""
_ZEROS = memoryview(bytes(1 << 20))


class Digest(Protocol):
    """A checksum of what it was updated with."""

    def update(self, data: memoryview, /) -> None: ...

    def hexdigest(self) -> str: ...


class _Crc32:
    def __init__(self) -> None:
        self._value = 0

    def update(self, data: memoryview, /) -> None:
        self._value = zlib.crc32(data, self._value)

    def hexdigest(self) -> str:
        return f"{self._value:08x}"


def new_digest() -> Digest:
    """An empty checksum."""
    return _Crc32() if xxhash is None else xxhash.xxh3_128()


def add_zeros(digest: Digest, count: int) -> None:
    """Adds a hole of `count` bytes."""
    while count:
        piece = _ZEROS[: min(count, len(_ZEROS))]
        digest.update(piece)
        count -= len(piece)
