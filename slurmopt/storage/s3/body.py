"""Request bodies that consist of uncopied pieces of memory."""

from __future__ import annotations

import base64
import io
from collections.abc import Iterator

try:
    from zlib_ng.zlib_ng import crc32
except ImportError:  # slower, with the same result
    from zlib import crc32

MIB = 1 << 20
SLICE = 1 * MIB
"""Bytes of one send: a socket's timeout covers a whole send, so slow connections need small ones."""


class Body(io.RawIOBase):
    """A file-like object for botocore, which checks and measures it; the transport sends its slices."""

    def __init__(self, pieces: list[memoryview]) -> None:
        self._pieces = pieces
        self._length = sum(piece.nbytes for piece in pieces)
        self._position = 0

    def __len__(self) -> int:
        return self._length

    def slices(self) -> Iterator[memoryview]:
        """The whole body, regardless of the read position."""
        for piece in self._pieces:
            for start in range(0, piece.nbytes, SLICE):
                yield piece[start : start + SLICE]

    def checksum(self) -> dict[str, str]:
        """The checksum that S3 verifies and stores: CRC-32, big endian, in base64."""
        crc = 0
        for piece in self._pieces:
            crc = crc32(piece, crc)
        text = base64.b64encode(crc.to_bytes(4, "big")).decode()
        return {"ChecksumAlgorithm": "CRC32", "ChecksumCRC32": text}

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._position

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        start = {io.SEEK_SET: 0, io.SEEK_CUR: self._position, io.SEEK_END: self._length}[whence]
        self._position = start + offset
        return self._position

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
        skip = self._position
        for piece in self._pieces:
            if skip < piece.nbytes:
                available = piece[skip : skip + len(buffer)]
                buffer[: available.nbytes] = available
                self._position += available.nbytes
                return available.nbytes
            skip -= piece.nbytes
        return 0
