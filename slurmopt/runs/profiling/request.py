"""Asks the ranks of a running run for traces."""

from __future__ import annotations

import os
import statistics
import time
from contextlib import suppress
from pathlib import Path

from slurmopt.config.profile import Profile
from slurmopt.errors import InputError, RunError, one_line
from slurmopt.run_folder import captures
from slurmopt.run_folder.access.open_folders import held
from slurmopt.run_folder.captures import MEMORY, NOTICE, TRACE, Capture
from slurmopt.run_folder.heartbeat import Heartbeat
from slurmopt.run_folder.json_values import as_int
from slurmopt.run_folder.layout import RunFolder
from slurmopt.run_folder.traced_ranks import WITHOUT_STEPS, Ranks, chosen, ranks_of, seconds_of
from slurmopt.runs import options, stored_config
from slurmopt.runs.ownership import refuse_others
from slurmopt.runs.status.progress import read
from slurmopt.runs.status.query import Status, gather
from slurmopt.units import byte_count, human_bytes, human_seconds

_SLOWER_FOR_MEMORY = 4.0
"""How much longer a step may take while its memory is recorded."""
_SAME_CLOCK = 1.0
"""Seconds up to which two clocks count as equal: a heartbeat gets its time before it is written."""


def running(run: RunFolder, kind: str = TRACE) -> tuple[Status, int]:
    """The status of a run that can be asked for captures of a kind, and the number of its attempt. Raises RunError."""
    refuse_others(run)
    (status,), _ = gather([run], fresh=True)
    attempt = status.journal.attempt
    if not status.alive:
        detail = f" ({status.detail})" if status.detail else ""
        why = "traced" if kind == TRACE else "asked; --stored shows the record of one that has ended"
        raise RunError(f"profile: {status.label} has ended: {status.state}{detail}; only a running run can be {why}")
    if attempt is None or status.state in ("pending", "requeued"):
        raise RunError(f"profile: {status.label} does not run yet: it is {status.state}")
    group = stored_config.group(run, "profile")
    if group.get("enabled") is False:
        raise RunError(f"profile: {status.label} was launched with profile.enabled=false, and cannot be traced")
    return status, attempt.number


def heartbeats(run: RunFolder, attempt: int) -> dict[int, Heartbeat]:
    """The heartbeats of an attempt, by rank."""
    found = {rank: read(run, attempt, rank) for rank in run.ranks_with_heartbeats(attempt)}
    return {rank: beat for rank, beat in found.items() if beat is not None}


def attempt_ranks(run: RunFolder, attempt: int) -> Ranks:
    """The ranks of an attempt that runs."""
    return ranks_of(heartbeats(run, attempt))


def ask(
    status: Status,
    attempt: int,
    words: list[str],
    steps: int | None,
    seconds: float | None,
    kind: str = TRACE,
    shapes: bool = False,
) -> tuple[Capture, list[str]]:
    """Asks the ranks for traces, or for records of their memory; returns what is asked for, and remarks on it. Without
    `steps` and `seconds` it is of five steps. Raises InputError, or OSError if nothing can be written into the run
    folder."""
    run = status.folder
    ranks = _living(status, attempt)
    if kind == MEMORY:
        _refuse_without_steps(status, ranks)
    numbers, remarks = _numbers(words, ranks)
    span, counted = _span(steps, seconds, ranks)
    if kind == MEMORY:
        span = min(captures.LONGEST, span * _SLOWER_FOR_MEMORY)
    if seconds is None and counted is None:
        remarks.append(f"the training reports no steps: {WITHOUT_STEPS:g} s are traced; --seconds sets that")
    _refuse_more(status, attempt)
    own, nodes = _clocks(run, attempt, ranks)
    now = time.time()
    capture = Capture(
        name=captures.new_name(run, attempt, captures.ASKED),
        attempt=attempt,
        reason=captures.ASKED,
        requested_at=round(now, 3),
        start=round(now - own + nodes + NOTICE, 3),
        seconds=span,
        ranks=numbers,
        world_size=ranks.count,
        steps=counted,
        step_times={str(rank): round(value, 6) for rank, value in sorted(ranks.step_times.items()) if rank in numbers},
        kind=kind,
        shapes=shapes,
    )
    captures.open_capture(run, capture)
    return capture, remarks


