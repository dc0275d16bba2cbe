"""Compares the attempts of a run with what Slurm's accounting says that it was allocated."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace

from slurmopt.ledger.record import AttemptRecord
from slurmopt.report.run_record import AccountingCheck
from slurmopt.run_folder.attempts import Attempt
from slurmopt.slurm.accounting import Allocated

_MOST_APART = 120.0
"""Seconds between the start of an allocation and that of its batch shell, at most: a prolog may take a minute."""
_WORTH_A_WORD = 10.0
"""Seconds of difference; an allocation begins before its batch shell, and ends after its last word."""


def check(
    attempts: Sequence[AttemptRecord], of_journal: Mapping[int, Attempt], known: Sequence[Allocated]
) -> AccountingCheck:
    """Compares the sums. A note names each allocation without an attempt, and each attempt without an allocation."""
    unit = "GPU" if any(attempt.unit == "GPU" for attempt in attempts) else "CPU"
    pairs, left = paired(attempts, of_journal, known)
    notes = [note for attempt, one in pairs.values() for note in _differences(attempt, one, unit)]
    notes += [
        f"job {one.job}: Slurm charged a start of {one.seconds:,} s that the journal does not tell of" for one in left
    ]
    missing = [str(attempt.number) for attempt in attempts if attempt.number not in pairs]
    if missing:
        notes.append(f"Slurm's accounting does not know these attempts: {', '.join(missing)}")
    charged = sum(_units(one, unit) * one.seconds for one in known)
    counted = sum(sum(attempt.gpus.values()) * _length(attempt) for attempt in attempts if attempt.unit == unit)
    return AccountingCheck(float(charged), counted, unit, notes)


def _differences(attempt: AttemptRecord, one: Allocated, unit: str) -> list[str]:
    had, notes = sum(attempt.gpus.values()), []
    if _units(one, unit) != had and attempt.unit == unit:
        notes.append(f"attempt {attempt.number}: Slurm allocated {_units(one, unit):,} {unit}s, the journal {had:,.0f}")
    if abs(one.seconds - _length(attempt)) > _WORTH_A_WORD:
        told = f"Slurm allocated {one.seconds:,} s, the journal tells of {_length(attempt):,.0f} s"
        notes.append(f"attempt {attempt.number}: {told}")
    return notes


def _length(attempt: AttemptRecord) -> float:
    return max(0.0, attempt.end - attempt.start)


def with_ends(
    attempts: Sequence[AttemptRecord], of_journal: Mapping[int, Attempt], known: Sequence[Allocated]
) -> list[AttemptRecord]:
    """The attempts; of those that left no word of their end, the end is the one that Slurm noted."""
    pairs, _ = paired(attempts, of_journal, known)
    found = []
    for attempt in attempts:
        one = pairs[attempt.number][1] if attempt.number in pairs else None
        silent = of_journal[attempt.number].ended is None and not attempt.alive
        if one is not None and one.end is not None and silent:
            notes = (
                *(note for note in attempt.notes if "of its end" not in note),
                "its end is the one that Slurm noted",
            )
            attempt = replace(attempt, end=max(one.end, attempt.start), notes=notes)
        found.append(attempt)
    return found


def paired(
    attempts: Sequence[AttemptRecord], of_journal: Mapping[int, Attempt], known: Sequence[Allocated]
) -> tuple[dict[int, tuple[AttemptRecord, Allocated]], list[Allocated]]:
    """Attempt → the start of its job in accounting, and the starts that are no attempt's: in each job the nearest one
    before the batch shell's start."""
    by_job: dict[str | None, list[Allocated]] = defaultdict(list)
    for one in known:
        by_job[one.job].append(one)
    pairs: dict[int, tuple[AttemptRecord, Allocated]] = {}
    for attempt in attempts:
        near = [one for one in by_job[of_journal[attempt.number].job] if _apart(one, attempt) <= _MOST_APART]
        if near:
            one = min(near, key=lambda one: _apart(one, attempt))
            pairs[attempt.number] = attempt, one
            by_job[one.job].remove(one)
    return pairs, [one for left in by_job.values() for one in left]


def _apart(one: Allocated, attempt: AttemptRecord) -> float:
    return abs(attempt.start - one.start)


def _units(one: Allocated, unit: str) -> int:
    return one.gpus if unit == "GPU" else one.cpus
