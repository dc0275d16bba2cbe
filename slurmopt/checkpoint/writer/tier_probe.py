"""Tests a tier before the first step by writing, reading and deleting a small file."""

from __future__ import annotations

import mmap
import os
import re

from slurmopt.checkpoint.format.ledger import FOLDER
from slurmopt.checkpoint.format.manifest import Damaged
from slurmopt.checkpoint.format.rank_payload import Block, PayloadWriter, Place
from slurmopt.checkpoint.format.segments import extents, read_extent
from slurmopt.checkpoint.tiers import SMALL_SECONDS, Tier
from slurmopt.errors import StorageBroken
from slurmopt.storage.direct_io import ALIGNMENT
from slurmopt.storage.store import Store

_PREFIX = f"{FOLDER}probe-"
_PROBE = re.compile(_PREFIX + r"(\d{4,})-[0-9a-f]{8}\.bin")


def probe(tier: Tier, attempt: int) -> None:
    """Writes, reads, compares and deletes 4 KiB as a save does, and raises what a save would raise.

    The ledger must be open, so that its folder exists and remains.
    """
    store = tier.store(SMALL_SECONDS)
    # Probes of attempts that were killed.
    stale = [name for name in store.list(_PREFIX) if (match := _PROBE.fullmatch(name)) and int(match[1]) < attempt]
    key = f"{_PREFIX}{attempt:04d}-{os.urandom(4).hex()}.bin"
    try:
        _round_trip(store, key, tier.compression)
    except Damaged as error:
        raise StorageBroken(f"{store.place}: what was written there reads as something else ({error})") from error
    finally:
        store.delete([key, *stale])


def _round_trip(store: Store, key: str, encoding: str | None) -> None:
    memory = memoryview(mmap.mmap(-1, ALIGNMENT))
    memory[:8] = os.urandom(8)
    place = Place("probe", (0,), (ALIGNMENT,), 0, ALIGNMENT)
    writer = PayloadWriter(key, encoding, {})
    store.write(key, writer.pieces(iter([Block(memory, [(place, 0, ALIGNMENT)])])))
    part = writer.part()
    wanted = [(item, part.files[segment.file], segment) for item in part.items for segment in item.segments]
    for extent in extents(wanted):
        memory_read = memoryview(mmap.mmap(-1, max(ALIGNMENT, extent.length)))
        for _, _, raw in read_extent(store, extent, memory_read):
            if raw != memory:
                raise Damaged(f"{key} has other bytes")
