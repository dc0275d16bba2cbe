"""How much of its budgets a run has used: how often it came back after each cause, and how often it may."""

from __future__ import annotations

from collections import Counter
from dataclasses import asdict, dataclass
from typing import Any

from slurmopt.restart import causes
from slurmopt.run_folder import attempts as story
from slurmopt.run_folder import events
from slurmopt.run_folder.layout import RunFolder
from slurmopt.runs import stored_config
from slurmopt.runs.journal import returns


@dataclass(frozen=True)
class Budget:
    """Of one cause after which the run came back, since its launch or since its owner last let it go on."""

    cause: str
    used: int
    limit: int | None
    """None: no limit, or nobody knows it."""


def read(run: RunFolder) -> list[Budget]:
    """The budgets that something was taken from; none where the journal cannot be read."""
    try:
        attempts = story.of_events(events.parse(events.without_checkpoints(run.events)))
    except OSError:
        return []
    if attempts and not returns(attempts[-1].end or {}):
        del attempts[-1]  # it still runs, or ended the run
    used = Counter(attempt.cause for attempt in attempts if attempt.since_retry and attempt.cause)
    limits = _limits(run) if used else {}
    known = {causes.key(cause): cause for cause in used}
    return [Budget(known[key], used[known[key]], limit) for key, limit in limits.items() if key in known]


def _limits(run: RunFolder) -> dict[str, int | None]:
    """`restart.budgets` of the stored config; one that only the job can resolve counts as none."""
    given = stored_config.group(run, "restart").get("budgets")
    limits: dict[str, int | None] = asdict(causes.Budgets())
    for key, value in given.items() if isinstance(given, dict) else ():
        if key in limits:
            limits[key] = value if isinstance(value, int) and not isinstance(value, bool) else None
    return limits


def for_people(budgets: list[Budget]) -> str:
    """`node failure 2 of 10, preemption 3`."""
    return ", ".join(f"{one.cause} {one.used}" + ("" if one.limit is None else f" of {one.limit}") for one in budgets)


def as_list(budgets: list[Budget]) -> list[dict[str, Any]]:
    """For `--json`."""
    return [asdict(one) for one in budgets]
