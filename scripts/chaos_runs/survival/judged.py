"""What became of a run: after each fault, and at its end."""

from __future__ import annotations

import collections
import contextlib
import json
from dataclasses import dataclass, field
from typing import Any

from chaos_runs.survival.faults import Fault
from chaos_runs.survival.site import Missed
from chaos_runs.survival.survivor import SAMPLES
from chaos_runs.survival.watched import Attempt, Watched
from slurmopt.run_folder.access.files import read_json


@dataclass
class Row:
    """One fault and what followed."""

    kind: str
    attempts: list[int]
    """From the disturbed one to the one that the run is in now."""
    causes: list[str]
    lost: int = 0
    """Steps that had been completed and were done again."""
    back: float | None = None
    """Seconds from the newest attempt's start to its first step done by all ranks."""
    unavoidable: float | None = None
    """Of these, what its slowest rank took to import torch and to restore."""
    is_notified: bool = False
    misses: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        spent = "" if self.back is None else f"{self.back:5.1f} s ({self.unavoidable or 0:.1f} s)"
        span = f"{self.attempts[0]}" if len(self.attempts) == 1 else f"{self.attempts[0]} to {self.attempts[-1]}"
        seen = ", ".join(self.causes) or "went on"
        problems = "".join(f"\n    MISS: {miss}" for miss in self.misses)
        return f"{self.kind:<48} {span:>8}  {seen:<26} {self.lost:>4}  {spent:>16}{problems}"


HEADING = f"{'fault':<48} {'attempt':>8}  {'cause in the journal':<26} lost  {'to a step (torch)':>16}"


def after(fault: Fault, run: Watched, before: int) -> Row:
    """The row of a fault that came while attempt `before` ran; the run has made progress since."""
    record, newest = run.record(), run.attempt
    disturbed = list(range(before, newest))
    row = Row(fault.kind, [*disturbed, newest], [cause for k in disturbed for cause in causes_of(run, k)])
    row.is_notified = fault.is_notified
    row.misses += _wrong_causes(fault, run, disturbed)
    for attempt in disturbed:
        lost, miss = _steps_lost(run, record, attempt)
        row.lost += lost
        row.misses += [miss] if miss else []
    if fault.is_notified and row.lost:
        row.misses.append(f"{row.lost} steps were lost, although there was time to save")
    if disturbed:
        row.back, row.unavoidable = _time_to_step(run, record, newest)
    return row


def causes_of(run: Watched, attempt: int) -> list[str]:
    """As the journal has them; an attempt that ends twice shows here."""
    return [str(end.get("cause")) for end in run.journal("end", attempt)]


def _wrong_causes(fault: Fault, run: Watched, disturbed: list[int]) -> list[str]:
    if not fault.causes:
        return [f"attempt {attempt} ended, and need not have" for attempt in disturbed]
    misses = []
    if not 1 <= len(disturbed) <= fault.most_ends:
        misses.append(f"{len(disturbed)} attempts ended; expected: 1 to {fault.most_ends}")
    for attempt in disturbed:
        seen = causes_of(run, attempt)
        if len(seen) != 1 or seen[0] not in fault.causes:
            misses.append(f"attempt {attempt} ended by {seen}; expected: one of {sorted(set(fault.causes))}")
    return misses


def _steps_lost(run: Watched, record: dict[int, Attempt], attempt: int) -> tuple[int, str | None]:
    """How many, and what is wrong with that: no more than those since the last durable checkpoint may be lost."""
    later = [record[k] for k in record if k > attempt and record[k].restored]
    if attempt not in record or not record[attempt].restored or not later:
        return 0, None
    restored_at = min(each["time"] for each in later[0].restored.values())
    lost = max(0, record[attempt].reached(before=restored_at) - (later[0].began_at or 0))
    durable = run.durable(before=restored_at)
    if (later[0].began_at or 0) < durable:
        return lost, f"went on from step {later[0].began_at}, and step {durable} had been durable"
    return lost, None


def _time_to_step(run: Watched, record: dict[int, Attempt], attempt: int) -> tuple[float | None, float]:
    began = min(event["time"] for event in run.journal("attempt", attempt))
    first = record[attempt].first_step_time()
    spent = [each["importing"] + each["restoring"] for each in record[attempt].restored.values()]
    return None if first is None else first - began, max(spent, default=0.0)


