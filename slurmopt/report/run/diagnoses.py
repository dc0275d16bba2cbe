"""The findings on a run, and what became of those of the run before it."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from slurmopt.ledger.findings.comparison import GONE, NEW, SMALLER, UNKNOWN, compare_findings, speed_line
from slurmopt.ledger.findings.config_facts import config_facts
from slurmopt.ledger.findings.diagnosis import diagnose_run
from slurmopt.ledger.findings.evidence import AttemptEvidence, ConfigFacts
from slurmopt.ledger.findings.finding import Diagnosis
from slurmopt.ledger.findings.records import evidence_of
from slurmopt.ledger.ledger import AttemptLedger
from slurmopt.ledger.record import AttemptRecord
from slurmopt.report.gather import gather
from slurmopt.report.run_record import RunRecord
from slurmopt.run_folder.access.open_folders import held
from slurmopt.run_folder.layout import RunFolder
from slurmopt.runs.all_runs import created, runs_of_name
from slurmopt.runs.ownership import owner_of

_MOST_BYTES = 64 << 20
"""Series of the run before that are read: the report must not take twice as long."""

_MOST_BEFORE = 5
"""Runs before that are read: attempts at a fix that failed at once."""


def diagnosis(record: RunRecord) -> Diagnosis:
    """The findings on all attempts of a run."""
    return diagnose_run(_evidence(record, record.attempts))


def newest(record: RunRecord) -> Diagnosis:
    """The findings on the newest attempt alone."""
    return diagnose_run(_evidence(record, record.attempts[-1:]))


def _evidence(record: RunRecord, attempts: Sequence[AttemptRecord]) -> list[AttemptEvidence]:
    ledgers = {one.number: one for one in record.ledger.attempts}
    config = config_facts(record.config, sweep=record.folder.in_sweep)
    return [_of_attempt(record, attempt, ledgers.get(attempt.number), config) for attempt in attempts]


def _of_attempt(
    record: RunRecord, attempt: AttemptRecord, ledger: AttemptLedger | None, config: ConfigFacts
) -> AttemptEvidence:
    number, facts = attempt.number, record.facts[attempt.number]
    return evidence_of(
        attempt,
        record.heartbeats.get(number, {}),
        list(record.series.get(number, {}).values()),
        config=config,
        buckets=None if ledger is None else {name: amount / 1000 for name, amount in ledger.buckets.items()},
        hang=facts.attempt.hang,
        saves=facts.checkpoints or None,
    )


def helped(record: RunRecord, now: Diagnosis) -> list[str]:
    """What became of the findings of the run before, one line each; [] where there is none, or it had none. A run that
    has neither trained nor a finding is passed over: it tells nothing about the change, and the one before it does."""
    for before in runs_before(record.folder)[:_MOST_BEFORE]:
        if series_bytes(before) > _MOST_BYTES:
            return []
        earlier = diagnosis(gather(before))
        if earlier.findings or earlier.judged:
            return _changes(before, earlier, now)
    return []


def _changes(before: RunFolder, earlier: Diagnosis, now: Diagnosis) -> list[str]:
    changes = [change for change in compare_findings(earlier, now) if change.verdict != NEW]
    if not changes:
        return []
    lines = [f"since {before.id}: {change.line}" for change in changes]
    improved = any(change.verdict in (GONE, SMALLER) for change in changes)
    speed = speed_line(earlier, now) if improved or any(change.verdict != UNKNOWN for change in changes) else None
    return [*lines, speed] if speed else lines


def runs_before(run: RunFolder) -> list[RunFolder]:
    """The runs of the same name that were launched before, the newest first."""
    if run.in_sweep:
        return []
    this = created(run)
    older = [one for one in runs_of_name(run.path.parent) if one.path != run.path and created(one) < this]
    own = [one for one in older if owner_of(one) is None and not (one.path / "points.json").exists()]
    return sorted(own, key=created, reverse=True)


def series_bytes(run: RunFolder) -> int:
    """The size of all series of a run."""
    paths: list[Path] = [
        path
        for attempt in run.attempts()
        for node in run.nodes_with_series(attempt)
        for path in (run.series(attempt, node), run.recent_series(attempt, node))
    ]
    return sum(os.stat(held(path)).st_size for path in paths if held(path).is_file())
