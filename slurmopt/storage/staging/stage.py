"""Stages one source on this node: the order of what happens to a copy."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from dataclasses import dataclass, replace

from slurmopt.errors import StagingError, one_line
from slurmopt.storage.staging.copying import Copying, clear, damaged, prepare
from slurmopt.storage.staging.listing import Listing, SourceChanged
from slurmopt.storage.staging.node_folder import Copy, choose, node_errors, open_root, remove_one_unused, remove_unused
from slurmopt.storage.staging.node_folder import report_progress as report
from slurmopt.storage.staging.record import Head, Record, read, this_boot
from slurmopt.storage.staging.source import Source
from slurmopt.storage.staging.work import Work, find_work, lack_of_room, length
from slurmopt.units import human_bytes, human_seconds

SIZE, CHECKSUM = "size", "checksum"
VERIFY = (SIZE, CHECKSUM)
_ROUNDS = 3
"""How often a copy begins again because the source changed meanwhile."""
_TELL_SECONDS, _WAIT_SECONDS = 1.0, 0.5
Progress = Callable[[str], None]
"""Is called about once a second with what happens, in words. What it raises ends the staging."""


@dataclass(frozen=True)
class Staged:
    """A staged source, which this process uses until it leaves `copy`."""

    copy: Copy
    path: str
    """Where the copy is."""
    files: int
    bytes: int
    """Of the whole source."""
    copied_files: int
    """Of these, what had to be copied now."""
    copied_bytes: int
    seconds: float
    removed: list[str]
    """The sources of other copies that were removed, because nobody used them."""

    def account(self, place: str) -> str:
        """What was done, in one line."""
        rate = f", {human_bytes(self.copied_bytes / self.seconds)}/s" if self.copied_bytes and self.seconds else ""
        copied = "nothing had to be copied"
        if self.copied_files:
            copied = f"{_files(self.copied_files, self.copied_bytes)} copied"
        gone = f"; removed copies that nobody used, of {', '.join(self.removed)}" if self.removed else ""
        whole = f"{_files(self.files, self.bytes)}, of {place}: at {self.path}"
        return one_line(f"{whole}; {copied}, {human_seconds(self.seconds)}{rate}{gone}")


def _files(count: int, size: int) -> str:
    return f"{count:,} file{'' if count == 1 else 's'}, {human_bytes(size)}"


def stage(source: Source, into: str, verify: str, keep: bool, progress: Progress) -> Staged:
    """Makes the copy of `source` below the folder `into` complete, and uses it.

    `verify`: `size` compares sizes and times of what is there already; `checksum` reads all of it, and reads each new
    chunk back from the disk. `keep`: the copy stays when nobody uses it any more. Raises StagingError, and what
    `progress` raises; what is complete by then stays for the next call.
    """
    began = time.monotonic()
    if source.holds(os.path.join(into, "copies")):
        raise StagingError(one_line(f"{into} lies in the source {source.place}; stage into another folder"), "user")
    root = open_root(into)
    removed: list[str] = []
    for _ in range(_ROUNDS):
        progress(f"listing {source.place}")
        listing = source.listing()
        copy = choose(root, Head(source.identity, listing.fingerprint, keep, this_boot()))
        try:
            removed += remove_unused(root)
            work = _Staging(source, listing, copy, verify == CHECKSUM, keep, progress, removed).run()
        except SourceChanged:
            copy.leave()
            continue
        except BaseException:
            copy.leave()
            raise
        files = len({file.path for file, _ in work.missing})
        seconds = time.monotonic() - began
        path = copy.data(listing.name)
        return Staged(copy, path, len(listing.files), listing.bytes, files, work.bytes, seconds, removed)
    raise StagingError(
        one_line(f"{source.place} changes while it is copied; stage it when nobody writes there"), "user"
    )


class _Staging:
    """One round, with one listing."""

    def __init__(
        self,
        source: Source,
        listing: Listing,
        copy: Copy,
        checks: bool,
        keep: bool,
        progress: Progress,
        removed: list[str],
    ) -> None:
        self._source, self._listing, self._copy, self._checks, self._keep = source, listing, copy, checks, keep
        self._progress, self._removed = progress, removed
        self._data = copy.data(listing.name)

    def run(self) -> Work:
        """Returns what had to be copied."""
        with self._copy.alone(self._wait) as lock:
            head, entries = read(self._copy.path)
            if head is None:
                raise StagingError(one_line(f"{self._copy.path} was removed by somebody else"), "node")
            if not head.cleared:
                clear(self._listing, self._data)
            work = find_work(self._listing, self._data, entries)
            if work.present and (self._checks or head.boot != this_boot()):
                self._verify(work, lock)
            if work.missing or not os.path.lexists(self._data):
                self._make_room(work)
            now = replace(head, keep=head.keep or self._keep, boot=this_boot(), cleared=True)
            prepare(self._listing, self._data)
            if work.missing or work.stale or now != head:
                self._copy_missing(work, now, lock)
        return work

    def _wait(self, reported: str) -> None:
        self._progress(f"another job stages it here: {reported or self._source.place}")
        time.sleep(_WAIT_SECONDS)

    def _verify(self, work: Work, lock: int) -> None:
        total = sum(length(work.files[path], number) for path, number in work.present)
        meter = _Meter("verifying", self._source.place, total, self._progress, lock)
        for path in damaged(work, self._data, self._source.threads, meter.add):
            work.drop(path)

    def _make_room(self, work: Work) -> None:
        """Raises StagingError if the disk lacks room, also without the copies that nobody uses."""
        root = self._copy.root
        while (error := lack_of_room(self._source.place, root, work.room, work.inodes)) is not None:
            if (gone := remove_one_unused(root)) is None:
                raise error
            self._removed.append(gone)

    def _copy_missing(self, work: Work, head: Head, lock: int) -> None:
        with node_errors(self._copy.path):
            record = Record(self._copy.path, head, work.present)
        try:
            meter = _Meter("staging", self._source.place, work.bytes, self._progress, lock)
            Copying(self._source, self._data, record, work, self._checks, meter.add).run()
        finally:
            with node_errors(self._copy.path):
                record.close()


class _Meter:
    """Counts bytes, and tells about once a second how far it is."""

    def __init__(self, what: str, place: str, total: int, progress: Progress, lock: int) -> None:
        self._what, self._place, self._total, self._progress, self._lock = what, place, total, progress, lock
        self._done = 0
        self._began = self._told = time.monotonic()
        self._told_bytes = 0

    def add(self, count: int) -> None:
        """Is called by all threads; a count that two of them lose between each other changes a percentage little."""
        self._done += count
        now = time.monotonic()
        if now - self._told < _TELL_SECONDS:
            return
        rate = (self._done - self._told_bytes) / (now - self._told)
        self._told, self._told_bytes = now, self._done
        share = 100 * self._done // max(1, self._total)
        text = f"{self._what} {self._place}: {share} % of {human_bytes(self._total)}, {human_bytes(rate)}/s"
        report(self._lock, text)
        self._progress(text)
