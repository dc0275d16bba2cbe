"""The journal's events become the story that decisions are made from."""

from __future__ import annotations

from typing import Any

from slurmopt.restart import causes
from slurmopt.restart.decision import REQUEUE, decide
from slurmopt.restart.policy import Policy
from slurmopt.run_folder.attempts import of_events


def started(attempt: int) -> dict[str, Any]:
    return {"event": "attempt", "attempt": attempt, "job": "1"}


def saved(attempt: int, step: int, tier: str) -> dict[str, Any]:
    return {"event": "checkpoint", "attempt": attempt, "step": step, "tier": tier}


def ended(attempt: int) -> dict[str, Any]:
    return {"event": "end", "attempt": attempt, "cause": causes.NODE_FAILURE}


def test_what_was_lost_with_a_node_does_not_hide_what_later_attempts_add() -> None:
    journal = [started(0), saved(0, 500, "shared"), saved(0, 1000, "scratch"), ended(0)]
    journal += [started(1), saved(1, 900, "shared"), ended(1), started(2), saved(2, 990, "s3"), ended(2)]
    attempts = of_events(journal)
    assert [one.durable for one in attempts] == [500, 900, 990]
    assert decide(attempts, causes.NODE_FAILURE, Policy().budgets, 2).next == REQUEUE