def _living(status: Status, attempt: int) -> Ranks:
    """The ranks of an attempt, of which some have started and not ended."""
    ranks = attempt_ranks(status.folder, attempt)
    if not ranks.beats or all(beat.outcome is not None for beat in ranks.beats.values()):
        phase = "its ranks have not started yet" if not ranks.beats else "its ranks have ended"
        raise RunError(f"profile: {status.label} cannot be traced: {phase}")
    return ranks


def _numbers(words: list[str], ranks: Ranks) -> tuple[list[int], list[str]]:
    """The ranks that the words of `--ranks` mean, and remarks on that."""
    numbers, unknown = chosen(words, ranks)
    left_out = f"the training reports no steps, and --ranks takes only numbers: {' and '.join(unknown)} is left out"
    if not numbers:
        raise InputError(f"profile: --ranks {','.join(words)}: {left_out}")
    return numbers, [left_out] if unknown else []


def _refuse_without_steps(status: Status, ranks: Ranks) -> None:
    if not ranks.step_times:
        raise RunError(
            f"profile memory: {status.label} reports no steps yet, and its memory is looked at between steps: it is to "
            "call slurmopt.progress(step)"
        )


def _span(steps: int | None, seconds: float | None, ranks: Ranks) -> tuple[float, int | None]:
    """How many seconds are traced, and for how many steps that is."""
    if seconds is not None:
        return seconds, None
    count = 5 if steps is None else steps
    span = seconds_of(count, ranks.step_times)
    if span is None and steps is not None:
        raise InputError("profile: --steps: the training reports no steps; valid: --seconds")
    if span is None:
        return WITHOUT_STEPS, None
    if span > captures.LONGEST:
        raise InputError(
            f"profile: {count} steps take {human_seconds(span)}, and a trace at most "
            f"{human_seconds(captures.LONGEST)}; valid: --seconds, or fewer --steps"
        )
    return round(span, 3), count


def _refuse_more(status: Status, attempt: int) -> None:
    run = status.folder
    group = stored_config.group(run, "profile")
    count, size = captures.used(run)
    most_count = as_int(group.get("count")) or Profile.count
    most = Profile.most
    with suppress(ValueError):
        byte_count(str(group.get("most", most)))
        most = str(group.get("most", most))
    name = options.run_arg(run, status.label)
    free = f"remove some of {one_line(str(run.traces))}, or `slurmopt retry {name}` with a larger one"
    if size >= byte_count(most):
        raise RunError(f"profile: the traces of {status.label} take {human_bytes(size)}: profile.most={most}; {free}")
    if count >= most_count:
        raise RunError(f"profile: {status.label} was traced {count} times: profile.count={most_count}; {free}")
    latest = captures.requested(run, attempt)
    if latest is not None and captures.goes_on(run, latest, time.time()):
        raise RunError(f"profile: {status.label} is being traced already ({latest.name}); try again once that is done")


def _clocks(run: RunFolder, attempt: int, ranks: Ranks) -> tuple[float, float]:
    """Seconds by which this machine's clock, and that of the nodes, are ahead of the clock of the file system. Both are
    0 where that is less than can be told so."""
    beats = [beat.time - _written(run.heartbeat(attempt, rank)) for rank, beat in ranks.beats.items()]
    run.traces.mkdir(mode=0o700, exist_ok=True)
    probe = run.traces / ".clock"
    os.close(os.open(held(probe), os.O_CREAT | os.O_WRONLY | os.O_TRUNC | os.O_NOFOLLOW, 0o600))
    os.utime(held(probe))
    own = time.time() - _written(probe)
    probe.unlink(missing_ok=True)
    nodes = statistics.median(beats) if beats else 0.0
    return tuple(ahead if abs(ahead) > _SAME_CLOCK else 0.0 for ahead in (own, nodes))  # type: ignore[return-value]


def _written(path: Path) -> float:
    return held(path).stat().st_mtime
