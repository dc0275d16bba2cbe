"""A request's body made of pieces of memory that are never copied, and how pieces become parts."""

from __future__ import annotations

import base64
import io
from collections.abc import Iterable, Iterator

try:
    from zlib_ng.zlib_ng import crc32
except ImportError:  # beside a boto3 that was there already: slower, and the same
    from zlib import crc32

MIB = 1 << 20
SLICE = 1 * MIB
"""What one send is given: a socket's timeout counts for the whole of it, so that slow lines are no failure."""


class Body(io.RawIOBase):
    """Looks like a file to botocore, which checks and measures it; the transport sends its slices."""

    def __init__(self, pieces: list[memoryview]) -> None:
        self._pieces = pieces
        self._length = sum(piece.nbytes for piece in pieces)
        self._position = 0

    def __len__(self) -> int:
        return self._length

    def slices(self) -> Iterator[memoryview]:
        """The whole body, whatever was read before."""
        for piece in self._pieces:
            for start in range(0, piece.nbytes, SLICE):
                yield piece[start : start + SLICE]

    def checksum(self) -> dict[str, str]:
        """What S3 compares with the bytes that it got, and keeps: CRC-32, big endian, in base64."""
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
                found = piece[skip : skip + len(buffer)]
                buffer[: found.nbytes] = found
                self._position += found.nbytes
                return found.nbytes
            skip -= piece.nbytes
        return 0


def part_size(number: int, first: int) -> int:
    """Bytes of part `number`, counted from 1: doubled after each 1,000 parts.

    S3 takes 10,000 parts of an object whose size nobody knows beforehand; from 16 MiB on these hold 16 TiB.
    """
    return first << ((number - 1) // 1000)


def parts(pieces: Iterable[memoryview], first: int) -> Iterator[list[memoryview]]:
    """Joins and cuts `pieces` to parts, without a copy; takes no piece before it is needed. At least one part."""
    number, part, room = 1, list[memoryview](), part_size(1, first)
    for piece in pieces:
        rest = piece.cast("B")
        while rest.nbytes:
            if not room:
                yield part
                number, part = number + 1, []
                room = part_size(number, first)
            part.append(rest[:room])
            room -= part[-1].nbytes
            rest = rest[part[-1].nbytes :]
    yield part
