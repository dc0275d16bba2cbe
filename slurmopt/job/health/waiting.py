"""Waits in the job for problems that may pass: a shared file system that is full or does not answer."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable

from slurmopt.checks.result import CheckResult
from slurmopt.job import signals
from slurmopt.job.facts.rank_facts import RankFacts
from slurmopt.job.heartbeat.heartbeat_writer import HeartbeatWriter
from slurmopt.run_folder import events
from slurmopt.run_folder.layout import RunFolder

_FIRST_PAUSE, _LONGEST_PAUSE = 2.0, 30.0
"""Seconds between two checks. The longest is far below the time after which the watchdog reports a hang."""


class Waiting:
    """Repeats the checks of one rank, and reports in its log, its heartbeat and the journal what it waits for."""

    def __init__(self, folder: RunFolder, attempt: int, facts: RankFacts, live: HeartbeatWriter) -> None:
        self._folder, self._attempt, self._facts, self._live = folder, attempt, facts, live

    def until_passed(
        self, findings: list[CheckResult], look: Callable[[], list[CheckResult]], most: float
    ) -> tuple[list[CheckResult], float]:
        """Waits until all problems have passed, a new one will not pass, the job is to end, or `most` seconds are over.
        Returns the remaining findings and the seconds waited. The pauses grow."""
        start, pause = time.monotonic(), _FIRST_PAUSE
        self._tell(findings, time.time() + most)
        while (
            findings and all(finding.passing for finding in findings) and (left := start + most - time.monotonic()) > 0
        ):
            pause = min(pause, left)
            self._live.tell_awaited(self._in_words(findings, pause, left))
            if signals.wait(pause):
                break
            findings, pause = look(), min(1.5 * pause, _LONGEST_PAUSE)
        self._live.tell_awaited(None)
        waited = time.monotonic() - start
        if not findings:
            print(f"slurmopt: health: goes on after {waited:.0f} s", file=sys.stderr, flush=True)
        return findings, waited

    def _in_words(self, findings: list[CheckResult], pause: float, left: float) -> str:
        return f"{_said(findings)}; checks again at {_clock(pause)}, until {_clock(left)}"

    def _tell(self, findings: list[CheckResult], until: float) -> None:
        """Writes a line to the log of each rank that waits. Rank 0 writes to the journal for all ranks, and the first
        rank of a node for problems of that node."""
        limit = f"until {_clock(until - time.time())} (health.wait)"
        message = f"waits for a temporary problem to end, {limit}: {_said(findings)}"
        print(f"slurmopt: health: {self._facts.node}: {message}", file=sys.stderr, flush=True)
        own = any(finding.nodes is None for finding in findings)
        if self._facts.rank == 0 or (own and self._facts.local_rank == 0):
            note = {
                "rank": self._facts.rank,
                "node": self._facts.node,
                "reason": _said(findings),
                "until": round(until),
            }
            # In a thread: the journal may be on the very file system that does not answer.
            threading.Thread(target=self._note, kwargs=note, name="slurmopt-health", daemon=True).start()

    def _note(self, **fields: object) -> None:
        try:
            events.append(self._folder.events, "waits", attempt=self._attempt, **fields)
        except OSError as error:
            print(f"slurmopt: the journal cannot be written: {error}", file=sys.stderr, flush=True)


def _said(findings: list[CheckResult]) -> str:
    return "; ".join(finding.text for finding in findings)


def _clock(seconds: float) -> str:
    """The time of day in so many seconds."""
    return time.strftime("%H:%M:%S", time.localtime(time.time() + seconds))
