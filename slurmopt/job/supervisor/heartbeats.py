"""Reads the heartbeats of all ranks of an attempt."""

from __future__ import annotations

import time

from slurmopt.job.supervisor.judge_attempt import Beats
from slurmopt.run_folder import heartbeat
from slurmopt.run_folder.layout import RunFolder

_SETTLE_SECONDS = 10.0


def settled(folder: RunFolder, attempt: int, ranks: int, step_exit: int) -> Beats:
    """The ranks' last heartbeats. On a network file system the last write of another node may appear late: it is waited
    for long if the step succeeded, so that it must come, and briefly otherwise."""
    deadline = time.monotonic() + (_SETTLE_SECONDS if step_exit == 0 else 1.0)
    while True:
        beats = read_all(folder, attempt)
        if len(beats) == ranks and all(beat.outcome for beat in beats.values()):
            return beats
        if time.monotonic() >= deadline:
            return beats
        time.sleep(0.2)


def read_all(folder: RunFolder, attempt: int) -> Beats:
    """The heartbeats of an attempt's ranks."""
    beats: Beats = {}
    for rank in folder.ranks_with_heartbeats(attempt):
        try:
            beat = heartbeat.read(folder.heartbeat(attempt, rank))
        except OSError:  # a stale NFS handle: the file was replaced just now; the next look finds the new one
            continue
        if beat is not None:
            beats[rank] = beat
    return beats