def history(run: Watched) -> list[dict[str, Any]]:
    """The attempts as `slurmopt history` tells them."""
    told: list[dict[str, Any]] = json.loads(run.site.slurmopt("history", str(run.folder.path), "--json"))["data"][
        "attempts"
    ]
    return told


def restarts(run: Watched, history: list[dict[str, Any]]) -> list[dict[str, float]]:
    """What each restart took, in seconds, but for importing torch, in the words of `slurmopt history`."""
    found = []
    for attempt, ranks in run.record().items():
        parts = next((told.get("restart") for told in history if told["attempt"] == attempt), None)
        if attempt and parts and ranks.restored:
            importing = max(each["importing"] for each in ranks.restored.values())
            found.append({**parts, "rendezvous": max(0.0, parts["rendezvous"] - importing)})
    return found


def whole_run(run: Watched, submitted: int, history: list[dict[str, Any]]) -> list[str]:
    """What is wrong with a run that has ended; `submitted`: jobs that Slurm was given, the faults' own included."""
    misses = []
    if (taken := run.site.submissions()) != submitted:
        misses.append(f"Slurm took {taken} jobs, and it was given {submitted}")
    numbers = [event["attempt"] for event in run.journal("attempt")]
    if numbers != list(range(len(numbers))):
        misses.append(f"the attempts in the journal are {numbers}")
    if (last := causes_of(run, run.attempt)) != ["finished"]:
        misses.append(f"the last attempt ended by {last}; expected: finished")
    told = [attempt["cause"] for attempt in history]
    if told != [cause for attempt in numbers for cause in causes_of(run, attempt)]:
        misses.append(f"`slurmopt history` tells other causes than the journal: {told}")
    return misses


def what_is_left(run: Watched) -> list[str]:
    """Jobs in the queue, and processes, some time after the end."""
    with contextlib.suppress(Missed):
        run.site.wait(lambda: not run.site.queue() and not run.leftovers(), 30, "all is over")
    left = [f"in the queue: {line}" for line in run.site.queue()]
    return left + [f"alive: {process}" for process in run.leftovers()]


def against(run: Watched, undisturbed: Watched) -> list[str]:
    """What differs from a run that nothing happened to."""
    mine, other = result(run), result(undisturbed)
    misses = [] if mine is not None and mine == other else [f"the weights are {mine} and, undisturbed, {other}"]
    return misses + wrong_samples(run.record(), undisturbed.record())


def result(run: Watched) -> Any:
    """What the training returned."""
    return (read_json(run.folder.result) or {}).get("result")


def wrong_samples(record: dict[int, Attempt], undisturbed: dict[int, Attempt]) -> list[str]:
    """A step that was done again counts once, with the samples of the first time; each epoch has each sample once."""
    steps: dict[int, dict[int, Any]] = collections.defaultdict(dict)
    misses = []
    for number, attempt in record.items():
        for step, ranks in attempt.steps.items():
            for rank, line in ranks.items():
                seen = line["epoch"], line["samples"]
                if steps[step].setdefault(rank, seen) != seen:
                    misses.append(f"attempt {number}, step {step}, rank {rank}: {seen}, at first {steps[step][rank]}")
    expected = {
        step: {rank: (line["epoch"], line["samples"]) for rank, line in ranks.items()}
        for step, ranks in undisturbed[0].steps.items()
    }
    last = max(expected, default=0)
    wrong = sorted(step for step in range(1, last + 1) if steps.get(step) != expected.get(step))
    if wrong:
        misses.append(f"{len(wrong)} steps had other samples than undisturbed, the first is {wrong[0]}")
    return misses[:5] + _not_once(steps, last)


def _not_once(steps: dict[int, dict[int, Any]], last: int) -> list[str]:
    epochs: dict[int, collections.Counter[int]] = collections.defaultdict(collections.Counter)
    for step in range(1, last + 1):
        for epoch, samples in steps.get(step, {}).values():
            epochs[epoch].update(samples)
    wrong = [
        f"epoch {epoch}: {len(seen)} different samples, {seen.total()} in all; expected: {SAMPLES} once each"
        for epoch, seen in sorted(epochs.items())
        if set(seen.values()) != {1} or (epoch < max(epochs) and len(seen) != SAMPLES)
    ]
    return wrong[:3]


def complete_steps(record: dict[int, Attempt]) -> int:
    """The last step that all ranks of any attempt completed."""
    return max((attempt.reached() for attempt in record.values()), default=0)
