"""Reads ranges of objects into memory, large ones in parallel."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

from slurmopt.errors import StorageError
from slurmopt.storage.s3 import parallel
from slurmopt.storage.s3.body import MIB
from slurmopt.storage.s3.bucket import S3Bucket
from slurmopt.storage.s3.transport import Operation

RANGE = 16 * MIB
BLOCK = 1 * MIB


def fill(store: S3Bucket, current: Operation, key: str, offset: int, buffer: memoryview) -> None:
    """Fills `buffer` with the bytes of `key` from `offset` on."""
    if len(buffer) <= RANGE:
        _range(store, key, offset, buffer)
        return
    parallel.run(current, _ranges(store, key, offset, buffer))


def _ranges(store: S3Bucket, key: str, offset: int, buffer: memoryview) -> Iterator[Callable[[], None]]:
    for start in range(0, len(buffer), RANGE):
        yield partial(_range, store, key, offset + start, buffer[start : start + RANGE])


def _range(store: S3Bucket, key: str, offset: int, buffer: memoryview) -> None:
    """Reads one range; a retry continues where the failed attempt stopped."""
    done = 0

    def fetch() -> None:
        nonlocal done
        wanted = f"bytes={offset + done}-{offset + len(buffer) - 1}"
        answer = store.request("get_object", key, Range=wanted)
        _check(store, key, answer, offset, len(buffer), done)
        while block := answer["Body"].read(BLOCK):
            buffer[done : done + len(block)] = block
            done += len(block)

    if len(buffer):
        store.attempt(fetch, key)


def _check(store: S3Bucket, key: str, answer: dict[str, object], offset: int, length: int, done: int) -> None:
    expected = f"bytes {offset + done}-{offset + length - 1}/"
    returned = str(answer.get("ContentRange", ""))
    if not returned.startswith(expected):
        raise StorageError(
            f"{store.url(key)}: is too short to hold {length} bytes from {offset} on (has {returned or 'no ranges'})"
        )
