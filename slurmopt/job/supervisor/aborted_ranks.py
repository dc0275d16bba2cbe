"""Ranks that were ended by an exception in C++, such as one of NCCL's watchdog: they abort without a word in Python.

What they say stands in their logs alone. srun's lines in the job's log tell which of them was the first.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from slurmopt.errors import one_line
from slurmopt.job.failures import is_peer_lost
from slurmopt.restart import causes
from slurmopt.restart.evidence import Evidence
from slurmopt.run_folder.attempt_files import tail
from slurmopt.run_folder.heartbeat import Heartbeat
from slurmopt.run_folder.layout import RunFolder
from slurmopt.run_folder.outcome import KILLED, USER_ERROR

_MOST_LOGS = 64
_MOST_CHARACTERS = 600
# glibc's and C++'s own words; what the exception says may have several lines, and C++ frames follow.
_UNCAUGHT = re.compile(
    r"^(?P<prefix>.*?)terminate called after throwing an instance of '(?P<kind>[^']+)'\s*\n"
    r"(?:.*?what\(\): *(?P<what>.*))?",
    re.MULTILINE,
)
_WATCHDOG = re.compile(
    r"^(?P<prefix>.*?)\[[EF]\S* \S+ ProcessGroupNCCL\.cpp:\d+\] (?P<what>.*terminated with exception: .*)", re.MULTILINE
)
_WHAT_ENDS = re.compile(r"^\W*(?:Exception raised from|frame #\d+|Fatal Python error|Signal \d+ \(|$)")

# srun: error: node2: tasks 1,4-5: Aborted (core dumped)
_ENDED = re.compile(r"^srun: error: \S+: tasks? (?P<tasks>[\d,\-]+): ")
_ENDED_BY_SRUN = re.compile(r"^srun: .*(?:Terminating StepId|forcing job termination|Job step aborted)")


@dataclass(frozen=True)
class Abort:
    """The message of a rank's process when it aborted, in one line."""

    rank: int
    error: str

    @property
    def is_symptom(self) -> bool:
        """Whether the message only says that another rank is gone, or did not join a collective."""
        return is_peer_lost(self.error) or causes.of_text(self.error) == causes.HANG


def who_began(
    folder: RunFolder, attempt: int, beats: Mapping[int, Heartbeat], ranks: int, evidence: Evidence
) -> tuple[int | None, Abort | None]:
    """The first of the ranks that died without a Python error, and the abort that ended the attempt.

    The rank is None if srun does not tell. The abort is None if no rank aborted, or all that did only lost a rank that
    died otherwise.
    """
    dead = [rank for rank in range(ranks) if _died(beats.get(rank))]
    first, later = _deaths(evidence.job_log)
    ordered = [*(rank for rank in first if rank in dead), *(rank for rank in dead if rank not in first)]
    aborts = _aborts(folder, attempt, ordered)
    if (cause := next((abort for abort in aborts if not abort.is_symptom), None)) is not None:
        return cause.rank, cause
    if aborts and not (evidence.signals or evidence.asked or set(dead) - {abort.rank for abort in aborts} - set(later)):
        return aborts[0].rank, aborts[0]
    return next((rank for rank in first if rank in dead), None), None


def furthest_behind(beats: Mapping[int, Heartbeat]) -> int | None:
    """The rank with the fewest steps; None if all have the same number."""
    steps = {rank: beat.step for rank, beat in beats.items() if beat.step is not None}
    if len(set(steps.values())) < 2:
        return None
    return min(steps, key=lambda rank: (steps[rank], rank))


def _died(beat: Heartbeat | None) -> bool:
    """Whether a rank ended without an outcome of its own, or is a command, which may have written the reason to its
    log."""
    if beat is None or beat.outcome is None:
        return True
    return beat.outcome.get("outcome") in (KILLED, USER_ERROR) and not beat.outcome.get("traceback")


def _deaths(log: str) -> tuple[list[int], list[int]]:
    """The ranks that ended badly according to srun, in order, and those that srun ended then."""
    first: list[int] = []
    later: list[int] = []
    begun = first
    for line in log.splitlines():
        if _ENDED_BY_SRUN.match(line):
            begun = later
        elif match := _ENDED.match(line):
            begun += _numbers(match["tasks"])
    return first, later


def _numbers(tasks: str) -> list[int]:
    spans = [part.partition("-") for part in tasks.split(",") if part]
    return [rank for first, _, last in spans for rank in range(int(first), int(last or first) + 1)]


def _aborts(folder: RunFolder, attempt: int, ranks: Sequence[int]) -> list[Abort]:
    aborts = ((rank, last_words(tail(folder.rank_log(attempt, rank)))) for rank in ranks[:_MOST_LOGS])
    return [Abort(rank, words) for rank, words in aborts if words]


def last_words(log: str) -> str | None:
    """The message of the last uncaught C++ exception in a log, in one line; None if there is none."""
    if (match := _last(_UNCAUGHT, log)) is not None:
        what = _whole(log, match) if match["what"] else ""
        return one_line(f"{match['kind']}: {what}".rstrip(": "))[:_MOST_CHARACTERS]
    if (match := _last(_WATCHDOG, log)) is not None:
        return one_line(_whole(log, match))[:_MOST_CHARACTERS]
    return None


def _last(pattern: re.Pattern[str], log: str) -> re.Match[str] | None:
    match = None
    for match in pattern.finditer(log):  # noqa: B007 - the last one counts
        pass
    return match


def _whole(log: str, match: re.Match[str]) -> str:
    """The lines of the message, without the prefix that a launcher writes."""
    lines = [match["what"]]
    for line in log[match.end() :].splitlines()[1:8]:
        text = line.removeprefix(match["prefix"])
        if _WHAT_ENDS.match(text):
            break
        lines.append(text.strip())
    return " ".join(lines)
