"""What the board keeps of one run between two looks, and whether the run must be read again."""

from __future__ import annotations

import os
import time
from collections import deque
from dataclasses import dataclass, field
from pathlib import Path

from slurmopt.board.rows.gpu_use import GpuUse
from slurmopt.run_folder.layout import RunFolder
from slurmopt.runs.status.query import Status, in_slurm

_HIDDEN_EVERY, _SILENT_EVERY = 15.0, 30.0
"""Seconds after which a run under way is read again: one that is not on the screen; one of which nothing changes."""
_CURVE = 64
"""Values of a metric."""


@dataclass
class Kept:
    """One run. It was judged at `judged` by an answer of Slurm of the time `asked`."""

    folder: RunFolder
    signature: tuple[int, ...] = ()
    judged: float = 0.0
    asked: float = -1.0
    attempt: int | None = None
    ended: bool = False
    in_slurm: bool = False
    job: str = ""
    curve: deque[tuple[int, float]] = field(default_factory=lambda: deque(maxlen=_CURVE))
    """Step and value of the shown metric."""
    _gpu: GpuUse | None = None

    def is_due(self, is_shown: bool, asked: float) -> bool:
        """Whether it must be read again, Slurm having been asked at `asked`."""
        if not self.signature:
            return True
        if not self.ended:
            since = time.monotonic() - self.judged
            if not is_shown:
                return since > _HIDDEN_EVERY
            if since > _SILENT_EVERY or (self.in_slurm and self.asked != asked):
                return True
        return self.stamps() != self.signature

    def stamps(self) -> tuple[int, ...]:
        """Differ where the journal or the heartbeat does; (0,) where there is no journal."""
        of_journal = stamp(self.folder.events) or (0,)
        if self.ended or self.attempt is None:
            return of_journal
        beat = self.folder.heartbeat(self.attempt, 0)
        return of_journal + (stamp(beat) or stamp(beat.parent))

    def take(self, status: Status, asked: float) -> None:
        """Notes what the run's status says of its next reading."""
        journal = status.journal
        attempt = journal.attempt.number if journal.attempt else None
        is_new, was_ended = attempt != self.attempt, self.ended
        self.attempt, self._gpu = attempt, None if is_new else self._gpu
        self.ended = journal.ended is not None and not journal.may_return
        self.in_slurm, self.job = in_slurm(journal), journal.job or ""
        self.judged, self.asked = time.monotonic(), asked
        if is_new or was_ended != self.ended:
            self.signature = self.stamps()

    def gpu_use(self, status: Status) -> tuple[float | None, ...]:
        """How busy the GPUs of a running attempt are."""
        if self.attempt is None or not status.alive:
            return ()
        if self._gpu is None:
            self._gpu = GpuUse(self.folder, self.attempt)
        return self._gpu.values()


def stamp(path: Path) -> tuple[int, ...]:
    """Changes when the file does; empty where there is none."""
    try:
        facts = os.stat(path)
    except OSError:
        return ()
    return facts.st_mtime_ns, facts.st_size, facts.st_ino
