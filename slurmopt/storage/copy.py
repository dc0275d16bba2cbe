"""Copies a file from one store to another, several ranges at a time."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor

from slurmopt.storage.memory import staging
from slurmopt.storage.store import Store

CHUNK_BYTES = 16 << 20
_READERS = 4


def copy(source: Store, target: Store, key: str, size: int) -> None:
    """Copies `key`, of `size` bytes, holding at most a few chunks of 16 MiB in memory. Raises what the stores raise."""
    with ThreadPoolExecutor(_READERS, thread_name_prefix="slurmopt-copy") as pool:
        target.write(key, _chunks(source, key, size, pool))


def _chunks(source: Store, key: str, size: int, pool: ThreadPoolExecutor) -> Iterator[memoryview]:
    ahead: deque[Future[memoryview]] = deque()
    for start in range(0, size, CHUNK_BYTES):
        ahead.append(pool.submit(_chunk, source, key, start, min(CHUNK_BYTES, size - start)))
        if len(ahead) > _READERS:
            yield ahead.popleft().result()
    while ahead:
        yield ahead.popleft().result()


def _chunk(source: Store, key: str, start: int, length: int) -> memoryview:
    memory = staging(length)[:length]
    source.read_into(key, start, memory)
    return memory
