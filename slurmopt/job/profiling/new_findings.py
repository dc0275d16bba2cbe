"""Looks for findings in what the sampler of this node has measured of the training."""

from __future__ import annotations

from collections.abc import Mapping

from slurmopt.errors import StorageError
from slurmopt.ledger.findings.live import live_findings
from slurmopt.run_folder.heartbeat import Heartbeat
from slurmopt.run_folder.layout import RunFolder
from slurmopt.run_folder.series import series

_EVERY = 60.0
"""Seconds between two looks."""


class NewFindings:
    """Each kind of finding once in an attempt."""

    def __init__(self, run: RunFolder, attempt: int) -> None:
        self._run, self._attempt = run, attempt
        self._told = set[str]()
        self._due = float("-inf")

    def look(self, beats: Mapping[int, Heartbeat], node: str, now: float) -> str | None:
        """A kind of finding that is new, as a reason for a trace; `now`: monotonic. `beats`: of all ranks."""
        if now < self._due:
            return None
        self._due = now + _EVERY
        try:
            measured = series.read(
                self._run.series(self._attempt, node), self._run.recent_series(self._attempt, node), detail=True
            )
        except (OSError, StorageError):  # the file system is away, or there is nothing to be read
            return None
        if measured is None:
            return None
        own = {rank: beat for rank, beat in beats.items() if beat.node == node}
        for found in live_findings(measured, own):
            if found.kind not in self._told:
                self._told.add(found.kind)
                return f"finding-{found.kind.replace(' ', '-')}"
        return None
