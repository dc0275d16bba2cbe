"""Compares the attempts of a run with what Slurm's accounting says that it was allocated."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

from slurmopt.errors import RunError, SlurmoptError, one_line
from slurmopt.ledger.record import AttemptRecord
from slurmopt.report.run_record import AccountingCheck, RunRecord
from slurmopt.run_folder.attempts import Attempt
from slurmopt.runs.journal import FOREIGN
from slurmopt.slurm.accounting import Allocated, allocations
from slurmopt.slurm.cluster.facts import cluster_name

_MOST_APART = 120.0
"""Seconds between the start of an allocation and that of its batch shell, at most: a prolog may take a minute."""
_WORTH_A_WORD = 10.0
"""Seconds of difference; an allocation begins before its batch shell, and ends after its last word."""
_SAME = 0.01
"""Share of what Slurm charged that the sums may differ by."""
_PATIENCE = 10.0
"""Seconds; a report does not wait longer for a database that is slow or away."""


def ask_accounting(record: RunRecord) -> None:
    """Compares the record with what sacct says of its jobs, and takes from there the ends that no attempt told. Where
    sacct cannot tell, a line in `problems` says why. Jobs in which the run is only a part are left out: those around
    `slurmopt monitor`, and array tasks with several points."""
    of_journal = {number: facts.attempt for number, facts in record.facts.items()}
    shared = record.status.journal.backend == FOREIGN or any(facts.place for facts in record.facts.values())
    jobs = {facts.job for facts in of_journal.values() if facts.job and not facts.job.startswith("local-")}
    if shared or not jobs:
        return
    try:
        known = _known(record, jobs)
    except SlurmoptError as error:
        record.problems.append(f"the ledger was not checked against Slurm's accounting: {one_line(str(error))}")
        return
    if known:
        record.attempts = with_ends(record.attempts, of_journal, known)
        record.accounting = check(record.attempts, of_journal, known)


def _known(record: RunRecord, jobs: Collection[str]) -> list[Allocated]:
    """What sacct says of the jobs; job ids are used again, so starts before the launch are not the run's."""
    from slurmopt.runs.recovery.orphans import cluster_of

    cluster, here = cluster_of(record.folder), cluster_name()
    if cluster is not None and here is not None and cluster != here:
        raise RunError(f"its jobs are of cluster {cluster}")
    launched = (record.status.journal.created or 0.0) - _MOST_APART
    return [one for one in allocations(jobs, _PATIENCE) if one.start >= launched]


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
    found = AccountingCheck(float(charged), counted, unit)
    return replace(found, notes=[*_of_the_sums(found, _largest(known, unit) * len(known)), *notes])


def _largest(known: Sequence[Allocated], unit: str) -> int:
    return max((_units(one, unit) for one in known), default=0)


def _of_the_sums(found: AccountingCheck, starts: int) -> list[str]:
    """A note where the sums differ by more than the seconds around each start explain. `starts`: their devices."""
    if abs(found.difference) <= max(_WORTH_A_WORD * starts, _SAME * found.charged):
        return []
    charged, counted = (f"{seconds / 3600:,.2f}" for seconds in (found.charged, found.counted))
    return [f"Slurm's accounting has {charged} {found.unit}-hours of its jobs, the journal tells of {counted}"]


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
    """Attempt → the start of its job in accounting, and the starts that are no attempt's. The nearest pairs come first:
    accounting can lack a start, as where a node died, and its attempt must not take the start of the next one."""
    near = [
        (_apart(one, attempt), attempt, index)
        for attempt in attempts
        for index, one in enumerate(known)
        if one.job == of_journal[attempt.number].job and _apart(one, attempt) <= _MOST_APART
    ]
    pairs: dict[int, tuple[AttemptRecord, Allocated]] = {}
    left = dict(enumerate(known))
    for _, attempt, index in sorted(near, key=lambda pair: pair[0]):
        if attempt.number not in pairs and index in left:
            pairs[attempt.number] = attempt, left.pop(index)
    return pairs, list(left.values())


def _apart(one: Allocated, attempt: AttemptRecord) -> float:
    return abs(attempt.start - one.start)


def _units(one: Allocated, unit: str) -> int:
    return one.gpus if unit == "GPU" else one.cpus
