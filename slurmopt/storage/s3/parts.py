"""Divides pieces of memory into the parts of a multipart upload."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from slurmopt.storage.s3.body import MIB

PART = 32 * MIB
"""Bytes of the first parts."""


def part_size(number: int) -> int:
    """Bytes of part `number`, counted from 1; doubles every 1,000 parts.

    S3 accepts 10,000 parts of an object, whose size is not known in advance; starting at 32 MiB these hold 31 TiB.
    """
    return PART << ((number - 1) // 1000)


def parts(pieces: Iterable[memoryview]) -> Iterator[list[memoryview]]:
    """Regroups `pieces` into parts without copying, taking a piece only when needed. Yields at least one part."""
    number, part, room = 1, list[memoryview](), part_size(1)
    for piece in pieces:
        rest = piece.cast("B")
        while rest.nbytes:
            if not room:
                yield part
                number, part = number + 1, []
                room = part_size(number)
            part.append(rest[:room])
            room -= part[-1].nbytes
            rest = rest[part[-1].nbytes :]
    yield part
