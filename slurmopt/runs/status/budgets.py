"""Reads how much of its restart budgets a run has used: how often it restarted after each cause, and how often it
may."""

from __future__ import annotations

from collections import Counter
from dataclasses import asdict, dataclass
from typing import Any

from slurmopt.restart import causes
from slurmopt.run_folder import attempts, events
from slurmopt.run_folder.layout import RunFolder
from slurmopt.runs import stored_config
from slurmopt.runs.journal import returns


@dataclass(frozen=True)
class Budget:
    """The budget of one cause, used since the run's launch or its latest retry."""

    cause: str
    used: int
    limit: int | None
    """None: no limit, or not known."""


def read(run: RunFolder) -> list[Budget]:
    """The budgets of which something is used; none where the journal cannot be read."""
    try:
        run_attempts = attempts.of_events(events.parse(events.without_checkpoints(run.events)))
    except OSError:
        return []
    if run_attempts and not returns(run_attempts[-1].end or {}):
        del run_attempts[-1]  # it still runs, or ended the run
    used = Counter(attempt.cause for attempt in run_attempts if attempt.since_retry and attempt.cause)
    limits = _limits(run) if used else {}
    causes_by_key = {causes.key(cause): cause for cause in used}
    return [
        Budget(causes_by_key[key], used[causes_by_key[key]], limit)
        for key, limit in limits.items()
        if key in causes_by_key
    ]


def _limits(run: RunFolder) -> dict[str, int | None]:
    """`restart.budgets` of the stored config; one that only the job can resolve counts as none."""
    configured = stored_config.group(run, "restart").get("budgets")
    limits: dict[str, int | None] = asdict(causes.Budgets())
    for key, value in configured.items() if isinstance(configured, dict) else ():
        if key in limits:
            limits[key] = value if isinstance(value, int) and not isinstance(value, bool) else None
    return limits


def for_people(budgets: list[Budget]) -> str:
    """`node failure 2 of 10, preemption 3`."""
    return ", ".join(
        f"{budget.cause} {budget.used}" + ("" if budget.limit is None else f" of {budget.limit}") for budget in budgets
    )


def as_list(budgets: list[Budget]) -> list[dict[str, Any]]:
    """For `--json`."""
    return [asdict(budget) for budget in budgets]
