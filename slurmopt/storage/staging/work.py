"""What has to be copied, what is there already, and whether there is room for the rest."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from slurmopt.errors import StagingError, one_line
from slurmopt.storage.filesystem.usage import usage_of
from slurmopt.storage.inspection import bytes_left_by_quota
from slurmopt.storage.staging.listing import File, Listing
from slurmopt.storage.staging.node_folder import node_errors
from slurmopt.storage.staging.record import Entry
from slurmopt.units import human_bytes

_BLOCK = 4096
Chunk = tuple[File, int]


@dataclass
class Work:
    """The chunks that are missing, and those that are there."""

    missing: list[Chunk] = field(default_factory=list)
    present: dict[tuple[str, int], Entry] = field(default_factory=dict)
    """Those that have the right size; their content was not read."""
    files: dict[str, File] = field(default_factory=dict)
    """The files of which a chunk is present."""
    stale: list[str] = field(default_factory=list)
    """Files of the record that an earlier version of the source had, and this one has not."""
    room: int = 0
    """Bytes that the disk must have for the missing chunks."""
    inodes: int = 0

    @property
    def bytes(self) -> int:
        """The size of the missing chunks."""
        return sum(length(file, chunk) for file, chunk in self.missing)

    def drop(self, path: str) -> None:
        """Makes all chunks of a file missing: it is damaged."""
        file = self.files.pop(path)
        for chunk in range(file.chunks):
            self.present.pop((path, chunk), None)
        self.missing = [pair for pair in self.missing if pair[0].path != path]
        self.missing += [(file, chunk) for chunk in range(file.chunks)]


def find_work(listing: Listing, data: str, entries: Mapping[tuple[str, int], Entry]) -> Work:
    """Compares the copy at `data` with the listing, by its record, and the sizes and times of its files. Raises
    StagingError if the disk fails."""
    work = Work(stale=sorted({path for path, _ in entries} - {file.path for file in listing.files}))
    is_new = not os.path.lexists(data)
    with node_errors(data):
        for file in listing.files:
            facts = None if is_new else _facts(os.path.join(data, file.path) if file.path else data)
            _compare(work, file, facts, entries)
        if is_new:
            work.inodes += len(listing.folders) + len(listing.links) + 2
    return work


def _compare(work: Work, file: File, facts: os.stat_result | None, entries: Mapping[tuple[str, int], Entry]) -> None:
    done = {} if facts is None or not stat.S_ISREG(facts.st_mode) else dict(_done(file, entries))
    is_whole = len(done) == file.chunks
    if facts is not None and is_whole and (facts.st_size, facts.st_mtime_ns) != (file.size, file.mtime_ns):
        done, is_whole = {}, False
    if done:
        work.files[file.path] = file
        work.present.update({(file.path, chunk): entry for chunk, entry in done.items()})
    if is_whole:
        return
    work.missing += [(file, chunk) for chunk in range(file.chunks) if chunk not in done]
    allocated = 0 if facts is None else facts.st_blocks * 512
    work.room += max(0, -(-file.size // _BLOCK) * _BLOCK - allocated)
    work.inodes += facts is None


def _done(file: File, entries: Mapping[tuple[str, int], Entry]) -> Iterator[tuple[int, Entry]]:
    for chunk in range(file.chunks):
        entry = entries.get((file.path, chunk))
        if entry is not None and (entry.size, entry.stamp) == (file.size, file.stamp):
            yield chunk, entry


def _facts(path: str) -> os.stat_result | None:
    try:
        return os.lstat(path)
    except (FileNotFoundError, NotADirectoryError):
        return None


def length(file: File, chunk: int) -> int:
    """The bytes of a chunk."""
    start, end = file.range(chunk)
    return end - start


def lack_of_room(place: str, into: str, room: int, inodes: int) -> StagingError | None:
    """The error if the disk of `into` has no room for so many bytes and inodes; None if it has."""
    with node_errors(into):
        usage = usage_of(into)
    left = bytes_left_by_quota(Path(into))
    free = usage.free_bytes if left is None else min(left, usage.free_bytes)
    if room <= free and (not usage.inodes or inodes <= usage.free_inodes):
        return None
    needs, has = f"{human_bytes(room)} more", f"{human_bytes(free)} free"
    if human_bytes(room) == human_bytes(free):
        needs, has = f"{room:,} bytes more", f"{free:,} free"
    if room <= free:
        needs, has = f"{inodes:,} files", f"room for {usage.free_inodes:,}"
    can_never = room > usage.bytes or bool(usage.inodes and inodes > usage.inodes)
    why = (
        f"its disk has {human_bytes(usage.bytes)}: stage less, or choose a larger disk"
        if can_never
        else "other files fill it, or a quota limits it"
    )
    text = f"no room for {place}: it needs {needs}, and {into} has {has}; {why}"
    return StagingError(one_line(text), "user" if can_never else "node")
