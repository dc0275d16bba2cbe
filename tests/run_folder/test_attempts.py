"""The journal's events become the story that decisions are made from."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest

from slurmopt.restart import causes
from slurmopt.restart.decision import REQUEUE, decide
from slurmopt.restart.policy import Policy
from slurmopt.run_folder import events
from slurmopt.run_folder.attempts import attempts, of_events
from slurmopt.run_folder.layout import RunFolder


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


def test_the_newest_durable_step_has_the_time_at_which_its_save_began(tmp_path: Path) -> None:
    run = RunFolder(tmp_path)
    events.append(run.events, "attempt", attempt=0, job="1")
    before = time.time()
    for step in (10, 20, 20):
        for tier in ("scratch", "shared"):
            events.append(
                run.events,
                "checkpoint",
                attempt=0,
                step=step,
                tier=tier,
                checkpoint=f"step-{step}",
                bytes=1,
                seconds=5.0,
            )
    (found,) = attempts(run)
    assert found.durable == 20
    assert found.durable_since == pytest.approx(before - 5, abs=2)
    events.append(run.events, "end", attempt=0, outcome="requeue", durable=30)
    (found,) = attempts(run)
    assert (found.durable, found.durable_since) == (30, None), "a command's own word tells no time"
