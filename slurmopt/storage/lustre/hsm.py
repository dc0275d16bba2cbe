"""Files of an FSx data repository whose content is still in S3 only: finds them, and has them loaded."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field

from slurmopt.storage.lustre import commands
from slurmopt.storage.lustre.commands import LustreError, Run
from slurmopt.storage.lustre.tree import Entry

_AT_ONCE = 200
"""Paths of one call of lfs; a command line has room for some thousand."""
_FIRST_PAUSE, _LONGEST_PAUSE = 0.1, 5.0
STALLED_SECONDS = 30.0
"""How long a file may be neither loaded nor being loaded, until it counts as failed."""
Done = Callable[[int], None]


@dataclass
class Unloaded:
    """What was found below a folder."""

    files: list[Entry] = field(default_factory=list)
    """In S3 only."""
    loaded: int = 0
    failed: dict[str, str] = field(default_factory=dict)
    """Path → why its state is not known, or that its copy is lost."""

    @property
    def bytes(self) -> int:
        """Of the files that are in S3 only."""
        return sum(entry.bytes for entry in self.files)


def find_unloaded(files: Iterable[Entry], run: Run = subprocess.run, done: Done = lambda count: None) -> Unloaded:
    """Asks for the state of each file. Raises LustreError where lfs cannot be called. `done` gets numbers of files."""
    found = Unloaded()
    for batch in _batches(files):
        states = commands.hsm_states([entry.path for entry in batch], run)
        for entry in batch:
            _sort(found, entry, states[entry.path])
        done(len(batch))
    return found


def _sort(found: Unloaded, entry: Entry, state: frozenset[str] | str) -> None:
    if isinstance(state, str):
        found.failed[entry.path] = state
    elif "released" not in state:
        found.loaded += 1
    elif "lost_from_hsm" in state:
        found.failed[entry.path] = "its copy in S3 is lost"
    else:
        found.files.append(entry)


class Loading:
    """Loads files, at most `at_once` at a time."""

    def __init__(self, files: Iterable[Entry], at_once: int, run: Run = subprocess.run) -> None:
        self._waiting = list(reversed([*files]))
        self._at_once, self._run = at_once, run
        self._active: dict[str, Entry] = {}
        self._idle_since: dict[str, float] = {}
        self.failed: dict[str, str] = {}
        self.loaded_files = self.loaded_bytes = 0

    @property
    def left(self) -> int:
        """The number of files that are neither loaded nor failed."""
        return len(self._waiting) + len(self._active)

    def run(self, seconds: float, done: Done = lambda count: None) -> bool:
        """Loads all; returns False where that takes longer than `seconds`. `done` gets numbers of bytes.

        What was requested by then is loaded all the same: the file system does it. Raises LustreError where a request
        is refused.
        """
        end, pause = time.monotonic() + seconds, _FIRST_PAUSE
        while self.left:
            self._request()
            before = self.left
            self._look(done)
            pause = _FIRST_PAUSE if self.left < before else min(2 * pause, _LONGEST_PAUSE)
            if not self.left:
                break
            if time.monotonic() >= end:
                return False
            time.sleep(min(pause, max(0.0, end - time.monotonic())))
        return True

    def _request(self) -> None:
        new: list[Entry] = []
        while self._waiting and len(self._active) + len(new) < self._at_once:
            new.append(self._waiting.pop())
        for batch in _batches(new):
            try:
                commands.hsm_restore([entry.path for entry in batch], self._run)
            except LustreError as error:
                self._request_each(batch, error)
            else:
                self._active |= {entry.path: entry for entry in batch}

    def _request_each(self, batch: list[Entry], error: LustreError) -> None:
        """One file may be the reason for which a request of many was refused."""
        if "ermission denied" in str(error) or "not permitted" in str(error) or "not installed" in str(error):
            raise error
        for entry in batch:
            try:
                commands.hsm_restore([entry.path], self._run)
                self._active[entry.path] = entry
            except LustreError as reason:
                self.failed[entry.path] = str(reason)

    def _look(self, done: Done) -> None:
        for batch in _batches([*self._active.values()]):
            states = commands.hsm_states([entry.path for entry in batch], self._run)
            still = [
                entry for entry in batch if isinstance(states[entry.path], str) or "released" in states[entry.path]
            ]
            for entry in batch:
                state = states[entry.path]
                if isinstance(state, str):
                    self._end(entry, state)
                elif "released" not in state:
                    self._end(entry, None)
                    done(entry.bytes)
            self._look_at([entry for entry in still if entry.path in self._active])

    def _look_at(self, unloaded: list[Entry]) -> None:
        """Notes since when nothing has been going on: a restore that fails leaves no other trace."""
        if not unloaded:
            return
        actions = commands.hsm_actions([entry.path for entry in unloaded], self._run)
        for entry in unloaded:
            action = actions[entry.path]
            if isinstance(action, str):
                self._end(entry, action)
            elif "RESTORE" in action:
                self._idle_since.pop(entry.path, None)
            else:
                now = time.monotonic()
                if now - self._idle_since.setdefault(entry.path, now) >= STALLED_SECONDS:
                    self._end(entry, "it was not loaded: the object may be gone, or the link to S3 broken")

    def _end(self, entry: Entry, reason: str | None) -> None:
        del self._active[entry.path]
        if reason is not None:
            self.failed[entry.path] = reason
            return
        self.loaded_files += 1
        self.loaded_bytes += entry.bytes


def _batches(entries: Iterable[Entry]) -> Iterator[list[Entry]]:
    """Shares that fit a command line, of names up to half of its 128 KiB at the least."""
    batch: list[Entry] = []
    length = 0
    for entry in entries:
        size = len(os.fsencode(entry.path)) + 1
        if batch and (len(batch) >= _AT_ONCE or length + size > 64 * 1024):
            yield batch
            batch, length = [], 0
        batch.append(entry)
        length += size
    if batch:
        yield batch
