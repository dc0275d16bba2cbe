"""Rank 0 asks for traces by itself, where `profile` in the config says when."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from slurmopt import log
from slurmopt.config.profile import Automatic
from slurmopt.errors import InputError
from slurmopt.job.profiling.triggers import Triggers
from slurmopt.run_folder import captures, heartbeat
from slurmopt.run_folder.captures import LONGEST, NOTICE, Capture
from slurmopt.run_folder.heartbeat import Heartbeat
from slurmopt.run_folder.layout import RunFolder
from slurmopt.run_folder.traced_ranks import WITHOUT_STEPS, chosen, ranks_of, seconds_of
from slurmopt.units import human_bytes

if TYPE_CHECKING:
    from slurmopt.job.profiling.new_findings import NewFindings

_TRAINING = ("running", "input")
"""The activities in which steps are made."""


class OwnRequests:
    """Looks at the steps whenever a process asks, every five seconds. `now`: the heartbeat as of now."""

    def __init__(self, run: RunFolder, attempt: int, options: Automatic, now: Callable[[], Heartbeat]) -> None:
        self._run, self._attempt, self._options, self._now = run, attempt, options, now
        self._triggers = Triggers(options, time.monotonic())
        self._findings: NewFindings | None = None
        if options.findings:
            from slurmopt.job.profiling.new_findings import NewFindings  # its rules are only loaded for that

            self._findings = NewFindings(run, attempt)
        self._is_over = False
        self._latest: Capture | None = None

    def look(self) -> None:
        """Asks for traces if there is a reason. Says in the log what keeps it from that."""
        if self._is_over:
            return
        beat = self._now()
        if self._latest is not None and captures.goes_on(self._run, self._latest, time.time()):
            self._triggers.skip()
            return
        self._latest = None
        seconds = sum(beat.spent.get(activity, 0.0) for activity in _TRAINING)
        now = time.monotonic()
        reason = self._triggers.look(beat.counted.get("steps", 0.0), seconds, now)
        if reason is None and self._findings is not None and self._triggers.may_trigger(now):
            reason = self._findings.look(self._heartbeats(), beat.node, now)
            if reason is not None:
                self._triggers.triggered(now)
        if reason is not None:
            try:
                self._ask(reason)
            except (OSError, InputError) as error:
                log.warning(f"the run is not traced ({reason}): {error}")

    def _ask(self, reason: str) -> None:
        count, size = captures.used(self._run)
        if count >= self._options.count or size >= self._options.most:
            self._is_over = True
            log.info(f"the run is traced no more: {count} captures with {human_bytes(size)} are there (profile.most)")
            return
        earlier = captures.requested(self._run, self._attempt)
        if earlier is not None and captures.goes_on(self._run, earlier, time.time()):
            self._latest = earlier
            return
        ranks = ranks_of(self._heartbeats())
        numbers, _ = chosen(self._options.ranks, ranks)
        seconds = seconds_of(self._options.steps, ranks.step_times)
        now = time.time()
        self._latest = Capture(
            name=captures.new_name(self._run, self._attempt, reason),
            attempt=self._attempt,
            reason=reason,
            requested_at=round(now, 3),
            start=round(now + NOTICE, 3),
            seconds=min(LONGEST, WITHOUT_STEPS if seconds is None else round(seconds, 3)),
            ranks=numbers or [0],
            world_size=ranks.count,
            steps=None if seconds is None else self._options.steps,
            step_times={str(rank): round(ranks.step_times[rank], 6) for rank in numbers if rank in ranks.step_times},
        )
        captures.open_capture(self._run, self._latest)
        log.info(f"the run is traced: {reason} ({self._latest.name})")

    def _heartbeats(self) -> dict[int, Heartbeat]:
        found: dict[int, Heartbeat] = {}
        for rank in self._run.ranks_with_heartbeats(self._attempt):
            with contextlib.suppress(OSError):  # it was replaced just now
                beat = heartbeat.read(self._run.heartbeat(self._attempt, rank))
                if beat is not None:
                    found[rank] = beat
        return found
